"""Flows: generators that yield requests and receive their completions."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from itertools import islice
from typing import TypeVar

from judgelm.records import Completion, Judgment, Prompt, Request, Sampling

Result = TypeVar("Result")

RequestFlow = Generator[list[Request], list[Completion], Result]
"""A generator that yields requests, receives their completions in the same order, and returns a result."""

Flow = RequestFlow[Judgment]

Round = RequestFlow[list[Completion]]


def map_rounds(flow: RequestFlow[Result], ask: Callable[[list[Request]], Round]) -> RequestFlow[Result]:
    """Run a flow, but pass each round of requests through `ask`, which may change them."""
    completions: list[Completion] | None = None
    try:
        while True:
            completions = yield from ask(next(flow) if completions is None else flow.send(completions))
    except StopIteration as finished:
        result: Result = finished.value
        return result
    finally:
        flow.close()


def with_adapter(begin: Callable[[], RequestFlow[Result]], adapter: str) -> RequestFlow[Result]:
    """Use a LoRA adapter (a folder or a hub ID) for all requests in a flow."""

    def ask(requests: list[Request]) -> Round:
        return (yield [replace(request, adapter=adapter) for request in requests])

    return map_rounds(begin(), ask)


def interleave(flows: Sequence[RequestFlow[Result]]) -> RequestFlow[list[Result]]:
    """Run flows concurrently and return their results. Each round combines the next requests from all flows."""
    results: dict[int, Result] = {}
    received: dict[int, list[Completion] | None] = dict.fromkeys(range(len(flows)))
    while received:
        requests: dict[int, list[Request]] = {}
        for index, completions in received.items():
            try:
                requests[index] = next(flows[index]) if completions is None else flows[index].send(completions)
            except StopIteration as finished:
                results[index] = finished.value
        if not requests:
            break
        replies = iter((yield [request for batch in requests.values() for request in batch]))
        received = {index: list(islice(replies, len(batch))) for index, batch in requests.items()}
    return [results[index] for index in range(len(flows))]


def requests_of(prompts: Sequence[Prompt], sampling: Sampling, candidates: tuple[str, ...] = ()) -> list[Request]:
    """Build one request per prompt, keyed by its index."""
    return [
        Request(key=str(index), prompt=prompt, sampling=sampling, candidates=candidates)
        for index, prompt in enumerate(prompts)
    ]
