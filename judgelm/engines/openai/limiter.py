"""Adapts the number of concurrent requests to what an endpoint takes.

The limit grows while replies come, and is halved when the server is overloaded (additive increase, multiplicative
decrease, as in TCP).
"""

import asyncio
import time

_MAX_PAUSE_S = 300.0


class AdaptiveLimiter:
    """Limits concurrent requests, and holds all back while the server has asked for a pause.

    Args:
        max_limit: upper bound of `limit`.
    """

    def __init__(self, max_limit: int) -> None:
        self.max_limit = max_limit
        self.limit = max_limit
        self._in_flight = 0
        self._successes = 0
        self._halved_at = 0.0
        self._closed_until = 0.0
        self._room = asyncio.Event()

    async def __aenter__(self) -> float:
        """Wait for room; returns the time at which the request is sent."""
        while True:
            pause_s = self._closed_until - time.monotonic()
            if pause_s > 0:
                await asyncio.sleep(pause_s)
            elif self._in_flight >= self.limit:
                self._room.clear()
                await self._room.wait()
            else:
                self._in_flight += 1
                return time.monotonic()

    async def __aexit__(self, *_: object) -> None:
        """Make room without awaiting anything: a cancelled request must not keep its slot."""
        self._in_flight -= 1
        self._room.set()

    def succeeded(self) -> None:
        """Count a reply; after `limit` replies the limit grows by one."""
        self._successes += 1
        if self._successes >= self.limit and self.limit < self.max_limit:
            self.limit += 1
            self._successes = 0

    def overloaded(self, sent_at: float, retry_after_s: float | None) -> None:
        """Halve the limit, since the server refused a request for its load.

        Args:
            sent_at: when the refused request was sent; those sent before the last halving do not count again.
            retry_after_s: the pause that the server asked for.
        """
        now = time.monotonic()
        if sent_at >= self._halved_at:
            self.limit = max(1, self.limit // 2)
            self._successes = 0
            self._halved_at = now
        if retry_after_s is not None:
            self._closed_until = max(self._closed_until, now + min(retry_after_s, _MAX_PAUSE_S))
