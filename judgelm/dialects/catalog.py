"""All dialects, and the search for that of a request."""

from judgelm.dialects import (
    alpaca_eval,
    alpaca_eval_choices,
    arena_hard,
    autoj,
    deepeval,
    faireval,
    fastchat,
    flowjudge,
    geval,
    inspect_ai,
    judgebench,
    llmbar,
    openevals,
    pandalm,
    prometheus,
    promptfoo,
    ragas,
    rewardbench,
    score_line,
    simpleqa,
)
from judgelm.dialects.contract import ChatRequest, Dialect, JudgeTask

_FAMILIES = (
    alpaca_eval,
    alpaca_eval_choices,
    arena_hard,
    autoj,
    deepeval,
    faireval,
    fastchat,
    flowjudge,
    geval,
    inspect_ai,
    judgebench,
    llmbar,
    openevals,
    pandalm,
    prometheus,
    promptfoo,
    ragas,
    rewardbench,
    score_line,
    simpleqa,
)
DIALECTS: tuple[Dialect, ...] = tuple(dialect for family in _FAMILIES for dialect in family.DIALECTS)
"""Every dialect; the order does not matter, since no request is of two (a test sees to it)."""


def recognise(request: ChatRequest) -> tuple[Dialect, JudgeTask] | None:
    """The dialect of a request and the task in it; None where no dialect knows it.

    Where two claim it, the split without doubt has precedence.
    """
    claims = [(dialect, task) for dialect in DIALECTS if (task := dialect.recognise(request)) is not None]
    return min(claims, key=lambda claim: bool(claim[1].doubt), default=None)
