"""All dialects, and which of them a request is of."""

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


def recognise(asked: ChatRequest) -> tuple[Dialect, JudgeTask] | None:
    """The dialect of a request and the case in it; None where no dialect knows it.

    Where two claim it, the split that leaves no doubt goes first.
    """
    found = [(dialect, case) for dialect in DIALECTS if (case := dialect.recognise(asked)) is not None]
    return min(found, key=lambda one: bool(one[1].doubt), default=None)
