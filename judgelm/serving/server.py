"""The uvicorn servers of the app and of the page; on a signal it refuses new requests and finishes those in flight.

Time and size are limited for everything that a client sends but bodies, which are limited later (`http_errors`).
Uvicorn waits for the end of the headers without a limit and keeps all their bytes, and so it does with header lines
behind a body in chunks (trailers): a client could keep a connection open, or the server busy with copying. Neither
needs a key. The bytes that uvicorn's parser gets are counted here, and a connection beyond a limit is closed.
"""

import asyncio
import errno
import logging
import math
import os
import resource
import socket
import time
from collections.abc import Callable
from http import HTTPStatus
from types import FrameType
from typing import Any, Literal

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from judgelm.errors import ConfigError
from judgelm.serving.engine_worker import EngineWorker
from judgelm.serving.http_errors import HttpError
from judgelm.serving.middleware import Traffic

log = logging.getLogger("judgelm.serving")

_FLUSH_S = 5
"""Time for clients to read their replies before the server ends."""

_FULL_EVERY_S = 60
"""Time between two messages about the limit of file descriptors."""


class WatchedServer(uvicorn.Server):
    """A server that logs when it is at its limit of file descriptors, where connections fail without a trace."""

    _said_at = -math.inf

    async def on_tick(self, counter: int) -> bool:
        """Called by uvicorn ten times a second."""
        try:
            os.close(os.dup(2))
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE) and time.monotonic() - self._said_at > _FULL_EVERY_S:
                self._said_at = time.monotonic()
                limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
                log.error(
                    "at the limit of %d open files (%s): %d connections are open and new ones fail; raise it with "
                    "`ulimit -n`",
                    limit, error.strerror, len(self.server_state.connections),
                )  # fmt: skip
        return await super().on_tick(counter)


class Server(WatchedServer):
    """A server that ends on SIGTERM or SIGINT when all requests are answered or the time is up; at once on a second.

    Requests that the end cuts off get 503.

    Args:
        config: uvicorn's.
        traffic: of the app.
        worker: of the app's handler.
        finish_s: for requests in flight at the signal; later ones get 503.
        on_listening: called once clients can connect.

    Attributes:
        unanswered: requests in flight that the end cut off.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        traffic: Traffic,
        worker: EngineWorker,
        finish_s: float,
        on_listening: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(config)
        self.unanswered = 0
        self._traffic = traffic
        self._worker = worker
        self._finish_s = finish_s
        self._deadline = 0.0
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and call `on_listening`.

        Raises:
            ConfigError: another program took the port while the model was loaded.
        """
        try:
            await super().startup(sockets)
        except OSError as error:
            raise ConfigError(f"cannot listen on the port: {error.strerror or error}; choose another one") from error
        self._on_listening()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Begin the shutdown; the signal is not raised again after it, since it is orderly."""
        if self._traffic.closing:
            self._deadline = 0.0
            self.force_exit = True
            return
        self._traffic.closing = True
        self._deadline = time.monotonic() + self._finish_s
        batches = f"; {self._traffic.batches} batches end unfinished" if self._traffic.batches else ""
        log.warning("shutting down: finishing %d requests, refusing new ones%s", self._traffic.in_flight, batches)

    async def on_tick(self, counter: int) -> bool:
        """Called by uvicorn ten times a second."""
        if self._traffic.closing and not self.should_exit:
            if self._traffic.in_flight == 0:
                self.should_exit = True
            elif time.monotonic() >= self._deadline:
                self.unanswered = self._traffic.in_flight
                self._worker.give_up()
                self.should_exit = True
        return await super().on_tick(counter)


def uvicorn_config(
    app: object,
    *,
    access_log: bool = False,
    head_timeout_s: float = 30.0,
    lifespan: Literal["auto", "off"] = "off",
    flush_s: int = _FLUSH_S,
) -> uvicorn.Config:
    """Uvicorn's configuration: no websockets, no trust in proxy headers, errors logged alone.

    Args:
        app: to serve.
        access_log: whether each request is logged.
        head_timeout_s: for a client to send a request's headers.
        lifespan: whether the app is told of its start and end.
        flush_s: for clients to read their replies before the server ends.
    """
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=header_limit_protocol(head_timeout_s),
        ws="none",
        lifespan=lifespan,
        log_level="info" if access_log else "warning",
        access_log=access_log,
        use_colors=False,  # the command line escapes control characters of log messages
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=flush_s,
    )


_PIECE = 4 << 10
"""Bytes that the parser gets at once, so that the limits do not depend on how a client's bytes arrive."""

