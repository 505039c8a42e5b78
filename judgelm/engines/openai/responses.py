"""Parse responses from OpenAI-compatible servers.

llama.cpp returns log-probabilities in the chat format for /completions. llama-cpp-python does the opposite.
"""

import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from pydantic import BaseModel, Field, ValidationError

from judgelm.engines.openai.cost import BilledTokens
from judgelm.engines.openai.text_tree import TokenStep
from judgelm.jsonl import parse_json
from judgelm.records import TokenLogprobs, tokens_between

_STOPPED = {"stop", "eos", "eos_token", "stop_sequence", "stop_token", "end_turn", "complete", "completed", "finished"}
_CUT_OFF = {"length", "max_tokens", "max_output_tokens", "max_length", "token_limit"}
_MIN_LOGPROB = -9999.0
"""Sent by OpenAI for tokens that are not listed."""
_NO_REPLY = re.compile(
    "filter|error|abort|cancel|safety|recit|block|prohibit|tool|function|refus|insufficient", re.IGNORECASE
)


class BadReplyError(Exception):
    """Raised if a response does not conform to the API."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One reply.

    Attributes:
        finish_reason: `stop`, `length`, the reason for a missing reply, or None if unknown.
        thinking: reasoning that the server returns separately, if any.
    """

    text: str | None
    finish_reason: str | None
    refusal: str | None
    steps: tuple[TokenStep, ...] | None
    thinking: str = ""

    @property
    def says_nothing(self) -> bool:
        """True if the reply ended before any text was generated."""
        return self.finish_reason == "stop" and not (self.text or self.thinking or self.refusal or "").strip()

    @property
    def is_in_reasoning(self) -> bool:
        """True if the complete reply is in the reasoning field."""
        return not self.text and bool(self.thinking) and self.finish_reason == "stop"

    def token_logprobs(self, reply: str, wanted: int) -> tuple[TokenLogprobs, ...] | None:
        """Return the tokens of the reply with `wanted` alternatives each, or None if they are not available."""
        if not self.covers_reply:
            return None
        tokens = tuple(_token_logprobs(step, wanted) for step in self.steps or ())
        start = max(0, "".join(token.token for token in tokens).find(reply))
        return tokens_between(tokens, start, start + len(reply))

    @property
    def covers_reply(self) -> bool:
        """True if the log-probabilities belong to the reply, not the reasoning."""
        text, tokens = (self.text or "").lstrip(), "".join(step.token for step in self.steps or ()).lstrip()
        return bool(self.steps) and text[:1] in ("", tokens[:1])


class Replies(NamedTuple):
    """The replies to a request, and the billed tokens."""

    choices: tuple[Choice, ...]
    usage: BilledTokens


class _TopToken(BaseModel):
    token: str
    logprob: float


class _ChatToken(_TopToken):
    top_logprobs: list[_TopToken] | None = None


class _Logprobs(BaseModel):
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
    """An error reported in a response with status 200."""

    status: int
    message: str
    code: str


def reported_error(data: Any) -> ReportedError | None:
    """Return the reported error, if any. Gateways put the real status in `code`."""
    if not isinstance(data, dict):
        return None
    choices = data.get("choices")
    if isinstance(choices, list) and choices:
        error = next((each["error"] for each in choices if isinstance(each, dict) and each.get("error")), None)
    else:
        error = data.get("error") or (data if data.keys() & {"message", "msg", "detail"} else None)
    if error is None:
        return None
    fields = error if isinstance(error, dict) else data
    code, metadata = str(fields.get("code") or ""), fields.get("metadata")
    message = fields.get("message") or fields.get("msg")
    text = message if isinstance(message, str) else json.dumps(fields, ensure_ascii=False)
    if isinstance(metadata, dict) and metadata.get("raw"):
        text += f": {metadata['raw']}"
    status = int(code) if re.fullmatch("[45][0-9]{2}", code) else 500
    return ReportedError(status=status, message=f"{text} (sent with status 200)", code=code)


def read_json(body: str) -> Any:
    """Parse the response body."""
    try:
        return parse_json(body)
    except ValueError as error:
        raise BadReplyError(f"not valid JSON: {body!r}") from error


def read_usage(data: Any) -> BilledTokens | None:
    """Return the billed tokens, if reported."""
    try:
        stated = _Usage.model_validate(data.get("usage") if isinstance(data, dict) else None)
    except ValidationError:
        return None
    return BilledTokens(prompt_tokens=stated.prompt_tokens, completion_tokens=stated.completion_tokens)


def read_choices(data: Any) -> tuple[Choice, ...]:
    """Return the replies. Raises a BadReplyError if the body is invalid."""
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
    text, parts_thinking = _content(message.content)
    thinking = message.reasoning_content or message.reasoning or parts_thinking
    reason = _finish_reason(raw.finish_reason)
    if text is None and not (message.refusal or thinking) and reason in ("stop", None):
        raise BadReplyError("the reply is finished, but has no text")
    return Choice(
        text=text,
        finish_reason=reason,
        refusal=message.refusal or None,  # some servers send an empty refusal with every reply
        steps=None if raw.logprobs is None else _steps(raw.logprobs),
        thinking=thinking.strip(),
    )


def _finish_reason(stated: str | None) -> str | None:
    known = (stated or "").lower()
    if known in _STOPPED:
        return "stop"
    if known in _CUT_OFF:
        return "length"
    return stated if stated and _NO_REPLY.search(stated) else None


def _content(content: str | list[Any] | None) -> tuple[str | None, str]:
    """Mistral's reasoning models return a list of parts."""
    if not isinstance(content, list):
        return content, ""
    texts: dict[str, list[str]] = {"text": [], "thinking": []}
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in texts:
            raise BadReplyError(f"message.content.{index}: type {kind or type(part).__name__!r} is not supported")
        inner = part.get(kind)
        if isinstance(inner, list):
            inner = "".join(piece.get("text", "") for piece in inner if isinstance(piece, dict))
        if not isinstance(inner, str):
            raise BadReplyError(f"message.content.{index}: this part has no text")
        texts[kind].append(inner)
    text = "".join(texts["text"]) if texts["text"] or not texts["thinking"] else None
    return text, "\n\n".join(texts["thinking"])


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


def _token_logprobs(step: TokenStep, wanted: int) -> TokenLogprobs:
    tops = [(token, max(_MIN_LOGPROB, math.log(share) if share else -math.inf)) for token, share in step.tops]
    ranked = sorted(tops, key=lambda top: -top[1])
    logprob = dict(tops).get(step.token, _MIN_LOGPROB)
    return TokenLogprobs(token=step.token, logprob=logprob, candidates=tuple(ranked[:wanted]))


def _step(token: str, logprob: float | None, top: list[tuple[str, float]]) -> TokenStep:
    listed = top if logprob is None or any(piece == token for piece, _ in top) else [*top, (token, logprob)]
    if not all(value < 0.01 for _, value in listed):  # also rejects NaN
        raise BadReplyError(f"logprobs: {token!r} has invalid log-probabilities: {listed[:3]}")
    return TokenStep(token=token, tops=tuple((piece, math.exp(value)) for piece, value in listed))
