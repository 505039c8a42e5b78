"""Several servers that hold the same model, as if they were one; or the one there is.

A request goes to the server with the least in hand. One that does not answer is left out for a while, and what it had
in hand goes to the others; then a single request finds out whether it is back.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from judgelm.engines.openai.cost import CostTracker
from judgelm.engines.openai.endpoint import Api, Endpoint, ErrorKind, RetriesExhaustedError
from judgelm.engines.openai.options import EndpointOptions
from judgelm.engines.openai.response import Choice, Usage
from judgelm.engines.openai.unsupported_params import RefusedError
from judgelm.errors import EngineError

_OUT_S = 2.0
_LONGEST_OUT_S = 60.0
_LONGEST_BACKOFF_S = 60.0


@dataclass(eq=False, slots=True)
class _Member:
    """One server.

    Attributes:
        in_hand: requests that it has.
        failures: how often in a row it was left out.
        out_until: moment before which it is not asked while another can be.
    """

    endpoint: Endpoint
    in_hand: int = 0
    failures: int = 0
    out_until: float = 0.0

    def takes(self, now: float) -> bool:
        """Whether it may be asked: in good health, or nobody is finding out whether it is back."""
        return self.failures == 0 or (now >= self.out_until and self.in_hand == 0)

    def failed(self) -> None:
        """It did not answer; all that it had in hand then counts once."""
        now = time.monotonic()
        if now >= self.out_until:
            self.failures += 1
            self.out_until = now + min(_OUT_S * 2 ** min(self.failures - 1, 10), _LONGEST_OUT_S)


class EndpointPool:
    """Sends each request to one of the servers. Lives in one event loop.

    Args:
        options: of all of them; `base_url` says where they are.
        most: most requests under way at once at each.

    Attributes:
        bill: what all of them cost together.
        moved: requests that went to another server since one did not answer.
    """

    def __init__(self, options: EndpointOptions, most: int) -> None:
        self._options = options
        self.bill = CostTracker(options)
        self._members = [_Member(Endpoint(one, most, self.bill)) for one in options.each]
        self.moved = 0

    @property
    def endpoints(self) -> Sequence[Endpoint]:
        """The servers, in the order of their addresses."""
        return [one.endpoint for one in self._members]

    @property
    def most(self) -> int:
        """Most requests under way at once."""
        return sum(one.gate.most for one in self.endpoints)

    @property
    def limit(self) -> int:
        """How many of them are let through now."""
        return sum(one.gate.limit for one in self.endpoints)

    @property
    def requests(self) -> int:
        """How many were sent, retries included."""
        return sum(one.requests for one in self.endpoints)

    @property
    def retries(self) -> Counter[ErrorKind]:
        """How often what went wrong and was tried again at the same server."""
        return sum((one.retries for one in self.endpoints), Counter())

    @property
    def given_up(self) -> frozenset[str]:
        """Fields that a server does not take, see `openai_quirks`."""
        return frozenset().union(*(one.given_up for one in self.endpoints))

    def leave_out(self, endpoint: Endpoint) -> None:
        """Of a server that did not answer when it was asked what it can."""
        next(one for one in self._members if one.endpoint is endpoint).failed()

    async def ask(self, api: Api, body: dict[str, Any]) -> tuple[tuple[Choice, ...], Usage]:
        """As `Endpoint.ask`; a server's failure is an error only where no other server answers.

        Raises:
            RefusedError: a server does not take the request; what concerns the server alone, all of them.
            GaveUpError: it failed too often, while others were answered.
            OverBudgetError: it may cost more than is left.
            EngineError: no server answers at all.
        """
        if len(self._members) == 1:
            return await self._members[0].endpoint.ask(api, body)
        for rounds in range(self._options.retries + 1):
            if rounds:
                await asyncio.sleep(min(self._options.backoff_s * 2 ** (rounds - 1), _LONGEST_BACKOFF_S))
            tried: list[_Member] = []
            error: Exception | None = None
            while (member := self._next(tried)) is not None:
                self.moved += bool(tried)
                tried.append(member)
                try:
                    return await self._asked(member, api, body)
                except (EngineError, RetriesExhaustedError) as failure:
                    error = failure
                except RefusedError as refused:
                    if not refused.fatal:
                        raise
                    error = refused
        assert error is not None, "there are servers, and each round asks one"
        if isinstance(error, EngineError):
            raise EngineError(f"none of {len(self._members)} servers answers; the last one: {error}") from error
        raise error

    async def close(self) -> None:
        """Drop the connections."""
        await asyncio.gather(*(one.close() for one in self.endpoints))

    def _next(self, tried: Sequence[_Member]) -> _Member | None:
        """The server to ask: of those that take requests, the one with the least in hand; if none does, any."""
        now = time.monotonic()
        left = [one for one in self._members if one not in tried]
        taking = [one for one in left if one.takes(now)]
        if taking:
            return min(taking, key=lambda one: one.in_hand)
        return min(left, key=lambda one: one.out_until, default=None)

    async def _asked(self, member: _Member, api: Api, body: dict[str, Any]) -> tuple[tuple[Choice, ...], Usage]:
        """One try at one server, which is left out where it does not answer."""
        member.in_hand += 1
        try:
            answer = await member.endpoint.ask(api, body, retries=0)
        except EngineError:
            member.failed()
            raise
        except RefusedError as refused:
            if refused.fatal:
                member.failed()
            raise
        finally:
            member.in_hand -= 1
        member.failures = 0
        return answer
