"""The interface between modes, the runner and batch runs."""

from collections.abc import Generator, Sequence
from itertools import islice
from typing import Any, ClassVar, Literal, Protocol, TypeVar, runtime_checkable

from judgelm.records import Completion, Judgment, Request, Sample

Result = TypeVar("Result")

RequestFlow = Generator[list[Request], list[Completion], Result]
"""Yields requests, is sent their completions in the same order, returns a result."""

Flow = RequestFlow[Judgment]
"""A flow of requests that ends in a judgment."""


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
