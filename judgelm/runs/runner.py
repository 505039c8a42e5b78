"""Run many flows on one engine.

The next requests of a flow are submitted as soon as its last completion arrives, so the batch stays full between
rounds.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Generic, TypeVar

from judgelm.data.judged_texts import text_hashes
from judgelm.engines.base import Engine
from judgelm.modes.flow import Flow, RequestFlow, Result
from judgelm.modes.mode import Mode
from judgelm.modes.thinking import separate_thinking
from judgelm.parsing.thinking import reply_so_far
from judgelm.records import Completion, Judgment, Request, Sample

_POLL_S = 0.5

Item = TypeVar("Item")
"""The input of a flow, such as a sample."""

Listener = Callable[[Request, str], None]
"""Called with a request and the text of its first reply so far, without thinking."""


@dataclass(frozen=True, slots=True)
class _Finished(Generic[Result]):
    result: Result


class _Running(Generic[Item, Result]):
    __slots__ = ("flow", "item", "missing", "received", "requests")

    def __init__(self, item: Item, flow: RequestFlow[Result]) -> None:
        self.item = item
        self.flow = flow
        self.requests: list[Request] = []
        self.received: list[Completion | None] = []
        self.missing = 0

    def expect(self, flow_index: int, requests: list[Request]) -> list[Request]:
        self.received = [None] * len(requests)
        self.missing = len(requests)
        self.requests = [replace(request, key=f"{flow_index}:{index}") for index, request in enumerate(requests)]
        return self.requests


def judge(samples: Iterable[Sample | None], mode: Mode, engine: Engine) -> Iterator[Judgment]:
    """Judge samples and yield each finished judgment with the hashes of its texts, in any order."""
    return drive(samples, lambda sample: judging(sample, mode), engine)


def judging(sample: Sample, mode: Mode) -> Flow:
    """Judge a sample, and add the hashes of its texts to the judgment."""
    hashes = text_hashes(sample)
    judgment = yield from mode(sample)
    return replace(judgment, hashes=hashes)


def drive(
    items: Iterable[Item | None],
    begin: Callable[[Item], RequestFlow[Result]],
    engine: Engine,
    *,
    unwanted: Callable[[], Iterable[Item]] = tuple,
    listener: Callable[[Item], Listener | None] | None = None,
    poll_s: float = _POLL_S,
) -> Iterator[Result]:
    """Start a flow for each item and yield the results as they complete.

    If the iterator is closed, the requests in flight are aborted.

    Args:
        items: read while the engine has capacity. None means that no item is available yet.
        begin: creates the flow for an item.
        engine: answers at most `engine.max_in_flight` requests at a time.
        unwanted: returns cancelled items, compared by identity. Their flows are closed without a result.
        listener: returns the listener for an item, for streaming.
        poll_s: maximum time in seconds before items are read again.
    """
    source = enumerate(items)
    end: tuple[int, Item | None] = (-1, None)
    running: dict[int, _Running[Item, Result]] = {}
    in_flight = 0
    more = True
    try:
        while more or running:
            outgoing: list[Request] = []
            while more and in_flight + len(outgoing) < engine.max_in_flight:
                index, item = next(source, end)
                if item is None:
                    more = index >= 0
                    break
                state = _Running(item, separate_thinking(begin(item), engine.thinking))
                step = _advance(state, None)
                if isinstance(step, _Finished):
                    yield step.result
                    continue
                running[index] = state
                outgoing += state.expect(index, step)
            in_flight += len(outgoing)
            if outgoing:
                engine.submit(outgoing)
            in_flight -= _forget(running, unwanted(), engine)
            for completion in engine.collect(
                poll_s if running else 0.0
            ):  # an idle cluster replaces workers that were lost
                in_flight -= 1
                received = _receive(running, completion)
                if isinstance(received, _Finished):
                    yield received.result
                elif received:
                    in_flight += len(received)
                    engine.submit(received)
            if listener is not None:
                _notify(running, listener, engine)
    finally:
        engine.abort(_keys(running))


def _keys(running: Mapping[int, _Running[Any, Any]]) -> list[str]:
    return [request.key for state in running.values() for request in state.requests]


def _notify(
    running: Mapping[int, _Running[Item, Any]], listener: Callable[[Item], Listener | None], engine: Engine
) -> None:
    for state in running.values():
        if (listen := listener(state.item)) is not None:
            written = engine.progress(request.key for request in state.requests)
            for request in state.requests:
                if request.key in written and not request.sampling.include_stop:  # otherwise, all of it is thinking
                    listen(request, reply_so_far(written[request.key]))


def _forget(running: dict[int, _Running[Item, Result]], items: Iterable[Item], engine: Engine) -> int:
    gone = {id(item) for item in items}
    if not gone:
        return 0
    ended = {index: running.pop(index) for index in list(running) if id(running[index].item) in gone}
    engine.abort(_keys(ended))
    for state in ended.values():
        state.flow.close()
    return sum(state.missing for state in ended.values())


def _advance(state: _Running[Item, Result], completions: list[Completion] | None) -> list[Request] | _Finished[Result]:
    try:
        return next(state.flow) if completions is None else state.flow.send(completions)
    except StopIteration as finished:
        return _Finished(finished.value)


def _receive(running: dict[int, _Running[Item, Result]], completion: Completion) -> list[Request] | _Finished[Result]:
    flow_index, index = (int(part) for part in completion.key.split(":"))
    state = running[flow_index]
    state.received[index] = completion
    state.missing -= 1
    if state.missing:
        return []
    step = _advance(state, [received for received in state.received if received is not None])
    if isinstance(step, _Finished):
        del running[flow_index]
        return step
    return state.expect(flow_index, step)
