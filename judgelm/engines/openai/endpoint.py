"""One endpoint: sends a request until it is answered, refused, or hopeless, and counts what that took.

A rate limit is not a failure: it is waited for as long as other requests get through. Anything else that a later try
may mend (a connection, a timeout, a 5xx, a torn or senseless reply) is tried again a limited number of times.
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

from judgelm.engines.openai.cost import CostEntry, CostTracker
from judgelm.engines.openai.limiter import AdaptiveLimiter
from judgelm.engines.openai.options import EndpointOptions
from judgelm.engines.openai.response import (
    BadReplyError,
    Choice,
    Usage,
    pause_of,
    read_choices,
    read_json,
    read_usage,
    words_of,
)
from judgelm.engines.openai.unsupported_params import RefusedError, unsupported_param, without_unsupported
from judgelm.errors import ConfigError, EngineError

Api = Literal["completions", "chat"]
ErrorKind = Literal["rate_limited", "timeout", "connection", "server_error", "bad_format"]

RATE_LIMIT_PATIENCE_S = 600.0
_LONGEST_BACKOFF_S = 60.0
_BUSY = (429, 503)
_AGAIN = (408, 409, 425)
_GATEWAY_GAVE_UP = (408, 502, 504, 524)
_NEVER_CONNECTED = ("ConnectError", "ConnectTimeout", "PoolTimeout", "ProxyError")  # of httpx or its successor
_NO_KEY = "none-needed"
_LONGEST_WORDS = 400


class RetriesExhaustedError(Exception):
    """This one request was tried often enough, while others were answered."""


@dataclass(eq=False)
class TransientError(Exception):
    """Something that a later try may mend.

    Attributes:
        pause_s: how long the server asked to be left alone.
        unbilled: whether the server certainly did not answer, so that it cannot bill anything.
    """

    kind: ErrorKind
    finding: str
    pause_s: float | None = None
    unbilled: bool = False


@dataclass(slots=True)
class _Patience:
    """How long one request has been tried, and how often it is sent again."""

    retries: int
    since: float = field(default_factory=time.monotonic)
    tries: int = 0
    failures: int = 0


class Endpoint:
    """Sends requests to one server. Lives in one event loop.

    Args:
        options: where it is and how hard to press it.
        most: most requests under way at once.
        bill: where its tokens are counted, with those of other servers; one of its own without.

    Attributes:
        given_up: fields that the server does not take, see `openai_quirks`.
        requests: how many were sent, retries included.
        retries: how often what went wrong.
        bill: what all that cost.
    """

    def __init__(self, options: EndpointOptions, most: int, bill: CostTracker | None = None) -> None:
        self._options = options
        self._client = _client(options)
        self.gate = AdaptiveLimiter(most)
        self.given_up: frozenset[str] = frozenset()
        self.requests = 0
        self.retries: Counter[ErrorKind] = Counter()
        self.bill = bill or CostTracker(options)
        self._answered_at = 0.0

    async def models(self) -> Any:
        """What `GET /models` says, asked once.

        Raises:
            TroubleError: no usable answer.
            RefusedError: the server wants no such request.
        """
        return read_json(await self._send(self._client.models, "list"))

    @property
    def address(self) -> str:
        """Where it is, fit to be shown."""
        return self._options.address

    async def ask(
        self, api: Api, body: dict[str, Any], *, retries: int | None = None
    ) -> tuple[tuple[Choice, ...], Usage]:
        """The replies to one request, and what they were billed with.

        Args:
            api: which of the server's.
            body: of the request.
            retries: how often it is sent again after a failure; None takes the options'.

        Raises:
            RefusedError: the server does not take the request.
            GaveUpError: it failed too often, while others were answered.
            OverBudgetError: it may cost more than is left.
            EngineError: the endpoint does not answer at all.
        """
        patience = _Patience(retries=self._options.retries if retries is None else retries)
        given_up = self.given_up
        while True:
            try:
                answer = await self._try(api, without_unsupported(body, given_up), patience)
            except RefusedError as refused:
                self._answered_at = time.monotonic()
                lesson = unsupported_param(refused, without_unsupported(body, given_up))
                if lesson is None or lesson in given_up:
                    raise
                given_up |= {lesson}
            except TransientError as trouble:
                await self._recover(trouble, patience)
            else:
                self.given_up |= given_up
                self._answered_at = time.monotonic()
                self.gate.succeeded()
                return answer

    async def close(self) -> None:
        """Drop the connections."""
        await self._client.close()

    def words(self, error: str) -> str:
        """An error's text in one line, without the secrets that the server may have repeated."""
        text = " ".join(error.split())
        for secret in self._options.secrets:  # before the text is cut, which might leave the half of one
            text = text.replace(secret, "...")
        return text[:_LONGEST_WORDS]

    async def _try(self, api: Api, body: dict[str, Any], patience: _Patience) -> tuple[tuple[Choice, ...], Usage]:
        async with self.gate as sent_at, self.bill.item(body) as item:
            patience.tries += 1
            try:
                return await self._replies(api, body, item)
            except BadReplyError as error:
                finding = self.words(f"the reply is not what the API promises ({error})")
                raise TransientError("bad_format", finding) from None  # its text may repeat the key
            except RefusedError:
                item.free = True
                raise
            except TransientError as trouble:
                item.free = trouble.unbilled
                if trouble.kind in ("rate_limited", "timeout"):  # a server with a queue says nothing, and is late
                    self.gate.overloaded(sent_at, trouble.pause_s)
                raise

    async def _replies(self, api: Api, body: dict[str, Any], item: CostEntry) -> tuple[tuple[Choice, ...], Usage]:
        resource = self._client.completions if api == "completions" else self._client.chat.completions
        content = "prompt" if api == "completions" else "messages"
        arguments = {"model": body["model"], content: body[content]}
        extra = {name: value for name, value in body.items() if name not in arguments}
        data = read_json(await self._send(resource, "create", **arguments, extra_body=extra))
        item.usage = read_usage(data)
        return read_choices(data), item.usage or Usage()

    async def _send(self, resource: Any, method: str, **arguments: Any) -> str:
        """One request; the body of a reply with status 200.

        Raises:
            TroubleError: a later try may mend it.
            RefusedError: it will not.
        """
        self.requests += 1
        try:
            async with asyncio.timeout(self._options.timeout_s):  # the client's own is between two bytes
                response = await getattr(resource.with_raw_response, method)(**arguments)
            text: str = response.text
            return text
        except (TimeoutError, openai.APIConnectionError) as error:
            cause = error.__cause__ or error
            unsent = type(cause).__name__ in _NEVER_CONNECTED
            if isinstance(error, TimeoutError | openai.APITimeoutError):
                finding = f"no reply within {self._options.timeout_s:g} s"
                raise TransientError("timeout", finding, unbilled=unsent) from error
            finding = self.words(str(cause) or type(cause).__name__)
            raise TransientError("connection", finding, unbilled=unsent) from error
        except openai.APIStatusError as error:
            raise self._judged(error) from None  # its text may repeat the key

    def _judged(self, error: openai.APIStatusError) -> TransientError | RefusedError:
        """Whether trying again may help."""
        status, said = error.status_code, self.words(words_of(error))
        pause_s = pause_of(error.response.headers)
        refused = RefusedError(status, said, str(error.code or ""), str(error.param or ""))
        if refused.fatal or refused.over_the_rate_limit_alone:
            return refused
        if status == 429 or (status in _BUSY and pause_s is not None):
            return TransientError("rate_limited", f"HTTP {status}: {said}", pause_s, unbilled=True)
        if status >= 500 or status in _AGAIN:
            return TransientError("server_error", f"HTTP {status}: {said}", unbilled=status not in _GATEWAY_GAVE_UP)
        return refused

    async def _recover(self, trouble: TransientError, patience: _Patience) -> None:
        """Wait before the next try, or say that there will be none."""
        waited_s = time.monotonic() - patience.since
        if trouble.kind == "rate_limited":
            hopeless = time.monotonic() - max(self._answered_at, patience.since) > RATE_LIMIT_PATIENCE_S
        else:
            patience.failures += 1
            hopeless = patience.failures > patience.retries
        if not hopeless:
            self.retries[trouble.kind] += 1
            doubled = self._options.backoff_s * 2 ** min(patience.tries - 1, 10)
            backoff_s = min(doubled, _LONGEST_BACKOFF_S) * random.uniform(0.5, 1.5)
            # the gate holds back all requests for as long as the server asked
            await asyncio.sleep(backoff_s if trouble.pause_s is None else backoff_s / 10)
            return
        finding = f"{trouble.finding}, {patience.tries} tries in {waited_s:.0f} s"
        if self._answered_at > patience.since:
            raise RetriesExhaustedError(finding)
        raise EngineError(
            f"{self._options.address} does not answer: {finding}; run the same command again to go on once it is back"
        )


def _client(options: EndpointOptions) -> openai.AsyncOpenAI:
    """The connections; a user and password go into a header, since the client's log shows addresses.

    Raises:
        ConfigError: a proxy of the environment that cannot be used.
    """
    way_out = "mend or unset HTTP_PROXY, HTTPS_PROXY and ALL_PROXY"
    try:
        for name, proxy in getproxies().items():
            if name != "no":
                _ = urlsplit(proxy).port  # a ValueError unless it is a number
        return openai.AsyncOpenAI(
            base_url=options.address,
            api_key=options.key or _NO_KEY,
            default_headers=options.login,
            timeout=options.timeout_s,
            max_retries=0,
        )
    except ValueError:  # its words may hold the proxy's password
        raise ConfigError(f"a proxy in the environment is no http(s):// or socks5:// address; {way_out}") from None
    except ImportError as error:
        raise ConfigError(f"a proxy in the environment cannot be used: {error}; {way_out}") from error
