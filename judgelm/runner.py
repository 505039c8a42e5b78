"""Drives many flows over one engine at once.

As a flow's last completion arrives its next requests go in, so the engine's batch never drains at the end of a round;
at most `engine.window` requests are in hand, so memory stays bounded however long the input is.
"""

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Generic, TypeVar

from judgelm.engines.base import Engine
from judgelm.modes.flow import Asking, Mode, Result
from judgelm.records import Completion, Judgment, Request, Sample

_POLL_S = 0.5

Item = TypeVar("Item")


@dataclass(frozen=True, slots=True)
class _Finished(Generic[Result]):
    """What a flow returned."""

    result: Result


class _Running(Generic[Result]):
    """A flow that waits for completions, which come in any order."""

    __slots__ = ("flow", "missing", "received")

    def __init__(self, flow: Asking[Result]) -> None:
        self.flow = flow
        self.received: list[Completion | None] = []
        self.missing = 0

    def expect(self, number: int, requests: list[Request]) -> list[Request]:
        """The requests, their keys unique in the engine."""
        self.received = [None] * len(requests)
        self.missing = len(requests)
        return [replace(request, key=f"{number}:{place}") for place, request in enumerate(requests)]


def judge(samples: Iterable[Sample | None], mode: Mode, engine: Engine) -> Iterator[Judgment]:
    """Judge samples and give each judgment as soon as it is finished, in any order; else as `drive`."""
    return drive(samples, mode, engine)


def drive(items: Iterable[Item | None], begin: Callable[[Item], Asking[Result]], engine: Engine) -> Iterator[Result]:
    """Begin a flow for each item and give its result as soon as it is finished, in any order.

    Closing the iterator early aborts what is in hand. Items are read only as the engine has room for them. A source
    that has none for the moment gives None, and the engine goes on with what it has.

    Raises:
        EngineError: the engine as a whole broke; what was given so far stands.
    """
    source = enumerate(items)
    end: tuple[int, Item | None] = (-1, None)
    running: dict[int, _Running[Result]] = {}
    in_hand = 0
    more = True
    try:
        while more or running:
            outgoing: list[Request] = []
            while more and in_hand + len(outgoing) < engine.window:
                number, item = next(source, end)
                if item is None:
                    more = number >= 0
                    break
                one = _Running(begin(item))
                step = _advance(one, None)
                if isinstance(step, _Finished):
                    yield step.result
                    continue
                running[number] = one
                outgoing += one.expect(number, step)
            in_hand += len(outgoing)
            if outgoing:
                engine.submit(outgoing)
            for completion in engine.collect(_POLL_S) if running else ():
                in_hand -= 1
                received = _receive(running, completion)
                if isinstance(received, _Finished):
                    yield received.result
                elif received:
                    in_hand += len(received)
                    engine.submit(received)
    finally:
        engine.abort(f"{number}:{place}" for number, one in running.items() for place in range(len(one.received)))


def _advance(one: _Running[Result], completions: list[Completion] | None) -> list[Request] | _Finished[Result]:
    """The flow's next requests, or its result."""
    try:
        return next(one.flow) if completions is None else one.flow.send(completions)
    except StopIteration as finished:
        return _Finished(finished.value)


def _receive(running: dict[int, _Running[Result]], completion: Completion) -> list[Request] | _Finished[Result]:
    """Hand a completion to its flow: the result if that ends it, else what it asks for next."""
    number, place = (int(part) for part in completion.key.split(":"))
    one = running[number]
    one.received[place] = completion
    one.missing -= 1
    if one.missing:
        return []
    step = _advance(one, [received for received in one.received if received is not None])
    if isinstance(step, _Finished):
        del running[number]
        return step
    return one.expect(number, step)