_MOST_BYTES = 64 << 10
"""Of a request's headers; and of what is neither headers nor body, such as blank lines and extensions of chunks."""

_MOST_LINES = 128
_MOST_WAITING = 32
"""Requests that a client may send before the first of them is answered."""

_MOST_UNREAD = 8 << 20
"""Bytes of a body that come after the reply."""

_FRAME = 16
"""A byte of a body pays for so many around it: chunks may hold a single byte."""


class HeaderLimitProtocol(HttpToolsProtocol):
    """A connection that is closed where a client sends too much outside of bodies, or too slowly.

    Attributes:
        head_timeout_s: for a client to send all headers of a request, counted from the connection or from their first
            byte; and for the rest of a body whose request is answered.
    """

    head_timeout_s = 30.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None
        self._in_head = False
        self._head_bytes = self._head_lines = 0
        self._body_bytes = self._unread = self._outside = 0
        self._refusal: HttpError | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for the first headers."""
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Parse piece by piece. Data outside a request belongs to the headers of the next."""
        for start in range(0, len(data), _PIECE):
            if self.transport.is_closing():
                return
            if self._timer is None and self._idle:
                self._start_timer()
            piece = data[start : start + _PIECE]
            self._body_bytes = 0
            super().data_received(piece)
            self._count(len(piece))

    def on_message_begin(self) -> None:
        """Called at the first byte of the headers."""
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = self._head_lines = self._unread = self._outside = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Called after each header line, also after those behind a body, which nothing here reads.

        Raises:
            HttpError: too many, or behind a body; the parser passes it on as an error of its own.
        """
        self._head_lines += 1
        if not self._in_head:
            self._refusal = HttpError(400, "invalid_request", "header lines behind the body are not supported")
        elif self._head_lines > _MOST_LINES:
            self._refusal = HttpError(431, "head_too_large", f"there are more than {_MOST_LINES} header lines")
        if self._refusal is not None:
            raise self._refusal
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Called after the last header. An absolute URL has the host, whatever the header says (RFC 9112, 3.2.2)."""
        _, is_absolute, rest = self.url.partition(b"://")
        if is_absolute and not self.url.startswith(b"/"):
            host = rest.partition(b"/")[0]
            self.headers[:] = [(b"host", host), *(each for each in self.headers if each[0] != b"host")]
        super().on_headers_complete()
        self._in_head = False
        self._stop_timer()

    def on_body(self, body: bytes) -> None:
        """Called with each part of a body."""
        self._body_bytes += len(body)
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        """Called where the parser fails: refuse without breaking into a reply that is being written."""
        self._refuse(self._refusal or HttpError(400, "invalid_request", "not a valid HTTP/1.1 request"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the connection ends."""
        self._stop_timer()
        super().connection_lost(exc)

    @property
    def _idle(self) -> bool:
        """True where no request is in flight, so that a reply may be written."""
        return self.cycle is None or self.cycle.response_complete

    def _count(self, size: int) -> None:
        """Count a parsed piece: as headers, or as what is around bodies."""
        if self._in_head:
            self._head_bytes += size
            if self._head_bytes > _MOST_BYTES:
                self._refuse(HttpError(431, "head_too_large", f"headers are larger than {_MOST_BYTES} bytes"))
            return
        self._outside = max(0, self._outside + size - _FRAME * self._body_bytes)
        self._unread += self._body_bytes if self._idle else 0
        if self._outside > _MOST_BYTES or self._unread > _MOST_UNREAD or len(self.pipeline) > _MOST_WAITING:
            self._refuse(HttpError(400, "invalid_request", "more bytes than a request can have"))

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self.head_timeout_s, self._on_timeout)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timeout(self) -> None:
        self._refuse(HttpError(408, "request_timeout", f"the headers did not arrive within {self.head_timeout_s:g} s"))

    def _refuse(self, error: HttpError) -> None:
        """Close the connection, with a reply to a request that has begun where no other waits for its own."""
        self._stop_timer()
        has_begun = self._in_head if self._idle else not (self.pipeline or self._in_head or self.cycle.response_started)
        if has_begun and not self.transport.is_closing():
            body = error.body()
            head = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\nconnection: close\r\n"
            about = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            self.transport.write((head + about).encode() + body)
        self.transport.close()


def header_limit_protocol(head_timeout_s: float) -> type[HeaderLimitProtocol]:
    """The protocol class with this timeout, for uvicorn."""
    return type("GuardedProtocol", (HeaderLimitProtocol,), {"head_timeout_s": head_timeout_s})
