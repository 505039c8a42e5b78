"""All dialects, and the search for that of a request."""

from dataclasses import replace

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
_AROUND = "\ufeff \t\n"

DIALECTS: tuple[Dialect, ...] = tuple(dialect for family in _FAMILIES for dialect in family.DIALECTS)
"""Every dialect; the order does not matter, since no request is of two (a test sees to it)."""


def recognise(request: ChatRequest) -> tuple[Dialect, JudgeTask] | None:
    """The dialect of a request and the task in it; None where no dialect knows it.

    A request that no dialect knows is sought once more with line ends of one kind and without blanks around its
    messages, then without blanks at the ends of its lines. Where two dialects claim it, the split without doubt has
    precedence.
    """
    known = _claimed(request)
    if known is not None:
        return known
    plain = normalised(request)
    known = None if plain.messages == request.messages else _claimed(plain)
    stripped = _without_blank_ends(plain) if known is None else plain
    return known if stripped.messages == plain.messages else _claimed(stripped)


def _claimed(request: ChatRequest) -> tuple[Dialect, JudgeTask] | None:
    claims = [(dialect, task) for dialect in DIALECTS if (task := dialect.recognise(request)) is not None]
    return min(claims, key=lambda claim: bool(claim[1].doubt), default=None)


def normalised(request: ChatRequest) -> ChatRequest:
    """The request without what editors, files and gateways add to a prompt, messages of blanks alone among it."""
    texts = [message.text.replace("\r\n", "\n").replace("\r", "\n").strip(_AROUND) for message in request.messages]
    messages = [replace(message, text=text) for message, text in zip(request.messages, texts, strict=True) if text]
    return replace(request, messages=tuple(messages))


def _without_blank_ends(request: ChatRequest) -> ChatRequest:
    texts = ["\n".join(line.rstrip(" \t") for line in message.text.split("\n")) for message in request.messages]
    messages = [replace(message, text=text) for message, text in zip(request.messages, texts, strict=True)]
    return replace(request, messages=tuple(messages))
