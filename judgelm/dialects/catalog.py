"""Lists all dialects, and finds the dialect of a request."""

import re
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

from judgelm.dialects import benchmarks, deepeval, instruction_following, judge_models, openevals, promptfoo, ragas
from judgelm.dialects.contract import ChatRequest, Dialect, JudgeTask, Message
from judgelm.dialects.prompt_file import read_dialects
from judgelm.dialects.splits import Pattern

_STRIPPED = "\ufeff \t\n"

PROMPT_FILES = ("autoevals", "langchain", "langfuse", "mlflow", "opik", "phoenix")
_MODULES = (benchmarks, deepeval, promptfoo, ragas, openevals, instruction_following, judge_models)
DIALECTS: tuple[Dialect, ...] = (
    *(dialect for module in _MODULES for dialect in module.DIALECTS),
    *(dialect for name in PROMPT_FILES for dialect in read_dialects(Path(__file__).with_name(f"{name}.yaml"))),
)
"""All built-in dialects; the order does not matter."""


def recognise(request: ChatRequest, dialects: Sequence[Dialect] = DIALECTS) -> tuple[Dialect, JudgeTask] | None:
    """Return the dialect and the task for a request, or None if no dialect recognises it.

    Unambiguous splits are preferred, then templates with more fixed text.
    """
    tried: list[tuple[Message, ...]] = []
    for form in _forms(request, dialects):
        if form.messages not in tried and (known := _claimed(form, dialects)) is not None:
            return known
        tried.append(form.messages)
    return None


def _forms(request: ChatRequest, dialects: Sequence[Dialect]) -> Iterator[ChatRequest]:
    yield request
    plain = normalised(request)
    yield plain
    yield _without_blank_ends(plain)
    yield _with_instruction_apart(plain, dialects)


def _claimed(request: ChatRequest, dialects: Sequence[Dialect]) -> tuple[Dialect, JudgeTask] | None:
    claims = [(dialect, task) for dialect in dialects if (task := dialect.recognise(request)) is not None]
    return min(claims, key=lambda claim: (bool(claim[1].doubt), -_fixed_characters(claim[0])), default=None)


def _fixed_characters(dialect: Dialect) -> int:
    return sum(len(anchor) for pattern in dialect.templates for anchor in pattern.anchors)


def _with_instruction_apart(request: ChatRequest, dialects: Sequence[Dialect]) -> ChatRequest:
    text = (request.only("user") or ("",))[0]
    starts = {pattern.anchors[0].split("\n")[0] for dialect in dialects for pattern in dialect.templates}
    places = [text.find(f"\n{start}\n") for start in starts if start.strip()]
    place = min((place for place in places if place > 0), default=0)
    if not _VERDICT_WANTED.search(text[:place]):
        return request
    apart = (Message(role="system", text=text[:place].strip()), Message(role="user", text=text[place:].strip()))
    return replace(request, messages=apart)


def normalised(request: ChatRequest) -> ChatRequest:
    """Undo changes that editors and gateways make to prompts, such as CRLF line endings."""
    plain = _with_texts(request, lambda text: text.replace("\r\n", "\n").replace("\r", "\n").strip(_STRIPPED))
    return replace(plain, messages=tuple(message for message in plain.messages if message.text))


def _without_blank_ends(request: ChatRequest) -> ChatRequest:
    return _with_texts(request, lambda text: "\n".join(line.rstrip(" \t") for line in text.split("\n")))


def _with_texts(request: ChatRequest, change: Callable[[str], str]) -> ChatRequest:
    messages = tuple(replace(message, text=change(message.text)) for message in request.messages)
    return replace(request, messages=messages)


_VERDICT_WANTED = re.compile(
    r"\[\[(?:A|B|C|rating)\]\]|\bimpartial (?:judge|evaluator)\b"
    r"|\bwhich (?:of the |one of the )?(?:two )?(?:assistant|response|answer|output|repl|candidate)\w* (?:is|are) "
    r"(?:the )?(?:better|best|preferred)\b"
    r"|\b(?:rate|score|grade|evaluate|assess|judge|compare) (?:the|this|both|these|how well the) (?:\w+ ){0,3}"
    r"(?:responses?|answers?|outputs?|assistants?|submissions?|repl(?:y|ies)|completions?)\b",
    re.I,
)


