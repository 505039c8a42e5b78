"""Streaming of a flow: partial replies of the judge, then the result."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Hashable
from dataclasses import dataclass
from typing import Generic

from judgelm.modes.flow import RequestFlow, Result
from judgelm.parsing.thinking import separate
from judgelm.records import Request
from judgelm.serving.engine_worker import EngineWorker

_LOOK_EVERY_S = 0.05


@dataclass(frozen=True, slots=True)
class PartialReply:
    """A partial reply.

    Attributes:
        line: the prefill that it continues: the score line of a reason, else empty.
        text: after it.
        reason: whether it explains a score line, rather than being one.
    """

    line: str
    text: str
    reason: bool


@dataclass(frozen=True, slots=True)
class Finished(Generic[Result]):
    """The return value of the flow."""

    result: Result


async def stream_flow(
    worker: EngineWorker, begin: Callable[[], RequestFlow[Result]], *, key: Hashable | None = None
) -> AsyncGenerator[tuple[PartialReply, ...] | Finished[Result], None]:
    """Yield the partial replies whenever they have changed, then the result; closing the generator drops the flow.

    Args:
        worker: that drives the flow.
        begin: makes it.
        key: as in `EngineWorker.submit`: others may wait for this flow, which itself waits for no other.

    Raises:
        BusyError: the queue is full.
        EngineError: the engine failed.
        JudgelmError: raised by the flow.
    """
    latest: dict[str, PartialReply] = {}

    def update(request: Request, text: str) -> None:
        latest[request.key] = _partial_reply(request, text)

    waiting = asyncio.wrap_future(worker.submit(begin, key=key, listener=update))
    sent: tuple[PartialReply, ...] = ()
    try:
        while not waiting.done():
            await asyncio.wait({waiting}, timeout=_LOOK_EVERY_S)
            now = tuple(latest.copy().values())
            if now != sent and not waiting.done():
                sent = now
                yield now
        yield Finished(waiting.result())
    finally:
        waiting.cancel()


def _partial_reply(request: Request, text: str) -> PartialReply:
    """A score line stops at its end; a continuation of one is a reason."""
    line = separate(request.prompt.prefill, bare=False).reply
    reason = not request.sampling.stop and bool(line)
    return PartialReply(line.strip() if reason else "", text, reason)
