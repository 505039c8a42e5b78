"""What a server answered: checked here, once, and turned into records of our own.

Servers differ in small things (llama.cpp gives log-probabilities of the chat form on /completions, llama-cpp-python
the other way round), so each form is taken wherever it stands. What fits no form is `BadReplyError`, never a guess.
"""

import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz
from typing import Any

import openai
from pydantic import BaseModel, Field, ValidationError

from judgelm.engines.text_candidates import TokenStep
from judgelm.jsonl import parse_json

_DURATION = re.compile(r"(\d++(?:\.\d++)?)(ms|s|m|h)?")
_DURATIONS = re.compile(rf"(?:{_DURATION.pattern})+")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


class BadReplyError(Exception):
    """The reply is not what the API promises: HTML, torn JSON, no choices, wrong types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One reply.

    Attributes:
        text: None where the server gave none.
        thinking: what it gives apart as the model's reasoning; empty where it gives none.
        finish_reason: the server's own word.
        refusal: what the model said instead of a reply.
        steps: the log-probabilities token by token; None where the server gave none.
    """

    text: str | None
    finish_reason: str
    refusal: str | None
    steps: tuple[TokenStep, ...] | None
    thinking: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Tokens as billed."""

    prompt_tokens: int = 0
    completion_tokens: int = 0

    def __add__(self, other: "Usage") -> "Usage":
        return Usage(
            prompt_tokens=self.prompt_tokens + other.prompt_tokens,
            completion_tokens=self.completion_tokens + other.completion_tokens,
        )

    def __sub__(self, other: "Usage") -> "Usage":
        return Usage(
            prompt_tokens=self.prompt_tokens - other.prompt_tokens,
            completion_tokens=self.completion_tokens - other.completion_tokens,
        )


class _TopToken(BaseModel):
    token: str
    logprob: float


class _ChatToken(_TopToken):
    top_logprobs: list[_TopToken] | None = None


class _Logprobs(BaseModel):
    """Either form; `content` is the chat API's."""

    content: list[_ChatToken] | None = None
    tokens: list[str] | None = None
    token_logprobs: list[float | None] | None = None
    top_logprobs: list[dict[str, float] | None] | None = None


class _Message(BaseModel):
    content: str | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(BaseModel):
    text: str | None = None
    message: _Message | None = None
    finish_reason: str
    logprobs: _Logprobs | None = None


class _Body(BaseModel):
    choices: list[_Choice]


class _Usage(BaseModel):
    prompt_tokens: int = Field(ge=0)
    completion_tokens: int = Field(default=0, ge=0)


def read_json(body: str) -> Any:
    """The body as JSON.

    Raises:
        BadReplyError: it is none.
    """
    try:
        return parse_json(body)
    except ValueError as error:
        raise BadReplyError(f"not JSON but {body!r}") from error


def read_usage(data: Any) -> Usage | None:
    """The billed tokens, also of a reply that is of no use otherwise; None where they are not stated."""
    try:
        stated = _Usage.model_validate(data.get("usage") if isinstance(data, dict) else None)
    except ValidationError:
        return None
    return Usage(prompt_tokens=stated.prompt_tokens, completion_tokens=stated.completion_tokens)


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
    thinking = message.reasoning_content or message.reasoning or ""
    if message.content is None and not (message.refusal or thinking) and given.finish_reason == "stop":
        raise BadReplyError("a finished reply without a text")
    return Choice(
        text=message.content,
        finish_reason=given.finish_reason,
        refusal=message.refusal or None,  # some servers write an empty one into every reply
        steps=None if given.logprobs is None else _steps(given.logprobs),
        thinking=thinking.strip(),
    )


def _steps(given: _Logprobs) -> tuple[TokenStep, ...] | None:
    if given.content is not None:
        tops = [[(one.token, one.logprob) for one in token.top_logprobs or ()] for token in given.content]
        chosen: list[tuple[str, float | None]] = [(token.token, token.logprob) for token in given.content]
    elif given.tokens is not None:
        unlisted: list[dict[str, float] | None] = [None] * len(given.tokens)
        listed = unlisted if given.top_logprobs is None else given.top_logprobs
        tops = [list((top or {}).items()) for top in listed]
        chosen = list(zip(given.tokens, given.token_logprobs or (), strict=False))
        if not len(tops) == len(chosen) == len(given.tokens):
            raise BadReplyError(f"logprobs: {len(given.tokens)} tokens, but {len(tops)} top_logprobs")
    else:
        return None
    return tuple(_step(token, logprob, top) for (token, logprob), top in zip(chosen, tops, strict=True))


def _step(token: str, logprob: float | None, top: list[tuple[str, float]]) -> TokenStep:
    """One place; some servers do not list the token itself among the likeliest."""
    listed = top if logprob is None or any(piece == token for piece, _ in top) else [*top, (token, logprob)]
    if not all(one < 0.01 for _, one in listed):  # a NaN is not either
        raise BadReplyError(f"logprobs: {token!r} has no log-probabilities but {listed[:3]}")
    return TokenStep(token=token, tops=tuple((piece, math.exp(one)) for piece, one in listed))


def words_of(error: openai.APIStatusError) -> str:
    """The server's own words: the message of an OpenAI, FastAPI or plain body."""
    body: Any = error.body
    if isinstance(body, dict):
        found = body.get("message") or body.get("detail") or body.get("error") or body
        return found if isinstance(found, str) else json.dumps(found)
    return str(body or error.response.text or error.message)


def pause_of(headers: Mapping[str, str]) -> float | None:
    """Seconds that the server asks to be left alone for."""
    if (milliseconds := headers.get("retry-after-ms")) is not None:
        return _seconds(f"{milliseconds}ms")
    stated = (_seconds(headers.get(name)) for name in ("retry-after", "x-ratelimit-reset-requests"))
    return next((seconds for seconds in stated if seconds is not None), None)


def _seconds(text: str | None) -> float | None:
    """`2`, `1.5s`, `6m0s`, `20ms` or an HTTP date; None for anything else."""
    if not text:
        return None
    if _DURATIONS.fullmatch(text.strip()):
        return sum(float(number) * _UNIT_S[unit] for number, unit in _DURATION.findall(text))
    try:
        date = parsedate_tz(text)
        return None if date is None else max(0.0, mktime_tz(date) - time.time())
    except (ValueError, OverflowError):  # a year 99999
        return None
