"""Middleware for access control, graceful shutdown, metrics, and the request log."""

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
"""Routes that do not require an API key and keep responding during shutdown."""


@dataclass(slots=True)
class Traffic:
    """The number of requests in progress, and whether the server is shutting down."""

    in_flight: int = 0
    closing: bool = False


@dataclass(frozen=True, slots=True)
class RequestMiddleware:
    """Counts and logs requests, handles unexpected errors, and rejects unauthorised requests."""

    app: ASGIApp
    keys: ApiKeys
    hosts: KnownHosts
    metrics: Metrics
    traffic: Traffic
    request_log: RequestLog | None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward a request to the app, or reject it."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        scope.setdefault("state", {})

        def count() -> None:
            self.metrics.count(exchange.record(scope, time.perf_counter() - started))

        exchange = _Exchange(receive, send, count, keep=self.request_log is not None and self.request_log.texts)
        self.traffic.in_flight += 1
        try:
            await self._answer(scope, exchange)
        finally:
            self.traffic.in_flight -= 1
            exchange.end()
            if self.request_log is not None and scope["path"] not in PROBES:
                self.request_log.write(exchange.record(scope, time.perf_counter() - started), exchange.bodies)

    async def _answer(self, scope: Scope, exchange: "_Exchange") -> None:
        try:
            error = self._refusal(scope)
            if error is None:
                await self.app(scope, exchange.receive, exchange.send)
                return
        except asyncio.CancelledError:  # uvicorn is stopping; raising would log a traceback
            if not self.traffic.closing:
                raise
            if exchange.status:
                return  # uvicorn closes the connection
            error = shutdown_error()
        except Exception:  # outermost handler: for any error, clients get a 500 with a request id
            log.exception("internal error")
            if exchange.status:  # the response has started, so all we can do is close the connection
                raise
            error = HttpError(500, "internal_error", "internal error; see the server log")
        scope["state"]["error"] = error.code
        await error.response()(scope, exchange.receive, exchange.send)

    def _refusal(self, scope: Scope) -> HttpError | None:
        if scope["path"] in PROBES:
            return None
        if not self.keys.accept(scope["headers"]):
            headers = {"WWW-Authenticate": "Bearer", **CLOSE}
            return HttpError(401, "invalid_api_key", "missing or invalid API key", headers=headers)
        if not self.keys and (refusal := self.hosts.refusal(scope["headers"])) is not None:
            return refusal
        return shutdown_error() if self.traffic.closing else None


class _Exchange:
    """Adds a request id to a response, and keeps both bodies for the log.

    `count` is called just before the end of the response is sent, so that `/metrics` already includes the request.
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
        return None if self._kept is None else (bytes(self._kept[0]), bytes(self._kept[1]))

    def record(self, scope: Scope, duration_s: float) -> RequestRecord:
        state = scope["state"]
        prompt_tokens, completion_tokens = state.get("tokens", (None, 0))
        return RequestRecord(
            id=self._id, method=scope["method"], route=getattr(scope.get("route"), "path_format", "other"),
            status=self.status, judge=state.get("judge", ""), dialect=state.get("dialect", ""),
            error=state.get("error", ""), duration_s=duration_s, prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens, failures=state.get("failures", ()),
        )  # fmt: skip
