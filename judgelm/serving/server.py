"""A uvicorn server with graceful shutdown and a timeout for request headers."""

import asyncio
import errno
import logging
import math
import os
import resource
import socket
import time
from collections.abc import Callable
from types import FrameType
from typing import Literal

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from judgelm.errors import ConfigError
from judgelm.runs.engine_worker import EngineWorker
from judgelm.serving.middleware import Traffic

log = logging.getLogger("judgelm.serving")

_FLUSH_S = 5
_LIMIT_LOG_INTERVAL_S = 60


class WatchedServer(uvicorn.Server):
    """Logs an error if the open file limit is reached, because uvicorn drops new connections silently."""

    _logged_at = -math.inf

    async def on_tick(self, counter: int) -> bool:
        """Check the limit. uvicorn calls this ten times per second."""
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
                    "open file limit (%d) reached: %s; %d open connections, new ones fail; raise it with `ulimit -n`",
                    limit, error.strerror, len(self.server_state.connections),
                )  # fmt: skip
        return await super().on_tick(counter)


class Server(WatchedServer):
    """Finishes requests in flight on SIGTERM or SIGINT. A second signal stops the server immediately.

    Args:
        finish_s: timeout for requests in flight, after which they get a 503.
        on_listening: called once clients can connect.

    Attributes:
        unanswered: number of requests that did not finish in time.
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
        """Start listening, then call `on_listening`. Raise ConfigError if the port is already in use."""
        try:
            await super().startup(sockets)
        except OSError as error:
            raise ConfigError(f"cannot listen on the port: {error.strerror or error}; choose another port") from error
        self._on_listening()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Start a graceful shutdown. Unlike uvicorn, do not re-raise the signal afterwards."""
        if self._traffic.closing:
            self._deadline = 0.0
            self.force_exit = True
            return
        self._traffic.closing = True
        self._deadline = time.monotonic() + self._finish_s
        log.warning("shutting down: finishing %d requests, rejecting new requests", self._traffic.in_flight)

    async def on_tick(self, counter: int) -> bool:
        """Stop once all requests are answered or the shutdown times out."""
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
    """Return the uvicorn configuration. `flush_s` gives clients time to read replies before the server stops."""
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=header_timeout_protocol(head_timeout_s),
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


class HeaderTimeoutProtocol(H11Protocol):
    """Closes connections if the headers arrive too slowly, or if the body is still arriving after the reply.

    uvicorn limits only the headers' size, not their arrival time.
    """

    head_timeout_s = 30.0
    _timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the header timeout."""
        super().connection_made(transport)
        self._limit_time()

    def data_received(self, data: bytes) -> None:
        """Parse data, and start or stop the header timeout."""
        super().data_received(data)
        self._limit_time()

    def send_400_response(self, msg: str) -> None:
        """Reply to invalid HTTP. If another reply has already started, only close the connection."""
        if self.cycle is not None:
            self.cycle.disconnected = True  # otherwise uvicorn would send the reply, and h11 would raise
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            super().send_400_response(msg)
        self.transport.close()

    def _limit_time(self) -> None:
        if self.cycle is not None and not self.cycle.response_complete:  # bodies have a separate timeout
            if self._timer is not None:
                self._timer.cancel()
            self._timer = None
        elif self._timer is None:
            self._timer = self.loop.call_later(self.head_timeout_s, self.transport.close)


def header_timeout_protocol(head_timeout_s: float) -> type[HeaderTimeoutProtocol]:
    """Return a uvicorn protocol class with this timeout for headers."""
    return type("LimitedProtocol", (HeaderTimeoutProtocol,), {"head_timeout_s": head_timeout_s})
