"""Distribute requests across servers that run the same model.

Each request goes to the server with the fewest requests in flight. Unresponsive servers are skipped temporarily.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from judgelm.engines.openai.cost import CostTracker
from judgelm.engines.openai.endpoint import MAX_BACKOFF_S, Endpoint, ErrorKind, PatienceError, RetriesExhaustedError
from judgelm.engines.openai.options import Api, EndpointOptions
from judgelm.engines.openai.requests import SYSTEM_MESSAGE, RefusedError
from judgelm.engines.openai.responses import Replies
from judgelm.errors import EngineError
from judgelm.prompts.truncation import FOLDED_SYSTEM

_DOWN_S = 2.0
_MAX_DOWN_S = 60.0


@dataclass(eq=False, slots=True)
class _Member:
    endpoint: Endpoint
    in_flight: int = 0
    failures: int = 0
    down_until: float = 0.0

    def is_available(self, now: float) -> bool:
        return self.failures == 0 or (now >= self.down_until and self.in_flight == 0)

    def mark_down(self) -> None:
        """Simultaneous failures are counted as one failure."""
        now = time.monotonic()
        if now >= self.down_until:
            self.failures += 1
            self.down_until = now + min(_DOWN_S * 2 ** min(self.failures - 1, 10), _MAX_DOWN_S)


class EndpointPool:
    """Distributes requests across servers."""

    def __init__(self, options: EndpointOptions, max_concurrency: int) -> None:
        self._options = options
        self.cost = CostTracker(options)
        self._members = [_Member(Endpoint(server, max_concurrency, self.cost)) for server in options.servers]
        self._rerouted = 0

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """One endpoint per server."""
        return [member.endpoint for member in self._members]

    @property
    def max_concurrency(self) -> int:
        """Maximum number of requests in flight across all servers."""
        return sum(endpoint.limiter.max_limit for endpoint in self.endpoints)

    @property
    def unsupported_params(self) -> frozenset[str]:
        """Parameters that at least one server does not support."""
        return frozenset().union(*(endpoint.unsupported_params for endpoint in self.endpoints))

    def stats(self) -> dict[str, Any]:
        """Return counters and the cost."""
        retries: Counter[ErrorKind] = sum((endpoint.retries for endpoint in self.endpoints), Counter())
        return {
            "requests": sum(endpoint.requests for endpoint in self.endpoints),
            "retries": dict(retries),
            "concurrency": sum(endpoint.limiter.limit for endpoint in self.endpoints),
            "not_taken_by_server": sorted(self.unsupported_params),
            **({"notes": [FOLDED_SYSTEM]} if SYSTEM_MESSAGE in self.unsupported_params else {}),
            **({"moved_to_another_server": self._rerouted} if len(self._members) > 1 else {}),
            **self.cost.stats(),
        }

    def mark_down(self, index: int) -> None:
        """Skip an unreachable server temporarily."""
        self._members[index].mark_down()

    async def complete(self, api: Api, body: dict[str, Any]) -> Replies:
        """See `Endpoint.complete`."""
        if len(self._members) == 1:
            return await self._members[0].endpoint.complete(api, body)
        for attempt in range(self._options.retries + 1):
            if attempt:
                await asyncio.sleep(min(self._options.backoff_s * 2 ** (attempt - 1), MAX_BACKOFF_S))
            tried: list[_Member] = []
            error: Exception | None = None
            limited = True
            while (member := self._next(tried)) is not None:
                self._rerouted += bool(tried)
                tried.append(member)
                try:
                    return await self._complete_at(member, api, body)
                except (EngineError, RetriesExhaustedError) as failure:
                    error = failure
                    limited &= isinstance(failure, PatienceError)
                except RefusedError as refused:
                    if not refused.fatal:
                        raise
                    error, limited = refused, False
            if limited:
                break
        assert error is not None, "each attempt tries at least one server"
        if isinstance(error, EngineError):
            raise EngineError(f"none of the {len(self._members)} servers responded; last error: {error}") from error
        raise error

    async def close(self) -> None:
        """Close the connections."""
        await asyncio.gather(*(endpoint.close() for endpoint in self.endpoints))

    def _next(self, tried: Sequence[_Member]) -> _Member | None:
        now = time.monotonic()
        left = [member for member in self._members if member not in tried]
        available = [member for member in left if member.is_available(now)]
        if available:
            return min(available, key=lambda member: member.in_flight)
        return min(left, key=lambda member: member.down_until, default=None)

    async def _complete_at(self, member: _Member, api: Api, body: dict[str, Any]) -> Replies:
        member.in_flight += 1
        try:
            answer = await member.endpoint.complete(api, body, retries=0)
        except EngineError:
            member.mark_down()
            raise
        except RefusedError as refused:
            if refused.fatal:
                member.mark_down()
            raise
        finally:
            member.in_flight -= 1
        member.failures = 0
        return answer
