"""Sends requests to one endpoint, with retries, and counts requests, retries and cost.

A rate limit is not a failure: the request waits as long as other requests get through. Other transient errors (a
connection error, a timeout, a 5xx, a malformed reply) are retried a limited number of times.
"""

import asyncio
import random
import time
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import urlsplit
from urllib.request import getproxies

import openai

from judgelm.engines.openai.options import AdaptiveLimiter, CostEntry, CostTracker, EndpointOptions, Usage
from judgelm.engines.openai.requests import RefusedError, unsupported_param, without_unsupported
from judgelm.engines.openai.response import (
    Answer,
    BadReplyError,
    error_message,
    read_choices,
    read_json,
    read_usage,
    reported_error,
    retry_after_s,
)
from judgelm.errors import ConfigError, EngineError

Api = Literal["completions", "chat"]
ErrorKind = Literal["rate_limited", "timeout", "connection", "server_error", "bad_format"]

RATE_LIMIT_PATIENCE_S = 600.0
_MAX_BACKOFF_S = 60.0
_BUSY = (429, 503)
_RETRYABLE = (408, 409, 425)
_GATEWAY_ERRORS = (408, 502, 504, 524)
_NEVER_CONNECTED = ("ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError")  # of httpx or its successor
_NO_KEY = "none-needed"
_MAX_MESSAGE = 400


class RetriesExhaustedError(Exception):
    """All retries of one request failed, while other requests were answered."""


@dataclass(eq=False)
class TransientError(Exception):
    """An error that a retry may fix.

    Attributes:
        retry_after_s: the pause that the server asked for.
        unbilled: whether the server certainly did not answer, so that it cannot bill anything.
    """

    kind: ErrorKind
    message: str
    retry_after_s: float | None = None
    unbilled: bool = False


@dataclass(slots=True)
class _RetryState:
    """Tries of one request so far."""

    max_failures: int
    since: float = field(default_factory=time.monotonic)
    tries: int = 0
    failures: int = 0


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
        self._answered_at = 0.0

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

    async def complete(self, api: Api, body: dict[str, Any], *, retries: int | None = None) -> Answer:
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
        retry = _RetryState(max_failures=self._options.retries if retries is None else retries)
        unsupported = self.unsupported_params
        while True:
            supported_body = without_unsupported(body, unsupported)
            try:
                answer = await self._try(api, supported_body, retry)
            except RefusedError as refused:
                self._answered_at = time.monotonic()
                param = unsupported_param(refused, supported_body)
                if param is None or param in unsupported:
                    raise
                unsupported |= {param}
            except TransientError as error:
                await self._back_off(error, retry)
            else:
                self.unsupported_params |= unsupported
                self._answered_at = time.monotonic()
                self.limiter.succeeded()
                return answer

    async def close(self) -> None:
        """Drop the connections."""
        await self._client.close()

    def redact(self, error: str) -> str:
        """An error's text in one line, without the secrets that the server may have repeated."""
        text = " ".join(error.split())
        for secret in self._options.secrets:  # before the text is cut, which might leave the half of one
            text = text.replace(secret, "...")
        return text[:_MAX_MESSAGE]

    async def _try(self, api: Api, body: dict[str, Any], retry: _RetryState) -> Answer:
        async with self.limiter as sent_at, self.cost.track(body) as entry:
            retry.tries += 1
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
                    self.limiter.overloaded(sent_at, error.retry_after_s)
                raise

    async def _request(self, api: Api, body: dict[str, Any], entry: CostEntry) -> Answer:
        resource = self._client.completions if api == "completions" else self._client.chat.completions
        content = "prompt" if api == "completions" else "messages"
        arguments = {"model": body["model"], content: body[content]}
        extra = {name: value for name, value in body.items() if name not in arguments}
        data = read_json(await self._send(resource, "create", **arguments, extra_body=extra))
        if (reported := reported_error(data)) is not None:
            raise self._classify(reported.status, reported.message, code=reported.code)
        entry.usage = read_usage(data)
        return Answer(read_choices(data), entry.usage or Usage())

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
            pause_s = retry_after_s(error.response.headers)
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
        if status == 429 or (status in _BUSY and pause_s is not None):
            return TransientError("rate_limited", f"HTTP {status}: {message}", pause_s, unbilled=True)
        if status >= 500 or status in _RETRYABLE:
            return TransientError("server_error", f"HTTP {status}: {message}", unbilled=status not in _GATEWAY_ERRORS)
        return refused

    async def _back_off(self, error: TransientError, retry: _RetryState) -> None:
        """Wait before the next try, or raise the final error."""
        waited_s = time.monotonic() - retry.since
        if error.kind == "rate_limited":
            hopeless = time.monotonic() - max(self._answered_at, retry.since) > RATE_LIMIT_PATIENCE_S
        else:
            retry.failures += 1
            hopeless = retry.failures > retry.max_failures
        if not hopeless:
            self.retries[error.kind] += 1
            doubled = self._options.backoff_s * 2 ** min(retry.tries - 1, 10)
            backoff_s = min(doubled, _MAX_BACKOFF_S) * random.uniform(0.5, 1.5)
            # the limiter holds back all requests for as long as the server asked
            await asyncio.sleep(backoff_s if error.retry_after_s is None else backoff_s / 10)
            return
        message = f"{error.message}, {retry.tries} tries in {waited_s:.0f} s"
        if self._answered_at > retry.since:
            raise RetriesExhaustedError(message)
        raise EngineError(
            f"{self._options.address} does not answer: {message}; run the same command again once it is back"
        )


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
