"""Running the app: uvicorn, which on a signal refuses what is new and finishes what it holds."""

import asyncio
import logging
import socket
import time
from collections.abc import Callable
from types import FrameType

import uvicorn

from judgelm.errors import ConfigError
from judgelm.serving.app import Traffic
from judgelm.serving.engine_worker import EngineWorker
from judgelm.serving.header_limits import header_limit_protocol

log = logging.getLogger("judgelm.serving")

_FLUSH_S = 5
"""For clients to read what was written for them before the server ends."""


class Server(uvicorn.Server):
    """Ends on SIGTERM or SIGINT when all in hand is answered, or the time for it is up; on a second one at once.

    Args:
        config: uvicorn's.
        traffic: of the app.
        service: of the app's desk.
        finish_s: for what is in hand when the signal comes; what is late is told so (503).
        on_listening: is called once clients can come.

    Attributes:
        unanswered: requests in hand that the end cut off.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        *,
        traffic: Traffic,
        service: EngineWorker,
        finish_s: float,
        on_listening: Callable[[], None] = lambda: None,
    ) -> None:
        super().__init__(config)
        self.unanswered = 0
        self._traffic = traffic
        self._service = service
        self._finish_s = finish_s
        self._until = 0.0
        self._on_listening = on_listening

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to listen, and say so.

        Raises:
            ConfigError: another program took the port while the model was loaded.
        """
        try:
            await super().startup(sockets)
        except OSError as error:
            raise ConfigError(
                f"the port cannot be listened at: {error.strerror or error}; choose another one"
            ) from error
        self._on_listening()

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """A signal; none is raised again once the server has ended, since it ends in order."""
        if self._traffic.closing:
            self.force_exit = self.should_exit = True
            self.unanswered = self._traffic.in_hand
            return
        self._traffic.closing = True
        self._until = time.monotonic() + self._finish_s
        log.warning("shutting down: %d requests in hand are finished, new ones refused", self._traffic.in_hand)

    async def on_tick(self, counter: int) -> bool:
        """Uvicorn's look around, ten times a second."""
        if self._traffic.closing and not self.should_exit:
            if self._traffic.in_hand == 0:
                self.should_exit = True
            elif time.monotonic() >= self._until:
                self.unanswered = self._traffic.in_hand
                await asyncio.to_thread(self._service.close)
                self.should_exit = True
        return await super().on_tick(counter)


def uvicorn_config(app: object, *, access_log: bool = False, head_timeout_s: float = 30.0) -> uvicorn.Config:
    """As judgelm runs it: no websockets, no names of other machines in headers believed, quiet but for faults.

    Args:
        app: to serve.
        access_log: whether each request is a line.
        head_timeout_s: for a client to send a request's headers.
    """
    return uvicorn.Config(
        app,  # type: ignore[arg-type]
        http=header_limit_protocol(head_timeout_s),
        ws="none",
        lifespan="off",
        log_level="info" if access_log else "warning",
        access_log=access_log,
        proxy_headers=False,
        server_header=False,
        timeout_keep_alive=30,
        timeout_graceful_shutdown=_FLUSH_S,
    )
