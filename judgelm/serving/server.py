"""Uvicorn servers of the app and the page, with graceful shutdown and limits on what clients send.

uvicorn does not limit the time or size of headers, trailers, chunk extensions or pipelined requests, for which clients
need no key. `HeaderLimitProtocol` does; `http_errors` limits bodies.
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
_LIMIT_LOG_INTERVAL_S = 60


class WatchedServer(uvicorn.Server):
    """Logs when the limit of open files is reached; uvicorn drops new connections silently."""

    _logged_at = -math.inf

    async def on_tick(self, counter: int) -> bool:
        """Check the limit; uvicorn calls this ten times a second."""
        try:
            os.close(os.dup(2))
        except OSError as error:
            if (
                error.errno in (errno.EMFILE, errno.ENFILE)
                and time.monotonic() - self._logged_at > _LIMIT_LOG_INTERVAL_S
            ):
                self._logged_at = time.monotonic()
                limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
                log.error(
                    "at the limit of %d open files (%s): %d open connections, new ones fail; raise it with `ulimit -n`",
                    limit, error.strerror, len(self.server_state.connections),
                )  # fmt: skip
        return await super().on_tick(counter)


class Server(WatchedServer):
    """A server that finishes requests in flight on SIGTERM or SIGINT; a second signal stops it immediately.

    Args:
        config: uvicorn's.
        traffic: of the app.
        worker: of the app's handler.
        finish_s: time limit for requests in flight, after which they get 503.
        on_listening: called once clients can connect.

    Attributes:
        unanswered: number of requests that were cut off.
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
        """Start listening, and call `on_listening`. ConfigError: another program took the port."""
        try:
            await super().startup(sockets)
        except OSError as error:
            raise ConfigError(f"cannot listen on the port: {error.strerror or error}; choose another port") from error
        self._on_listening()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start the shutdown. Unlike uvicorn, do not raise the signal again afterwards."""
        if self._traffic.closing:
            self._deadline = 0.0
            self.force_exit = True
            return
        self._traffic.closing = True
        self._deadline = time.monotonic() + self._finish_s
        batches = f"; {self._traffic.batches} batches will not finish" if self._traffic.batches else ""
        log.warning("shutting down: finishing %d requests, rejecting new ones%s", self._traffic.in_flight, batches)

    async def on_tick(self, counter: int) -> bool:
        """Stop when all requests are answered or the time is up."""
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
    """Return uvicorn's configuration: no websockets, no trust in proxy headers, only errors are logged.

    `head_timeout_s` is for a client to send headers, `flush_s` for clients to read replies before the server stops.
    """
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=header_limit_protocol(head_timeout_s),
        ws="none",
        lifespan=lifespan,
        log_level="info" if access_log else "warning",
        access_log=access_log,
        use_colors=False,  # the command line escapes control characters in log messages
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=flush_s,
    )


_PIECE = 4 << 10
"""Bytes per call of the parser, so that the limits do not depend on how a client's bytes arrive."""

_MAX_BYTES = 64 << 10
"""Of a request's headers; also of bytes outside headers and body, such as blank lines and chunk extensions."""

_MAX_LINES = 128
_MAX_PIPELINED = 32
"""Pipelined requests before the first is answered."""

_MAX_UNREAD = 8 << 20
"""Bytes of a body after the reply."""

_FRAME = 16
"""Framing bytes allowed per body byte; chunks may contain a single byte."""


class HeaderLimitProtocol(HttpToolsProtocol):
    """Closes a connection if a client sends too much outside bodies, or sends headers too slowly.

    Measured with a timeout of 3 s: with uvicorn's protocols, clients that stop within the headers stay connected. In
    `httptools`, 50 MB of one header take 5 s of CPU time; `h11` limits sizes, but not time.
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
        """Parse data in pieces. Data outside a request belongs to the headers of the next."""
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
        """Reset the counts at the first byte of the headers."""
        super().on_message_begin()
        self._in_head = True
        self._head_bytes = self._head_lines = self._unread = self._outside = 0

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header line. Trailers and too many lines raise HttpError."""
        self._head_lines += 1
        if not self._in_head:
            self._refusal = HttpError(400, "invalid_request", "trailers are not supported")
        elif self._head_lines > _MAX_LINES:
            self._refusal = HttpError(431, "head_too_large", f"more than {_MAX_LINES} header lines")
        if self._refusal is not None:
            raise self._refusal
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """Let the host in an absolute URL override the header (RFC 9112, 3.2.2)."""
        _, is_absolute, rest = self.url.partition(b"://")
        if is_absolute and not self.url.startswith(b"/"):
            host = rest.partition(b"/")[0]
            self.headers[:] = [(b"host", host), *(each for each in self.headers if each[0] != b"host")]
        super().on_headers_complete()
        self._in_head = False
        self._stop_timer()

    def on_body(self, body: bytes) -> None:
        """Count a part of a body."""
        self._body_bytes += len(body)
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        """Refuse without breaking into a reply that is being written."""
        self._refuse(self._refusal or HttpError(400, "invalid_request", "not a valid HTTP/1.1 request"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the timer."""
        self._stop_timer()
        super().connection_lost(exc)

    @property
    def _idle(self) -> bool:
        return self.cycle is None or self.cycle.response_complete

    def _count(self, size: int) -> None:
        if self._in_head:
            self._head_bytes += size
            if self._head_bytes > _MAX_BYTES:
                self._refuse(HttpError(431, "head_too_large", f"headers are larger than {_MAX_BYTES} bytes"))
            return
        self._outside = max(0, self._outside + size - _FRAME * self._body_bytes)
        self._unread += self._body_bytes if self._idle else 0
        if self._outside > _MAX_BYTES or self._unread > _MAX_UNREAD or len(self.pipeline) > _MAX_PIPELINED:
            self._refuse(HttpError(400, "invalid_request", "too many bytes outside requests"))

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self.head_timeout_s, self._on_timeout)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timeout(self) -> None:
        self._refuse(HttpError(408, "request_timeout", f"the headers did not arrive within {self.head_timeout_s:g} s"))

    def _refuse(self, error: HttpError) -> None:
        """Close the connection. A request that has started gets a reply if no other waits for one."""
        self._stop_timer()
        has_started = (
            self._in_head if self._idle else not (self.pipeline or self._in_head or self.cycle.response_started)
        )
        if has_started and not self.transport.is_closing():
            body = error.body()
            head = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\nconnection: close\r\n"
            about = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            self.transport.write((head + about).encode() + body)
        self.transport.close()


def header_limit_protocol(head_timeout_s: float) -> type[HeaderLimitProtocol]:
    """Return the protocol class with this timeout, for uvicorn."""
    return type("GuardedProtocol", (HeaderLimitProtocol,), {"head_timeout_s": head_timeout_s})
