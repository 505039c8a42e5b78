"""Checks a server's response once, and turns it into this package's records.

Servers differ in details (llama.cpp gives log-probabilities of the chat form on /completions, llama-cpp-python the
other way round), so each form is read wherever it stands. Another form of response is a `BadReplyError`, not a guess.
"""

import json
import math
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.utils import mktime_tz, parsedate_tz
from typing import Any, NamedTuple

import openai
from pydantic import BaseModel, Field, ValidationError

from judgelm.engines.text_candidates import TokenStep
from judgelm.jsonl import parse_json

_DURATION = re.compile(r"(\d++(?:\.\d++)?)(ms|s|m|h)?")
_DURATIONS = re.compile(rf"(?:{_DURATION.pattern})+")
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


class BadReplyError(Exception):
    """The reply is not what the API promises: HTML, incomplete JSON, no choices, wrong types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One reply.

    Attributes:
        text: None where the server gave none.
        thinking: the separate reasoning of the model; empty where there is none.
        finish_reason: as the server states it.
        refusal: the model's refusal instead of a reply.
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


class Answer(NamedTuple):
    """The replies to one request, and the tokens billed for them."""

    choices: tuple[Choice, ...]
    usage: Usage


class _TopToken(BaseModel):
    token: str
    logprob: float


class _ChatToken(_TopToken):
    top_logprobs: list[_TopToken] | None = None


class _Logprobs(BaseModel):
    """Either form; `content` belongs to the chat API."""

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
        BadReplyError: it is not JSON.
    """
    try:
        return parse_json(body)
    except ValueError as error:
        raise BadReplyError(f"not JSON but {body!r}") from error


def read_usage(data: Any) -> Usage | None:
    """The billed tokens, also of a reply that is unusable otherwise; None where they are not stated."""
    try:
        stated = _Usage.model_validate(data.get("usage") if isinstance(data, dict) else None)
    except ValidationError:
        return None
    return Usage(prompt_tokens=stated.prompt_tokens, completion_tokens=stated.completion_tokens)


def read_choices(data: Any) -> tuple[Choice, ...]:
    """The replies.

    Raises:
        BadReplyError: the body is not what the API promises; the message names the field.
    """
    try:
        body = _Body.model_validate(data)
    except ValidationError as error:
        first: Mapping[str, Any] = error.errors()[0]
        field = ".".join(str(part) for part in first["loc"]) or "body"
        raise BadReplyError(f"{field}: {first['msg']}") from error
    if not body.choices:
        raise BadReplyError("choices is empty")
    return tuple(_choice(choice) for choice in body.choices)


def _choice(raw: _Choice) -> Choice:
    message = raw.message or _Message(content=raw.text)
    thinking = message.reasoning_content or message.reasoning or ""
    if message.content is None and not (message.refusal or thinking) and raw.finish_reason == "stop":
        raise BadReplyError("a finished reply without a text")
    return Choice(
        text=message.content,
        finish_reason=raw.finish_reason,
        refusal=message.refusal or None,  # some servers write an empty one into every reply
        steps=None if raw.logprobs is None else _steps(raw.logprobs),
        thinking=thinking.strip(),
    )


def _steps(raw: _Logprobs) -> tuple[TokenStep, ...] | None:
    if raw.content is not None:
        tops = [[(top.token, top.logprob) for top in token.top_logprobs or ()] for token in raw.content]
        chosen: list[tuple[str, float | None]] = [(token.token, token.logprob) for token in raw.content]
    elif raw.tokens is not None:
        unlisted: list[dict[str, float] | None] = [None] * len(raw.tokens)
        listed = unlisted if raw.top_logprobs is None else raw.top_logprobs
        tops = [list((top or {}).items()) for top in listed]
        chosen = list(zip(raw.tokens, raw.token_logprobs or (), strict=False))
        if not len(tops) == len(chosen) == len(raw.tokens):
            raise BadReplyError(f"logprobs: {len(raw.tokens)} tokens, but {len(tops)} top_logprobs")
    else:
        return None
    return tuple(_step(token, logprob, top) for (token, logprob), top in zip(chosen, tops, strict=True))


def _step(token: str, logprob: float | None, top: list[tuple[str, float]]) -> TokenStep:
    """One position; some servers do not list the chosen token among the most probable ones."""
    listed = top if logprob is None or any(piece == token for piece, _ in top) else [*top, (token, logprob)]
    if not all(value < 0.01 for _, value in listed):  # also refuses a NaN
        raise BadReplyError(f"logprobs: {token!r} has invalid log-probabilities: {listed[:3]}")
    return TokenStep(token=token, tops=tuple((piece, math.exp(value)) for piece, value in listed))


def error_message(error: openai.APIStatusError) -> str:
    """The server's message, from an OpenAI, FastAPI or plain body."""
    body: Any = error.body
    if isinstance(body, dict):
        message = body.get("message") or body.get("detail") or body.get("error") or body
        return message if isinstance(message, str) else json.dumps(message)
    return str(body or error.response.text or error.message)


def retry_after_s(headers: Mapping[str, str]) -> float | None:
    """Seconds after which the server asks for the next request."""
    if (milliseconds := headers.get("retry-after-ms")) is not None:
        return _seconds(f"{milliseconds}ms")
    stated = (_seconds(headers.get(name)) for name in ("retry-after", "x-ratelimit-reset-requests"))
    return next((seconds for seconds in stated if seconds is not None), None)


def _seconds(text: str | None) -> float | None:
    """`2`, `1.5s`, `6m0s`, `20ms` or an HTTP date; None for anything else."""
    if not text:
        return None
    if _DURATIONS.fullmatch(text.strip()):
        return sum(float(value) * _UNIT_S[unit] for value, unit in _DURATION.findall(text))
    try:
        date = parsedate_tz(text)
        return None if date is None else max(0.0, mktime_tz(date) - time.time())
    except (ValueError, OverflowError):  # a year 99999
        return None
