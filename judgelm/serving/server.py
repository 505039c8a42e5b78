"""The uvicorn server of the app; on a signal it refuses new requests and finishes those in flight."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from types import FrameType

import uvicorn

from judgelm.errors import ConfigError
from judgelm.serving.engine_worker import EngineWorker
from judgelm.serving.header_limits import header_limit_protocol
from judgelm.serving.request_middleware import Traffic

log = logging.getLogger("judgelm.serving")

_FLUSH_S = 5
"""Time for clients to read their replies before the server ends."""


class Server(uvicorn.Server):
    """A server that ends on SIGTERM or SIGINT when all requests are answered or the time is up; at once on a second.

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
            self.force_exit = self.should_exit = True
            self.unanswered = self._traffic.in_flight
            return
        self._traffic.closing = True
        self._deadline = time.monotonic() + self._finish_s
        log.warning("shutting down: finishing %d requests, refusing new ones", self._traffic.in_flight)

    async def on_tick(self, counter: int) -> bool:
        """Called by uvicorn ten times a second."""
        if self._traffic.closing and not self.should_exit:
            if self._traffic.in_flight == 0:
                self.should_exit = True
            elif time.monotonic() >= self._deadline:
                self.unanswered = self._traffic.in_flight
                await asyncio.to_thread(self._worker.close)
                self.should_exit = True
        return await super().on_tick(counter)


def uvicorn_config(app: object, *, access_log: bool = False, head_timeout_s: float = 30.0) -> uvicorn.Config:
    """Uvicorn's configuration: no websockets, no trust in proxy headers, errors logged alone.

    Args:
        app: to serve.
        access_log: whether each request is logged.
        head_timeout_s: for a client to send a request's headers.
    """
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=header_limit_protocol(head_timeout_s),
        ws="none",
        lifespan="off",
        log_level="info" if access_log else "warning",
        access_log=access_log,
        use_colors=False,  # the command line escapes control characters of log messages
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_FLUSH_S,
    )
