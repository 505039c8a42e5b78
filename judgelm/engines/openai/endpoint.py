"""Sends requests to one endpoint, with retries, and checks its responses once.

A rate limit is not a failure: the request waits as long as other requests get through, and the pause is announced. A
pause that outlasts the patience ends the run. Other transient errors (a connection error, a timeout, a 5xx, a malformed
reply) are retried a limited number of times.

Servers differ in details (llama.cpp gives log-probabilities of the chat form on /completions, llama-cpp-python the
other way round), so each form is read wherever it is. Another form of response is a `BadReplyError`, not a guess.
"""

import asyncio
import json
import logging
import math
import random
import re
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit
from urllib.request import getproxies

import openai
from pydantic import BaseModel, Field, ValidationError

from judgelm.engines.candidates import TokenStep
from judgelm.engines.openai.options import AdaptiveLimiter, Api, BilledTokens, CostEntry, CostTracker, EndpointOptions
from judgelm.engines.openai.pauses import shown_duration, shown_time, stated_pause_s
from judgelm.engines.openai.requests import RefusedError, unsupported_param, without_unsupported
from judgelm.errors import ConfigError, EngineError
from judgelm.jsonl import parse_json

_LOG = logging.getLogger("judgelm.openai")
_ANNOUNCED_S = 60.0
"""Once a pause is announced, further ones that end within this time are not."""
_STOPPED = {"stop", "eos", "eos_token", "stop_sequence", "stop_token", "end_turn", "complete", "completed", "finished"}
_CUT_OFF = {"length", "max_tokens", "max_output_tokens", "max_length", "token_limit"}
_NO_REPLY = re.compile(
    "filter|error|abort|cancel|safety|recit|block|prohibit|tool|function|refus|insufficient", re.IGNORECASE
)
ErrorKind = Literal["rate_limited", "timeout", "connection", "server_error", "bad_format"]
MAX_BACKOFF_S = 60.0
_RETRYABLE = (408, 409, 425)
_GATEWAY_ERRORS = (408, 502, 504, 524)
_NEVER_CONNECTED = ("ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError")  # of httpx or its successor
_NO_KEY = "none-needed"
_MAX_MESSAGE = 400


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

    @property
    def says_nothing(self) -> bool:
        """True if it stopped before it said anything."""
        return self.finish_reason == "stop" and not (self.text or self.thinking or self.refusal or "").strip()

    @property
    def is_in_reasoning(self) -> bool:
        """True if the reply is complete and all of it is in the field for reasoning."""
        return not self.text and bool(self.thinking) and self.finish_reason == "stop"

    @property
    def covers_reply(self) -> bool:
        """True if there are log-probabilities of the reply itself: some servers list those of the reasoning first."""
        text, tokens = (self.text or "").lstrip(), "".join(step.token for step in self.steps or ()).lstrip()
        return bool(self.steps) and text[:1] in ("", tokens[:1])


class Replies(NamedTuple):
    """The replies to one request, and the tokens billed for them."""

    choices: tuple[Choice, ...]
    usage: BilledTokens


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
    """The error that a body reports instead of replies, or a choice instead of its text; None where there is none.

    Gateways name the status in the error's `code`; other codes, such as their own of 5 digits, are those of a server
    error. The upstream's message is in `metadata`.
    """
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
    """The body as JSON.

    Raises:
        BadReplyError: it is not JSON.
    """
    try:
        return parse_json(body)
    except ValueError as error:
        raise BadReplyError(f"not JSON but {body!r}") from error


