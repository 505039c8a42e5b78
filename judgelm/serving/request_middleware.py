"""Keys, shutdown, counters, the request log and traces of all requests."""

import hashlib
import hmac
import logging
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from uuid import uuid4

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from judgelm.serving.http_errors import HttpError
from judgelm.serving.metrics import Metrics
from judgelm.serving.request_log import RequestLog, RequestRecord

if TYPE_CHECKING:
    from judgelm.serving.traces import RequestTracer

log = logging.getLogger("judgelm.serving")

PROBES = ("/health", "/healthz", "/livez", "/readyz")
"""Routes that need no key, and answer during shutdown."""

_BEARER = b"bearer "


@dataclass(slots=True)
class Traffic:
    """Requests in a server.

    Attributes:
        in_flight: requests whose reply has not ended.
        closing: whether new requests are refused because the server is shutting down.
    """

    in_flight: int = 0
    closing: bool = False


class ApiKeys:
    """API keys of clients.

    All digests are compared, each in constant time, so that the time reveals nothing about a key, not even its length.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key.encode()) for key in keys]

    def accept(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """True where the headers have a key: `Authorization: Bearer KEY`, or `api-key: KEY` as sent by Azure's clients.

        Args:
            headers: names in lower case, as in ASGI.
        """
        if not self._digests:
            return True
        accepted = False
        for name, value in headers:
            if name == b"authorization" and value[: len(_BEARER)].lower() == _BEARER:
                sent = _digest(value[len(_BEARER) :].strip())
            elif name == b"api-key":
                sent = _digest(value.strip())
            else:
                continue
            for known in self._digests:
                accepted |= hmac.compare_digest(sent, known)
        return accepted


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


class RequestMiddleware:
    """Counts and records every request, refuses it on a wrong key or during shutdown, and answers unexpected errors.

    Args:
        app: the next in ASGI's chain.
        keys: of clients.
        metrics: the server's counters.
        traffic: the server's requests.
        request_log: gets a line for each request; None writes none.
        tracer: gets a span for each request; None makes none.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: ApiKeys,
        metrics: Metrics,
        traffic: Traffic,
        request_log: RequestLog | None,
        tracer: "RequestTracer | None",
    ) -> None:
        self._app = app
        self._keys = keys
        self._metrics = metrics
        self._traffic = traffic
        self._log = request_log
        self._tracer = tracer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        span = None if self._tracer is None else self._tracer.begin(scope["method"], scope["headers"])
        exchange = _Exchange(receive, send, keep=self._log is not None and self._log.texts)
        scope.setdefault("state", {})
        self._traffic.in_flight += 1
        try:
            await self._answer(scope, exchange)
        finally:
            self._traffic.in_flight -= 1
            record = exchange.record(scope, time.perf_counter() - began)
            self._metrics.request(record.route, record.status, record.dialect, record.judge, record.duration_s)
            if self._log is not None and scope["path"] not in PROBES:
                self._log.write(record, exchange.bodies)
            if self._tracer is not None and span is not None:
                self._tracer.end(span, record)

    async def _answer(self, scope: Scope, exchange: "_Exchange") -> None:
        async def refuse(error: HttpError) -> None:
            scope["state"]["error"] = error.code
            self._metrics.error(error.code)
            await error.response()(scope, exchange.receive, exchange.send)

        try:
            refusal = self._refusal(scope)
            if refusal is not None:
                await refuse(refusal)
            else:
                await self._app(scope, exchange.receive, exchange.send)
        except Exception:
            log.exception("internal error")
            if exchange.status:  # the reply has begun: only closing the connection can signal the error
                raise
            await refuse(HttpError(500, "internal_error", "internal error; see the server log"))

    def _refusal(self, scope: Scope) -> HttpError | None:
        if scope["path"] in PROBES:
            return None
        if not self._keys.accept(scope["headers"]):
            headers = {"WWW-Authenticate": "Bearer", "Connection": "close"}
            return HttpError(401, "invalid_api_key", "missing or invalid API key", headers=headers)
        if self._traffic.closing:
            headers = {"Retry-After": "5", "Connection": "close"}
            return HttpError(503, "shutting_down", "the server is shutting down; try again later", headers=headers)
        return None


class _Exchange:
    """A request and its reply as they pass: the reply gets its id, and bodies are kept where they are to be logged."""

    def __init__(self, receive: Receive, send: Send, *, keep: bool) -> None:
        self.status = 0
        self._id = uuid4().hex
        self._receive = receive
        self._send = send
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
        elif self._kept is not None:
            self._kept[1].extend(message.get("body", b""))
        await self._send(message)

    @property
    def bodies(self) -> tuple[bytes, bytes] | None:
        """Of request and reply, where they are kept."""
        return None if self._kept is None else (bytes(self._kept[0]), bytes(self._kept[1]))

    def record(self, scope: Scope, duration_s: float) -> RequestRecord:
        """The request's record, at its end."""
        state = scope["state"]
        prompt_tokens, completion_tokens = state.get("tokens", (0, 0))
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
        )
