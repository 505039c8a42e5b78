"""Time and size limits for request headers.

Uvicorn waits for the end of the headers without a limit and keeps all their bytes, so a client that sends them byte by
byte, or nothing at all, could keep a connection open. Bodies are limited later (`limits`).
"""

import asyncio
from http import HTTPStatus
from typing import Any

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from judgelm.serving.http_errors import HttpError

_MOST_BYTES = 64 << 10


class HeaderLimitProtocol(HttpToolsProtocol):
    """A connection that is closed where headers are late: counted from the connection, or from their first byte.

    Attributes:
        head_timeout_s: for a client to send all headers of a request.
    """

    head_timeout_s = 30.0

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._timer: asyncio.TimerHandle | None = None
        self._in_head = False
        self._head_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Start the timer for the first headers."""
        super().connection_made(transport)
        self._start_timer()

    def data_received(self, data: bytes) -> None:
        """Data outside a request belongs to the headers of the next."""
        if self._timer is None and self._idle:
            self._start_timer()
        super().data_received(data)
        if self._in_head:
            self._head_bytes += len(data)
            if self._head_bytes > _MOST_BYTES:
                self._refuse(HttpError(431, "head_too_large", f"headers are larger than {_MOST_BYTES} bytes"))

    def on_message_begin(self) -> None:
        """Called at the first byte of the headers."""
        super().on_message_begin()
        self._in_head, self._head_bytes = True, 0

    def on_headers_complete(self) -> None:
        """Called after the last header."""
        self._in_head = False
        self._stop_timer()
        super().on_headers_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Called when the connection ends."""
        self._stop_timer()
        super().connection_lost(exc)

    @property
    def _idle(self) -> bool:
        """True where no request is in flight, so that a reply may be written."""
        return self.cycle is None or self.cycle.response_complete

    def _start_timer(self) -> None:
        self._timer = self.loop.call_later(self.head_timeout_s, self._on_timeout)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _on_timeout(self) -> None:
        self._refuse(HttpError(408, "request_timeout", f"the headers did not arrive within {self.head_timeout_s:g} s"))

    def _refuse(self, error: HttpError) -> None:
        """Close the connection, with a reply where headers have begun and no other request waits for its own."""
        self._stop_timer()
        if self._in_head and self._idle and not self.transport.is_closing():
            body = error.body()
            head = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\nconnection: close\r\n"
            about = f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            self.transport.write((head + about).encode() + body)
        self.transport.close()


def header_limit_protocol(head_timeout_s: float) -> type[HeaderLimitProtocol]:
    """The protocol class with this timeout, for uvicorn."""
    return type("GuardedProtocol", (HeaderLimitProtocol,), {"head_timeout_s": head_timeout_s})
