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

from judgelm.engines.candidates import TokenStep
from judgelm.engines.openai.options import Usage
from judgelm.jsonl import parse_json

_DURATION = re.compile(r"(\d++(?:\.\d++)?)(ms|s|m|h)?")
_DURATIONS = re.compile(rf"(?:{_DURATION.pattern})+")
_STOPPED = {"stop", "eos", "eos_token", "stop_sequence", "stop_token", "end_turn", "complete", "completed", "finished"}
_CUT_OFF = {"length", "max_tokens", "max_output_tokens", "max_length", "token_limit"}
_NO_REPLY = re.compile(
    "filter|error|abort|cancel|safety|recit|block|prohibit|tool|function|refus|insufficient", re.IGNORECASE
)
_CODES = {
    "rate_limit_exceeded": 429,
    "rate_limit_error": 429,
    "insufficient_quota": 402,
    "insufficient_credits": 402,
    "payment_required": 402,
    "invalid_api_key": 401,
    "authentication_error": 401,
    "permission_error": 403,
    "model_not_found": 404,
    "context_length_exceeded": 400,
}
"""Errors that a gateway names without a status, by their code or type."""
_UNIT_S = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0, "": 1.0}


class BadReplyError(Exception):
    """The reply is not what the API promises: HTML, incomplete JSON, no choices, wrong types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One reply.

    Attributes:
        text: None where the server gave none.
        thinking: the separate reasoning of the model; empty where there is none.
        finish_reason: `stop`, `length`, another that the server states, or None where it states none that is known.
        refusal: the model's refusal instead of a reply.
        steps: the log-probabilities token by token; None where the server gave none.
    """

    text: str | None
    finish_reason: str | None
    refusal: str | None
    steps: tuple[TokenStep, ...] | None
    thinking: str = ""


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
    content: str | list[Any] | None = None
    refusal: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None


class _Choice(BaseModel):
    text: str | None = None
    message: _Message | None = None
    finish_reason: str | None = None
    logprobs: _Logprobs | None = None


class _Body(BaseModel):
    choices: list[_Choice]


class _Usage(BaseModel):
    prompt_tokens: int = Field(ge=0)
    completion_tokens: int = Field(default=0, ge=0)


class ReportedError(NamedTuple):
    """An error in a body with status 200, as gateways send it: the status that it means, message and code."""

    status: int
    message: str
    code: str


def reported_error(data: Any) -> ReportedError | None:
    """The error that a body reports instead of replies, or a choice instead of its text; None where there is none."""
    if not isinstance(data, dict):
        return None
    choices = data.get("choices")
    if choices:
        errors = (
            [choice.get("error") for choice in choices if isinstance(choice, dict)] if isinstance(choices, list) else []
        )
        error = next(filter(None, errors), None)
    else:
        error = data.get("error") or (data if data.keys() & {"message", "msg", "detail", "errors"} else None)
    if error is None:
        return None
    fields = error if isinstance(error, dict) else data
    codes = [fields.get(name) for name in ("status", "status_code", "code", "type")]
    return ReportedError(
        status=next((status for code in codes if (status := _status(code)) is not None), 500),
        message=f"{_error_text(error, data)} (sent with status 200)",
        code=next((code for code in codes[2:] if isinstance(code, str)), ""),
    )


def _status(code: Any) -> int | None:
    """The HTTP status that a code means; None for other codes, such as a gateway's own 5-digit ones."""
    if isinstance(code, str):
        code = _CODES.get(code.lower(), code)
    if isinstance(code, bool) or not isinstance(code, int | str) or re.fullmatch("[45][0-9]{2}", str(code)) is None:
        return None
    return int(code)


def _error_text(error: Any, data: dict[str, Any]) -> str:
    """The message, and the upstream's own words where the gateway adds them."""
    if not isinstance(error, dict):
        return json.dumps({name: value for name, value in data.items() if value is not None}, ensure_ascii=False)
    message = error.get("message") or error.get("msg") or error.get("detail") or error
    metadata = error.get("metadata")
    raw = metadata.get("raw") if isinstance(metadata, dict) else None
    text = message if isinstance(message, str) else json.dumps(message, ensure_ascii=False)
    return f"{text}: {raw if isinstance(raw, str) else json.dumps(raw, ensure_ascii=False)}" if raw else text


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
    text, parts_thinking, parts_refusal = _content(message.content)
    thinking = message.reasoning_content or message.reasoning or parts_thinking
    refusal = message.refusal or parts_refusal
    reason = _finish_reason(raw.finish_reason)
    if text is None and not (refusal or thinking) and reason in ("stop", None):
        raise BadReplyError("a finished reply without a text")
    return Choice(
        text=text,
        finish_reason=reason,
        refusal=refusal or None,  # some servers write an empty one into every reply
        steps=None if raw.logprobs is None else _steps(raw.logprobs),
        thinking=thinking.strip(),
    )


def _finish_reason(stated: str | None) -> str | None:
    """`stop`, `length`, one that means that there is no reply, or None where it is missing or unknown."""
    known = (stated or "").lower()
    if known in _STOPPED:
        return "stop"
    if known in _CUT_OFF:
        return "length"
    return stated if stated and _NO_REPLY.search(stated) else None


def _content(content: str | list[Any] | None) -> tuple[str | None, str, str]:
    """Text, thinking and refusal of a message's content, which may be a list of parts."""
    if not isinstance(content, list):
        return content, "", ""
    texts: dict[str, list[str]] = {"text": [], "thinking": [], "refusal": []}
    for index, part in enumerate(content):
        kind = "text" if isinstance(part, str) else str(part.get("type")) if isinstance(part, dict) else ""
        kind = {"output_text": "text", "reasoning": "thinking", "reasoning_text": "thinking"}.get(kind, kind)
        if kind == "redacted_thinking":
            continue
        if kind not in texts:
            raise BadReplyError(f"message.content.{index}: a part of type {kind or type(part).__name__!r}, not a text")
        texts[kind].append(part if isinstance(part, str) else _part_text(part, index))
    text = "".join(texts["text"]) if texts["text"] or not texts["thinking"] else None
    return text, "\n\n".join(texts["thinking"]), "".join(texts["refusal"])


def _part_text(part: dict[str, Any], index: int) -> str:
    """The text of a part, which may be in parts again."""
    inner = next((part[name] for name in ("text", "thinking", "reasoning", "refusal", "summary") if name in part), None)
    if isinstance(inner, list):
        inner = "".join(piece.get("text", "") if isinstance(piece, dict) else str(piece) for piece in inner)
    if not isinstance(inner, str):
        raise BadReplyError(f"message.content.{index}: a part without a text")
    return inner


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
