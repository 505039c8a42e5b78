"""The guard before the app: request heads that come too slowly, or without end.

Uvicorn waits for the end of a head for ever and keeps all that comes of it, so a client that sends its headers byte by
byte, or nothing at all, would hold a connection as long as it likes. Bodies are bounded behind it (`limits`).
"""

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from judgelm.serving.http_errors import HttpError

_MOST_BYTES = 64 << 10


class HeaderLimitProtocol(HttpToolsProtocol):
    """One connection, which ends where a head is not there in time: from the connection on, or its first byte on.

    Attributes:
        head_timeout_s: for a client to send a whole head.
    """

    head_timeout_s = 30.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None
        self._in_head = False
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Begin to wait for the first head."""
        super().connection_made(transport)
        self._wait()

    def data_received(self, data: bytes) -> None:
        """Whatever comes when no request is under way belongs to the next head."""
        if self._timer is None and self._idle:
            self._wait()
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > _MOST_BYTES:
                self._refuse(HttpError(431, "head_too_large", f"headers have at most {_MOST_BYTES} bytes here"))

    def on_message_begin(self) -> None:
        """The first byte of a head."""
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        """The head is there."""
        self._in_head = False
        self._stop_waiting()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Nobody sends any more."""
        self._stop_waiting()
        super().connection_lost(exc)

    @property
    def _idle(self) -> bool:
        """Whether no request is under way: else its answer is still to be written, and nothing before it."""
        return self.cycle is None or self.cycle.response_complete

    def _wait(self) -> None:
        self._timer = self.loop.call_later(self.head_timeout_s, self._too_late)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _too_late(self) -> None:
        self._refuse(HttpError(408, "request_timeout", f"the headers did not arrive within {self.head_timeout_s:g} s"))

    def _refuse(self, error: HttpError) -> None:
        """Close, with an answer where a head has begun and no other request waits for its own."""
        self._stop_waiting()
        if self._in_head and self._idle and not self.transport.is_closing():
            body = error.body()
            head = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\nconnection: close\r\n"
            about = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            self.transport.write((head + about).encode() + body)
        self.transport.close()


def header_limit_protocol(head_timeout_s: float) -> type[HeaderLimitProtocol]:
    """The protocol with this time for a head, as uvicorn takes it: a class."""
    return type("GuardedProtocol", (HeaderLimitProtocol,), {"head_timeout_s": head_timeout_s})