def read_usage(data: Any) -> BilledTokens | None:
    """The billed tokens, also of a reply that is unusable otherwise; None where they are not stated."""
    try:
        stated = _Usage.model_validate(data.get("usage") if isinstance(data, dict) else None)
    except ValidationError:
        return None
    return BilledTokens(prompt_tokens=stated.prompt_tokens, completion_tokens=stated.completion_tokens)


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
    text, parts_thinking = _content(message.content)
    thinking = message.reasoning_content or message.reasoning or parts_thinking
    reason = _finish_reason(raw.finish_reason)
    if text is None and not (message.refusal or thinking) and reason in ("stop", None):
        raise BadReplyError("a finished reply without a text")
    return Choice(
        text=text,
        finish_reason=reason,
        refusal=message.refusal or None,  # some servers write an empty one into every reply
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


def _content(content: str | list[Any] | None) -> tuple[str | None, str]:
    """Text and thinking of a message's content, which may be a list of parts, as of Mistral's reasoning models."""
    if not isinstance(content, list):
        return content, ""
    texts: dict[str, list[str]] = {"text": [], "thinking": []}
    for index, part in enumerate(content):
        kind = part.get("type") if isinstance(part, dict) else None
        if kind not in texts:
            raise BadReplyError(f"message.content.{index}: a part of type {kind or type(part).__name__!r}, not a text")
        inner = part.get(kind)
        if isinstance(inner, list):
            inner = "".join(piece.get("text", "") for piece in inner if isinstance(piece, dict))
        if not isinstance(inner, str):
            raise BadReplyError(f"message.content.{index}: a part without a text")
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


class PatienceError(EngineError):
    """The rate limit of a server lasts longer than the user wants to wait."""


class RetriesExhaustedError(Exception):
    """All retries of one request failed, while other requests were answered."""


@dataclass(eq=False)
class TransientError(Exception):
    """An error that a retry may fix.

    Attributes:
        pause_s: the pause that the server asked for.
        unbilled: whether the server certainly did not answer, so that it cannot bill anything.
    """

    kind: ErrorKind
    message: str
    pause_s: float | None = None
    unbilled: bool = False


class Endpoint:
    """Sends requests to one server. Lives in one event loop.

    Args:
        options: address, timeouts, retries and prices.
        max_concurrency: maximum requests in flight.
        cost: counts the tokens of several servers together; None makes one for this server.

    Attributes:
        unsupported_params: parameters that the server does not support.
        requests: requests sent, retries included.
        retries: retries by kind of error.
    """

    def __init__(self, options: EndpointOptions, max_concurrency: int, cost: CostTracker | None = None) -> None:
        self._options = options
        self._client = _client(options)
        self.limiter = AdaptiveLimiter(max_concurrency)
        self.unsupported_params: frozenset[str] = frozenset()
        self.requests = 0
        self.retries: Counter[ErrorKind] = Counter()
        self.cost = cost or CostTracker(options)
        self._answered_at = self._announced_until = 0.0

    async def models(self) -> Any:
        """The response of `GET /models`, without retries.

        Raises:
            TransientError: no usable response.
            RefusedError: the server refuses the request.
        """
        return read_json(await self._send(self._client.models, "list"))

    @property
    def address(self) -> str:
        """The address without secrets, for messages."""
        return self._options.address

    async def complete(self, api: Api, body: dict[str, Any], *, retries: int | None = None) -> Replies:
        """The replies to one request, and the tokens billed for them.

        Args:
            api: the API to use.
            body: the request's body.
            retries: maximum retries after a failure; None takes the options'.

        Raises:
            RefusedError: the server refuses the request.
            RetriesExhaustedError: it failed too often, while others were answered.
            OverBudgetError: it may cost more than is left.
            EngineError: the endpoint does not answer at all.
        """
        max_failures = self._options.retries if retries is None else retries
        began, tries, failures = time.monotonic(), 0, 0
        unsupported = self.unsupported_params
        while True:
            supported_body = without_unsupported(body, unsupported)
            tries += 1
            try:
                answer = await self._try(api, supported_body)
            except RefusedError as refused:
                self._answered_at = time.monotonic()
                param = unsupported_param(refused, supported_body)
                if param is None or param in unsupported:
                    raise
                unsupported |= {param}
            except TransientError as error:
                failures += error.kind != "rate_limited"
                doubled = self._options.backoff_s * 2 ** min(tries - 1, 10)
                backoff_s = min(doubled, MAX_BACKOFF_S) * random.uniform(0.5, 1.5)
                if error.kind == "rate_limited":
                    self._announce(error, backoff_s, silent_s=time.monotonic() - max(self._answered_at, began))
                elif failures > max_failures:
                    message = f"{error.message}, {tries} tries in {time.monotonic() - began:.0f} s"
                    if self._answered_at > began:
                        raise RetriesExhaustedError(message) from error
                    raise EngineError(
                        f"{self._options.address} does not answer: {message}; run the same command again once it is "
                        "back"
                    ) from error
                self.retries[error.kind] += 1
                # the limiter holds back all requests for as long as the server asked
                await asyncio.sleep(backoff_s if error.pause_s is None else backoff_s / 10)
            else:
                self.unsupported_params |= unsupported
                self._answered_at = time.monotonic()
                self.limiter.succeeded()
                return answer

    def _announce(self, limit: TransientError, backoff_s: float, *, silent_s: float) -> None:
        """Say how long a rate limit pauses the requests.

        Args:
            limit: the server's refusal.
            backoff_s: the pause where the server names none.
            silent_s: how long the server has answered nothing.

        Raises:
            PatienceError: the pause outlasts the patience.
        """
        pause_s = backoff_s if limit.pause_s is None else limit.pause_s
        words = f"{self._options.address}: {limit.message.rstrip('.')}"
        if silent_s + pause_s > self._options.patience_s:
            asked = "" if limit.pause_s is None else f" asks for a pause of {shown_duration(pause_s)}"
            silent = f" has answered nothing for {shown_duration(silent_s)}" if silent_s >= 1 or not asked else ""
            raise PatienceError(
                f"{words}; the server{' and'.join(filter(None, (silent, asked)))}, longer than "
                f"patience_s={self._options.patience_s:g}; run the same command again after {shown_time(pause_s)} to "
                "continue, or wait longer with --engine-arg patience_s=SECONDS"
            ) from limit
        now = time.monotonic()
        if now + pause_s > self._announced_until:
            self._announced_until = now + max(pause_s, _ANNOUNCED_S)
            why = "the server names no pause" if limit.pause_s is None else "as the server asks"
            _LOG.warning("%s; waiting %s (%s)", words, shown_duration(pause_s), why)

    async def close(self) -> None:
        """Drop the connections."""
        await self._client.close()

    def redact(self, error: str) -> str:
        """An error's text in one line, without the secrets that the server may have repeated."""
        text = " ".join(error.split())
        for secret in self._options.secrets:  # before the text is cut, which might leave the half of one
            text = text.replace(secret, "...")
        return text[:_MAX_MESSAGE]

    async def _try(self, api: Api, body: dict[str, Any]) -> Replies:
        async with self.limiter as sent_at, self.cost.track(body) as entry:
            try:
                return await self._request(api, body, entry)
            except BadReplyError as error:
                message = self.redact(f"the reply is not what the API promises ({error})")
                raise TransientError("bad_format", message) from None  # its text may repeat the key
            except RefusedError:
                entry.unbilled = True
                raise
            except TransientError as error:
                entry.unbilled = error.unbilled
                if error.kind in ("rate_limited", "timeout"):  # an overloaded server with a queue is only late
                    long = error.pause_s is not None and error.pause_s > self._options.patience_s
                    self.limiter.overloaded(sent_at, None if long else error.pause_s)
                raise

    async def _request(self, api: Api, body: dict[str, Any], entry: CostEntry) -> Replies:
        resource = self._client.completions if api == "completions" else self._client.chat.completions
        content = "prompt" if api == "completions" else "messages"
        arguments = {"model": body["model"], content: body[content]}
        extra = {name: value for name, value in body.items() if name not in arguments}
        data = read_json(await self._send(resource, "create", **arguments, extra_body=extra))
        if (reported := reported_error(data)) is not None:
            pause_s = stated_pause_s({}, json.dumps(data), limited=reported.status == 429)
            raise self._classify(reported.status, reported.message, code=reported.code, pause_s=pause_s)
        entry.usage = read_usage(data)
        return Replies(read_choices(data), entry.usage or BilledTokens())

    async def _send(self, resource: Any, method: str, **arguments: Any) -> str:
        """Send one request; returns the body of a reply with status 200.

        Raises:
            TransientError: a retry may help.
            RefusedError: a retry would not help.
        """
        self.requests += 1
        try:
            async with asyncio.timeout(self._options.timeout_s):  # the client's own timeout is between two bytes
                response = await getattr(resource.with_raw_response, method)(**arguments)
            text: str = response.text
            return text
        except (TimeoutError, openai.APIConnectionError) as error:
            cause = error.__cause__ or error
            unsent = type(cause).__name__ in _NEVER_CONNECTED
            if isinstance(error, TimeoutError | openai.APITimeoutError):
                message = f"no reply within {self._options.timeout_s:g} s"
                raise TransientError("timeout", message, unbilled=unsent) from error
            message = self.redact(str(cause) or type(cause).__name__)
            raise TransientError("connection", message, unbilled=unsent) from error
        except openai.APIStatusError as error:
            limited = error.status_code == 429
            pause_s = stated_pause_s(error.response.headers, error.response.text, limited=limited)
            details = {"code": str(error.code or ""), "param": str(error.param or "")}
            # its text may repeat the key
            raise self._classify(error.status_code, error_message(error), pause_s=pause_s, **details) from None

    def _classify(
        self, status: int, message: str, *, code: str = "", param: str = "", pause_s: float | None = None
    ) -> TransientError | RefusedError:
        """The error by whether a retry may help."""
        message = self.redact(message)
        refused = RefusedError(status, message, code, param)
        if refused.fatal or refused.exceeds_rate_limit or refused.refuses_system_message:
            return refused
        if status == 429 or status >= 500 or status in _RETRYABLE:
            kind: ErrorKind = "rate_limited" if status == 429 or pause_s is not None else "server_error"
            unbilled = status not in _GATEWAY_ERRORS
            return TransientError(kind, f"HTTP {status}: {message}", pause_s, unbilled=unbilled)
        return refused


def _client(options: EndpointOptions) -> openai.AsyncOpenAI:
    """The client; a user and password go into a header, since the client's log shows addresses.

    Raises:
        ConfigError: a proxy in the environment cannot be used.
    """
    way_out = "fix or unset HTTP_PROXY, HTTPS_PROXY and ALL_PROXY"
    try:
        for name, proxy in getproxies().items():
            if name != "no":
                _ = urlsplit(proxy).port  # a ValueError unless it is a number
        return openai.AsyncOpenAI(
            base_url=options.address,
            api_key=options.key or _NO_KEY,
            default_headers=options.auth_header,
            timeout=options.timeout_s,
            max_retries=0,
        )
    except ValueError:  # its text may hold the proxy's password
        raise ConfigError(f"a proxy in the environment is not an http(s):// or socks5:// address; {way_out}") from None
    except ImportError as error:
        raise ConfigError(f"a proxy in the environment cannot be used: {error}; {way_out}") from error
