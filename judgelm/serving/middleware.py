"""Access, shutdown, metrics, the request log and traces of all requests."""

import asyncio
import logging
import time
from collections.abc import Callable
from dataclasses import dataclass
from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from judgelm.serving.access import ApiKeys, KnownHosts
from judgelm.serving.http_errors import CLOSE, HttpError, shutdown_error
from judgelm.serving.metrics import Metrics
from judgelm.serving.request_log import RequestLog, RequestRecord

log = logging.getLogger("judgelm.serving")

PROBES = ("/health", "/healthz", "/livez", "/readyz")
"""Routes that need no key, and answer during shutdown."""


@dataclass(slots=True)
class Traffic:
    """Requests in a server.

    Attributes:
        in_flight: requests whose reply has not ended.
        batches: batches of requests that have not ended.
        closing: whether new requests are refused because the server is shutting down.
    """

    in_flight: int = 0
    batches: int = 0
    closing: bool = False


class RequestMiddleware:
    """Counts and records every request, refuses those of others or during shutdown, and answers unexpected errors.

    It sets `owner` in a request's state.

    Args:
        app: the next in ASGI's chain.
        keys: of clients.
        hosts: by which clients may use a server without keys.
        metrics: the server's counters.
        traffic: the server's requests.
        request_log: gets a line for each request; None writes none.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: ApiKeys,
        hosts: KnownHosts,
        metrics: Metrics,
        traffic: Traffic,
        request_log: RequestLog | None,
    ) -> None:
        self._app = app
        self._keys = keys
        self._hosts = hosts
        self._metrics = metrics
        self._traffic = traffic
        self._log = request_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        scope.setdefault("state", {})

        def count() -> None:
            self._metrics.count(exchange.record(scope, time.perf_counter() - began))

        exchange = _Exchange(receive, send, count, keep=self._log is not None and self._log.texts)
        self._traffic.in_flight += 1
        try:
            await self._answer(scope, exchange)
        finally:
            self._traffic.in_flight -= 1
            exchange.end()
            if self._log is not None and scope["path"] not in PROBES:
                self._log.write(exchange.record(scope, time.perf_counter() - began), exchange.bodies)

    async def _answer(self, scope: Scope, exchange: "_Exchange") -> None:
        try:
            error = self._refusal(scope)
            if error is None:
                await self._app(scope, exchange.receive, exchange.send)
                return
        except asyncio.CancelledError:  # uvicorn ends at once; an error would be a traceback in the log
            if not self._traffic.closing:
                raise
            if exchange.status:
                return  # uvicorn closes the connection
            error = shutdown_error()
        except Exception:
            log.exception("internal error")
            if exchange.status:  # the reply has begun: only closing the connection can signal the error
                raise
            error = HttpError(500, "internal_error", "internal error; see the server log")
        scope["state"]["error"] = error.code
        await error.response()(scope, exchange.receive, exchange.send)

    def _refusal(self, scope: Scope) -> HttpError | None:
        if scope["path"] in PROBES:
            return None
        owner = self._keys.owner(scope["headers"])
        if owner is None:
            headers = {"WWW-Authenticate": "Bearer", **CLOSE}
            return HttpError(401, "invalid_api_key", "missing or invalid API key", headers=headers)
        scope["state"]["owner"] = owner
        if not self._keys and (refusal := self._hosts.refusal(scope["headers"])) is not None:
            return refusal
        return shutdown_error() if self._traffic.closing else None


class _Exchange:
    """A request and its reply as they pass: the reply gets its id, and bodies are kept where they are to be logged.

    `count` is called once, before the reply's last piece is sent: a client that has read it finds it in `/metrics`.
    """

    def __init__(self, receive: Receive, send: Send, count: Callable[[], None], *, keep: bool) -> None:
        self.status = 0
        self._id = uuid4().hex
        self._receive = receive
        self._send = send
        self._count = count
        self._ended = False
        self._kept = (bytearray(), bytearray()) if keep else None

    async def receive(self) -> Message:
        message = await self._receive()
        if self._kept is not None:
            self._kept[0].extend(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", self._id.encode())]}
        else:
            if self._kept is not None:
                self._kept[1].extend(message.get("body", b""))
            if not message.get("more_body", False):
                self.end()
        await self._send(message)

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            self._count()

    @property
    def bodies(self) -> tuple[bytes, bytes] | None:
        """Of request and reply, where they are kept."""
        return None if self._kept is None else (bytes(self._kept[0]), bytes(self._kept[1]))

    def record(self, scope: Scope, duration_s: float) -> RequestRecord:
        """The request's record, at its end."""
        state = scope["state"]
        prompt_tokens, completion_tokens = state.get("tokens", (None, 0))
        return RequestRecord(
            id=self._id,
            method=scope["method"],
            route=getattr(scope.get("route"), "path_format", "other"),
            status=self.status,
            judge=state.get("judge", ""),
            dialect=state.get("dialect", ""),
            error=state.get("error", ""),
            duration_s=duration_s,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            failures=state.get("failures", ()),
        )
