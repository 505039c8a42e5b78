"""The interface between modes, the runner and batch runs; checks of options, and the sampling of replies."""

import hashlib
from collections.abc import Callable, Generator, Iterable, Sequence
from functools import lru_cache
from itertools import islice
from typing import Any, ClassVar, Literal, Protocol, TypeVar, runtime_checkable

from judgelm.errors import ConfigError, out_of_range
from judgelm.records import (
    MAX_SEED,
    MAX_TEMPERATURE,
    MAX_TOKENS,
    Completion,
    Judgment,
    Prompt,
    Request,
    Sample,
    Sampling,
)

Result = TypeVar("Result")

RequestFlow = Generator[list[Request], list[Completion], Result]
"""Yields requests, is sent their completions in the same order, returns a result."""

Flow = RequestFlow[Judgment]
"""A flow of requests that ends in a judgment."""

Round = RequestFlow[list[Completion]]
"""A flow that ends in completions of the requests it was made with."""


class Mode(Protocol):
    """A way of judging one sample."""

    def __call__(self, sample: Sample) -> Flow:
        """Begin to judge a sample."""
        ...


@runtime_checkable
class ChecksSamples(Protocol):
    """A mode that needs more of a sample than its answers: a batch run rejects the rows that lack it."""

    def check(self, sample: Sample) -> None:
        """See that a sample can be judged.

        Raises:
            InputError: it cannot.
        """
        ...


class BatchMode(Mode, Protocol):
    """A mode that batch runs can record: a dataclass whose fields make the run's fingerprint."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def name(self) -> str:
        """The mode's name in manifests."""
        ...

    @property
    def template(self) -> str:
        """Id of the template that its prompts are made with."""
        ...

    @property
    def template_sha(self) -> str:
        """Hash of that template's bytes."""
        ...

    @property
    def answers(self) -> tuple[int, int | None]:
        """The fewest and the most answers that a sample may have; None is no limit."""
        ...

    @property
    def reference(self) -> Literal["auto", "use", "ignore"]:
        """The policy for references in the input, see `judgelm.data.samples.ReferencePolicy`."""
        ...


def relayed(flow: RequestFlow[Result], ask: Callable[[list[Request]], Round]) -> RequestFlow[Result]:
    """The flow with something between it and its engine.

    Args:
        flow: closed with this one.
        ask: sends each round's requests on, changed or not, and returns the completions for the flow.
    """
    completions: list[Completion] | None = None
    try:
        while True:
            completions = yield from ask(next(flow) if completions is None else flow.send(completions))
    except StopIteration as finished:
        result: Result = finished.value
        return result
    finally:
        flow.close()


def received_by(
    flow: RequestFlow[Result], receive: Callable[[list[Request], list[Completion]], list[Completion]]
) -> RequestFlow[Result]:
    """The flow with something that receives each round's completions before it.

    Args:
        flow: closed with this one.
        receive: called with a round's requests and completions; returns the completions for the flow.
    """
    completions: list[Completion] | None = None
    try:
        while True:
            requests = next(flow) if completions is None else flow.send(completions)
            completions = receive(requests, (yield requests))
    except StopIteration as finished:
        result: Result = finished.value
        return result
    finally:
        flow.close()


def interleave(flows: Sequence[RequestFlow[Result]]) -> RequestFlow[list[Result]]:
    """Run several flows as one: each round sends the next requests of all, so that none waits for another to end.

    Returns:
        Their results, in the flows' order.
    """
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


_LARGEST: dict[str, float] = {
    "temperature": MAX_TEMPERATURE,
    "solve_temperature": MAX_TEMPERATURE,
    "seed": MAX_SEED,
    "permutations": 10_000,
    "solves": 10_000,
}
"""Largest value of a numeric option; of all others `MAX_TOKENS`. Seeds may be negative."""


class SamplingOptions(Protocol):
    """Options of the sampling of replies."""

    @property
    def temperature(self) -> float:
        """0 is greedy."""
        ...

    @property
    def seed(self) -> int:
        """With a sample's id it makes the sample's own seed."""
        ...


def sampling_for(
    options: SamplingOptions, sample_id: str, max_tokens: int, *, stop: tuple[str, ...] = (), reserve: int | None = None
) -> Sampling:
    """Greedy at temperature 0; otherwise with a seed made of the options' seed and the sample's id.

    Args:
        options: of the mode.
        sample_id: of the sample, or of a part of it that draws differently.
        max_tokens: room for the reply.
        stop: strings that end it.
        reserve: see `Sampling.reserve`.
    """
    if options.temperature == 0:
        return _greedy(max_tokens, stop, reserve)
    digest = hashlib.blake2b(f"{options.seed}:{sample_id}".encode(errors="surrogatepass"), digest_size=4).digest()
    seed = int.from_bytes(digest, "big")
    return Sampling(max_tokens=max_tokens, stop=stop, reserve=reserve, temperature=options.temperature, seed=seed)


@lru_cache
def _greedy(max_tokens: int, stop: tuple[str, ...], reserve: int | None) -> Sampling:
    return Sampling(max_tokens=max_tokens, stop=stop, reserve=reserve)


def check_finite(mode: object, names: Iterable[str]) -> None:
    """Check numeric options against the range that any mode can use.

    Args:
        mode: has the options.
        names: of options, numeric or not.

    Raises:
        ConfigError: a number is NaN, infinite, negative or too large.
    """
    for name in names:
        value, most = getattr(mode, name), _LARGEST.get(name, MAX_TOKENS)
        if isinstance(value, int | float) and not (-most if name == "seed" else 0) <= value <= most:
            raise out_of_range(name, value, -most if name == "seed" else 0, most)


def requests_of(prompts: Sequence[Prompt], sampling: Sampling, candidates: tuple[str, ...] = ()) -> list[Request]:
    """A request for each prompt, named by its index."""
    return [
        Request(key=str(index), prompt=prompt, sampling=sampling, candidates=candidates)
        for index, prompt in enumerate(prompts)
    ]


def pair_orders(both_orders: bool) -> tuple[tuple[int, int], ...]:
    """The orders in which a pair is shown, as indices into a sample's answers."""
    return ((0, 1), (1, 0)) if both_orders else ((0, 1),)


def check_above_zero(options: object, *names: str) -> None:
    """Check options that must be above 0 where they are given.

    Raises:
        ConfigError: one is not.
    """
    for name in names:
        value = getattr(options, name)
        if value is not None and not value > 0:
            raise ConfigError(f"{name} is {value}; it must be above 0")
