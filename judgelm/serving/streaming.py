"""A flow that somebody watches: what the judge has written so far, and at last the result."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable
from dataclasses import dataclass
from typing import Generic

from judgelm.modes.flow import Asking, Result
from judgelm.prompts.thinking import separate
from judgelm.records import Request
from judgelm.serving.engine_worker import EngineWorker

_LOOK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class PartialReply:
    """A reply so far.

    Attributes:
        line: the forced beginning that it goes on from: the score line of a reason, else empty.
        text: what came after it.
        reason: whether it explains a score line, and is none itself.
    """

    line: str
    text: str
    reason: bool


@dataclass(frozen=True, slots=True)
class Finished(Generic[Result]):
    """What the flow returned."""

    result: Result


async def stream_flow(
    service: EngineWorker, begin: Callable[[], Asking[Result]], *, key: Hashable | None = None
) -> AsyncGenerator[tuple[PartialReply, ...] | Finished[Result], None]:
    """The replies under way whenever they have changed, then the result; who stops listening drops the flow.

    Args:
        service: that drives the flow.
        begin: makes it.
        key: as `EngineWorker.ask` takes it: others may wait for this flow, which itself waits for no other.

    Raises:
        BusyError: more is waiting than the service takes.
        EngineError: the engine broke.
        JudgelmError: what the flow raises.
    """
    latest: dict[str, PartialReply] = {}

    def tell(request: Request, text: str) -> None:
        latest[request.key] = _partial_reply(request, text)

    waiting = asyncio.wrap_future(service.ask(begin, key=key, listener=tell))
    told: tuple[PartialReply, ...] = ()
    try:
        while not waiting.done():
            await asyncio.wait({waiting}, timeout=_LOOK_EVERY_S)
            now = tuple(latest.copy().values())
            if now != told and not waiting.done():
                told = now
                yield now
        yield Finished(waiting.result())
    finally:
        waiting.cancel()


def _partial_reply(request: Request, text: str) -> PartialReply:
    """A score line stops at its end; what goes on from one is a reason."""
    line = separate(request.prompt.prefill, bare=False).reply
    reason = not request.sampling.stop and bool(line)
    return PartialReply(line.strip() if reason else "", text, reason)
