"""Drives many flows over one engine at once.

As a flow's last completion arrives its next requests go in, so the engine's batch never drains at the end of a round;
at most `engine.window` requests are in hand, so memory stays bounded however long the input is.
"""

from collections.abc import Iterable, Iterator
from dataclasses import replace

from judgelm.engines.base import Engine
from judgelm.modes.flow import Flow, Mode
from judgelm.records import Completion, Judgment, Request, Sample

_POLL_S = 0.5
_END: tuple[int, Sample | None] = (-1, None)


class _Running:
    """A flow that waits for completions, which come in any order."""

    __slots__ = ("flow", "missing", "received")

    def __init__(self, flow: Flow) -> None:
        self.flow = flow
        self.received: list[Completion | None] = []
        self.missing = 0

    def expect(self, number: int, requests: list[Request]) -> list[Request]:
        """The requests, their keys unique in the engine."""
        self.received = [None] * len(requests)
        self.missing = len(requests)
        return [replace(request, key=f"{number}:{place}") for place, request in enumerate(requests)]


def judge(samples: Iterable[Sample | None], mode: Mode, engine: Engine) -> Iterator[Judgment]:
    """Judge samples and give each judgment as soon as it is finished, in any order.

    Closing the iterator early aborts what is in hand. Samples are read only as the engine has room for them. A source
    that has none for the moment gives None, and the engine goes on with what it has.

    Raises:
        EngineError: the engine as a whole broke; what was given so far stands.
    """
    source = enumerate(samples)
    running: dict[int, _Running] = {}
    in_hand = 0
    more = True
    try:
        while more or running:
            outgoing: list[Request] = []
            while more and in_hand + len(outgoing) < engine.window:
                number, sample = next(source, _END)
                if sample is None:
                    more = number >= 0
                    break
                one = _Running(mode(sample))
                requests = _advance(one, None)
                if isinstance(requests, Judgment):
                    yield requests
                    continue
                running[number] = one
                outgoing += one.expect(number, requests)
            in_hand += len(outgoing)
            if outgoing:
                engine.submit(outgoing)
            for completion in engine.collect(_POLL_S) if running else ():
                in_hand -= 1
                finished, follow_up = _receive(running, completion)
                if follow_up:
                    in_hand += len(follow_up)
                    engine.submit(follow_up)
                if finished is not None:
                    yield finished
    finally:
        engine.abort(f"{number}:{place}" for number, one in running.items() for place in range(len(one.received)))


def _advance(one: _Running, completions: list[Completion] | None) -> list[Request] | Judgment:
    """The flow's next requests, or its judgment."""
    try:
        return next(one.flow) if completions is None else one.flow.send(completions)
    except StopIteration as finished:
        judgment = finished.value
        assert isinstance(judgment, Judgment), "a mode returns a judgment"
        return judgment


def _receive(running: dict[int, _Running], completion: Completion) -> tuple[Judgment | None, list[Request]]:
    """Hand a completion to its flow: the judgment if that ends it, else what it asks for next."""
    number, place = (int(part) for part in completion.key.split(":"))
    one = running[number]
    one.received[place] = completion
    one.missing -= 1
    if one.missing:
        return None, []
    step = _advance(one, [received for received in one.received if received is not None])
    if isinstance(step, Judgment):
        del running[number]
        return step, []
    return None, one.expect(number, step)