_JUDGED_TEXT = re.compile(
    r"\b(?:assistant|response|answer|output|repl(?:y|ies)|submission|completion|candidate)\w*(?: (?:[ab12]|one|two))?"
    r"\s?[:\]>*]",
    re.I,
)


def wants_a_verdict(request: ChatRequest) -> bool:
    """Return True if a request asks for a judgment of labelled texts."""
    texts = [message.text[:_MAX_COMPARED] for message in request.messages]
    return any(map(_VERDICT_WANTED.search, texts)) and any(map(_JUDGED_TEXT.search, texts))


_MAX_COMPARED = 100_000
"""Compare at most this many characters per message, to limit the cost of hostile prompts."""

_LINE = 40
"""Compare at most this many characters per fixed line, so that a long line does not dominate the score."""

_SHOWN = 60
_MIN_PREFIX = 8
"""Shorter matches of a fixed text are treated as coincidences."""


class NearestPrompt(NamedTuple):
    """The known prompt most similar to an unknown one, and their first difference."""

    dialect: str
    difference: str

    def __str__(self) -> str:
        return f"the most similar known prompt is {self.dialect}: {self.difference}"


class _Comparison(NamedTuple):
    score: int
    dialect: Dialect
    template: Pattern
    message: int


def nearest_prompt(request: ChatRequest, dialects: Sequence[Dialect]) -> NearestPrompt | None:
    """Return the most similar known prompt, or None if no prompt shares most of its fixed text."""
    texts = [message.text[:_MAX_COMPARED] for message in request.messages]
    compared = [
        _Comparison(_score(template, texts[place]), dialect, template, place)
        for dialect in dialects
        for template in dialect.templates
        for place in dict.fromkeys((len(texts) - 1, 0) if texts else ())
    ]
    best = max(compared, key=lambda comparison: comparison.score, default=None)
    if best is None or best.score <= 0:
        return None
    where = "the message is too long to locate the difference"
    if len(request.messages[best.message].text) <= _MAX_COMPARED:
        where = _difference(best, texts[best.message], request)
    return NearestPrompt(best.dialect.name, where)


def _score(template: Pattern, text: str) -> int:
    score = begin = 0
    lines = [line[:_LINE] for anchor in template.anchors for line in anchor.split("\n") if line]
    for line in lines:
        position = text.find(line, begin)
        if position >= 0:
            score, begin = score + len(line), position + len(line)
        else:
            score -= len(line)
    return score


def _difference(best: _Comparison, text: str, request: ChatRequest) -> str:
    begin, name = 0, f"message {best.message + 1}"
    for index, anchor in enumerate(best.template.anchors):
        position = text.find(anchor, begin)
        if position < 0:
            return f"{name} {_mismatch(text, anchor, begin)}"
        if index or position == 0 or best.template.anywhere:
            begin = position + len(anchor)
        else:
            return f"{name} starts with {_quoted(text)} instead of {_quoted(anchor)}"
    last = best.template.anchors[-1]
    if not best.template.anywhere and not text.endswith(last):
        return f"{name} has {_quoted(text[text.rindex(last) + len(last) :])} after {_quoted(last[-_SHOWN:])}"
    roles = ", ".join(message.role[:20] for message in request.messages[:8])
    different = f"but the roles ({roles}) or the instructions are different, or a repeated slot has different texts"
    return f"{name} contains all fixed texts, {different}"


def _mismatch(text: str, anchor: str, begin: int) -> str:
    # length of the longest prefix of the anchor that occurs in the text
    length = bisect_left(range(1, len(anchor)), True, key=lambda size: text.find(anchor[:size], begin) < 0)
    position = text.find(anchor[:length], begin) + length
    if length < min(_MIN_PREFIX, len(anchor)):
        return f"has {_quoted(text[begin:])} after character {begin}, but not {_quoted(anchor)}"
    return f"has {_quoted(text[position:])} at character {position} instead of {_quoted(anchor[length:])}"


def _quoted(text: str) -> str:
    return repr(text if len(text) <= _SHOWN else f"{text[:_SHOWN]}...")
