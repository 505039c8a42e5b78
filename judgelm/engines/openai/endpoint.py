"""Send requests to one endpoint, with retries.

Rate limits do not count as failures. Requests wait up to `patience_s` for a rate limit to clear.
"""

import asyncio
import json
import logging
import random
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any, Literal

import openai

from judgelm.engines.openai.cost import BilledTokens, CostEntry, CostTracker
from judgelm.engines.openai.options import Api, EndpointOptions
from judgelm.engines.openai.rate_limits import AdaptiveLimiter, shown_duration, shown_time, stated_pause_s
from judgelm.engines.openai.requests import RefusedError, unsupported_param, without_unsupported
from judgelm.engines.openai.responses import BadReplyError, Replies, read_choices, read_json, read_usage, reported_error
from judgelm.errors import ConfigError, EngineError

_LOG = logging.getLogger("judgelm.openai")
_ANNOUNCED_S = 60.0
"""Minimum time between log messages about pauses."""
ErrorKind = Literal["rate_limited", "timeout", "connection", "server_error", "bad_format"]
MAX_BACKOFF_S = 60.0
_RETRYABLE = (408, 409, 425)
_GATEWAY_ERRORS = (408, 502, 504, 524)
_NEVER_CONNECTED = (
    "ConnectError",
    "ConnectTimeout",
    "PoolTimeout",
    "ProxyError",
)  # exceptions in httpx or its successor
_NO_KEY = "none-needed"
_MAX_MESSAGE = 400


class PatienceError(EngineError):
    """Raised if a rate limit lasts longer than `patience_s`."""


class RetriesExhaustedError(Exception):
    """Raised if a request fails repeatedly while other requests succeed."""


@dataclass(eq=False)
class TransientError(Exception):
    """A retryable error. `unbilled` means that the server did not process the request."""

    kind: ErrorKind
    message: str
    pause_s: float | None = None
    unbilled: bool = False


class Endpoint:
    """Sends requests to one server."""

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
        """Send `GET /models` without retries."""
        return read_json(await self._send(self._client.models, "list"))

    @property
    def address(self) -> str:
        """The server's address, without credentials."""
        return self._options.address

    async def complete(self, api: Api, body: dict[str, Any], *, retries: int | None = None) -> Replies:
        """Send a request. Raises RefusedError, RetriesExhaustedError, or EngineError on failure."""
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
                    message = f"{error.message} ({tries} tries in {time.monotonic() - began:.0f} s)"
                    if self._answered_at > began:
                        raise RetriesExhaustedError(message) from error
                    finding = f"{self._options.address} is not responding: {message}"
                    raise EngineError(f"{finding}; restart the server, then run the same command again") from error
                self.retries[error.kind] += 1
                # the limiter also pauses all requests for as long as the server requested
                await asyncio.sleep(backoff_s if error.pause_s is None else backoff_s / 10)
            else:
                self.unsupported_params |= unsupported
                self._answered_at = time.monotonic()
                self.limiter.succeeded()
                return answer

    def _announce(self, limit: TransientError, backoff_s: float, *, silent_s: float) -> None:
        pause_s = backoff_s if limit.pause_s is None else limit.pause_s
        words = f"{self._options.address}: {limit.message.rstrip('.')}"
        if silent_s + pause_s > self._options.patience_s:
            asked = "" if limit.pause_s is None else f" requests a pause of {shown_duration(pause_s)}"
            silent = f" has not responded for {shown_duration(silent_s)}" if silent_s >= 1 or not asked else ""
            raise PatienceError(
                f"{words}; the server{' and'.join(filter(None, (silent, asked)))}, which is longer than "
                f"patience_s={self._options.patience_s:g}; to continue, run the same command again after "
                f"{shown_time(pause_s)}, or increase --engine-arg patience_s=SECONDS"
            ) from limit
        now = time.monotonic()
        if now + pause_s > self._announced_until:
            self._announced_until = now + max(pause_s, _ANNOUNCED_S)
            why = "the server did not specify a pause" if limit.pause_s is None else "requested by the server"
            _LOG.warning("%s; waiting %s (%s)", words, shown_duration(pause_s), why)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def redact(self, error: str) -> str:
        """Remove secrets and line breaks from an error message."""
        text = " ".join(error.split())
        for secret in self._options.secrets:  # before truncation, which could split a secret
            text = text.replace(secret, "...")
        return text[:_MAX_MESSAGE]

    async def _try(self, api: Api, body: dict[str, Any]) -> Replies:
        async with self.limiter as sent_at, self.cost.track(body) as entry:
            try:
                return await self._request(api, body, entry)
            except BadReplyError as error:
                message = self.redact(f"invalid response ({error})")
                raise TransientError("bad_format", message) from None  # the message may contain the key
            except RefusedError:
                entry.unbilled = True
                raise
            except TransientError as error:
                entry.unbilled = error.unbilled
                if error.kind in (
                    "rate_limited",
                    "timeout",
                ):  # an overloaded server may queue requests until they time out
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
        self.requests += 1
        try:
            async with asyncio.timeout(self._options.timeout_s):  # the client's timeout applies to each read
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
            # the message may contain the key
            raise self._classify(error.status_code, _message(error), pause_s=pause_s, **details) from None

    def _classify(
        self, status: int, message: str, *, code: str = "", param: str = "", pause_s: float | None = None
    ) -> TransientError | RefusedError:
        message = self.redact(message)
        refused = RefusedError(status, message, code, param)
        if refused.fatal or refused.exceeds_rate_limit or refused.refuses_system_message:
            return refused
        if status == 429 or status >= 500 or status in _RETRYABLE:
            kind: ErrorKind = "rate_limited" if status == 429 or pause_s is not None else "server_error"
            unbilled = status not in _GATEWAY_ERRORS
            return TransientError(kind, f"HTTP {status}: {message}", pause_s, unbilled=unbilled)
        return refused


def _message(error: openai.APIStatusError) -> str:
    body: Any = error.body
    if isinstance(body, dict):
        message = body.get("message") or body.get("detail") or body.get("error") or body
        return message if isinstance(message, str) else json.dumps(message)
    return str(body or error.response.text or error.message)


def _client(options: EndpointOptions) -> openai.AsyncOpenAI:
    way_out = "fix or unset HTTP_PROXY, HTTPS_PROXY, and ALL_PROXY"
    try:
        return openai.AsyncOpenAI(
            base_url=options.address,
            api_key=options.key or _NO_KEY,
            default_headers=options.auth_header,  # not in the URL, which the client logs
            timeout=options.timeout_s,
            max_retries=0,
        )
    except ImportError as error:
        raise ConfigError(f"cannot use the proxy set in the environment: {error}; {way_out}") from error
    except Exception:  # from the HTTP library; may contain the proxy password
        raise ConfigError(f"the proxy set in the environment needs an http(s):// or socks5:// URL; {way_out}") from None
