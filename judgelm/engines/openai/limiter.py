"""How many requests an endpoint gets at once: as many as it takes, found out by asking.

More are let through while replies come, half as many when the server says that it is too much (additive increase,
multiplicative decrease, as TCP does it).
"""

import asyncio
import time

_LONGEST_PAUSE_S = 300.0


class AdaptiveLimiter:
    """Lets so many requests through at once, and none while the server has asked for a pause.

    Args:
        most: upper bound of `limit`.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.limit = most
        self._under_way = 0
        self._successes = 0
        self._halved_at = 0.0
        self._closed_until = 0.0
        self._room = asyncio.Event()

    async def __aenter__(self) -> float:
        """Wait for room; the moment at which the request goes out."""
        while True:
            pause_s = self._closed_until - time.monotonic()
            if pause_s > 0:
                await asyncio.sleep(pause_s)
            elif self._under_way >= self.limit:
                self._room.clear()
                await self._room.wait()
            else:
                self._under_way += 1
                return time.monotonic()

    async def __aexit__(self, *_: object) -> None:
        """Make room, without waiting for anything: a cancelled request must not keep its place."""
        self._under_way -= 1
        self._room.set()

    def succeeded(self) -> None:
        """A reply came; after as many as are let through at once, one more is let through."""
        self._successes += 1
        if self._successes >= self.limit and self.limit < self.most:
            self.limit += 1
            self._successes = 0

    def overloaded(self, sent_at: float, pause_s: float | None) -> None:
        """The server refused for its load.

        Args:
            sent_at: when the refused request went out; those sent before the last halving say nothing new.
            pause_s: how long the server asked to be left alone.
        """
        now = time.monotonic()
        if sent_at >= self._halved_at:
            self.limit = max(1, self.limit // 2)
            self._successes = 0
            self._halved_at = now
        if pause_s is not None:
            self._closed_until = max(self._closed_until, now + min(pause_s, _LONGEST_PAUSE_S))
