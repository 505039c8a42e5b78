"""What a server answered: checked here, once, and turned into records of our own.

Servers differ in small things (llama.cpp gives log-probabilities of the chat form on /completions, llama-cpp-python
the other way round), so each form is taken wherever it stands. What fits no form is `BadReplyError`, never a guess.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, TypeAdapter, ValidationError

from judgelm.engines.text_candidates import Step


class BadReplyError(Exception):
    """The reply is not what the API promises: HTML, torn JSON, no choices, wrong types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One reply.

    Attributes:
        text: None where the server gave none.
        finish_reason: the server's own word.
        refusal: what the model said instead of a reply.
        steps: the log-probabilities token by token; None where the server gave none.
    """

    text: str | None
    finish_reason: str
    refusal: str | None
    steps: tuple[Step, ...] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as billed."""

    prompt_tokens: int = 0
    completion_tokens: int = 0


class _TopToken(BaseModel):
    token: str
    logprob: float


class _ChatToken(_TopToken):
    top_logprobs: list[_TopToken] = []


class _Logprobs(BaseModel):
    """Either form; `content` is the chat API's."""

    content: list[_ChatToken] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None


class _Choice(BaseModel):
    text: str | None = None
    message: _Message | None = None
    finish_reason: str
    logprobs: _Logprobs | None = None


class _Body(BaseModel):
    choices: list[_Choice]


_USAGE = TypeAdapter(Usage)


def read_json(body: str) -> Any:
    """The body as JSON.

    Raises:
        BadReplyError: it is none.
    """
    try:
        return json.loads(body)
    except ValueError as error:
        raise BadReplyError(f"not JSON but {body[:60]!r}") from error


def read_usage(data: Any) -> Usage:
    """The billed tokens, also of a reply that is of no use otherwise; none where none are stated."""
    try:
        return _USAGE.validate_python(data.get("usage") if isinstance(data, dict) else {})
    except ValidationError:
        return Usage()


def read_choices(data: Any) -> tuple[Choice, ...]:
    """The replies.

    Raises:
        BadReplyError: not what the API promises, and in what.
    """
    try:
        body = _Body.model_validate(data)
    except ValidationError as error:
        first: Mapping[str, Any] = error.errors()[0]
        place = ".".join(str(part) for part in first["loc"]) or "body"
        raise BadReplyError(f"{place}: {first['msg']}") from error
    if not body.choices:
        raise BadReplyError("choices is empty")
    return tuple(_choice(one) for one in body.choices)


def _choice(given: _Choice) -> Choice:
    message = given.message or _Message(content=given.text)
    if message.content is None and message.refusal is None and given.finish_reason == "stop":
        raise BadReplyError("a finished reply without a text")
    return Choice(
        text=message.content,
        finish_reason=given.finish_reason,
        refusal=message.refusal,
        steps=None if given.logprobs is None else _steps(given.logprobs),
    )


def _steps(given: _Logprobs) -> tuple[Step, ...] | None:
    if given.content is not None:
        tops = [[(one.token, one.logprob) for one in token.top_logprobs] for token in given.content]
        chosen: list[tuple[str, float | None]] = [(token.token, token.logprob) for token in given.content]
    elif given.tokens is not None:
        tops = [list((top or {}).items()) for top in given.top_logprobs or ()]
        chosen = list(zip(given.tokens, given.token_logprobs or (), strict=False))
        if not len(tops) == len(chosen) == len(given.tokens):
            raise BadReplyError(f"logprobs: {len(given.tokens)} tokens, but {len(tops)} top_logprobs")
    else:
        return None
    return tuple(_step(token, logprob, top) for (token, logprob), top in zip(chosen, tops, strict=True))


def _step(token: str, logprob: float | None, top: list[tuple[str, float]]) -> Step:
    """One place; some servers do not list the token itself among the likeliest."""
    listed = top if logprob is None or any(piece == token for piece, _ in top) else [*top, (token, logprob)]
    if not all(one < 0.01 for _, one in listed):  # a NaN is not either
        raise BadReplyError(f"logprobs: {token!r} has no log-probabilities but {listed[:3]}")
    return Step(token=token, tops=tuple((piece, math.exp(one)) for piece, one in listed))
