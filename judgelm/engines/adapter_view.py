"""Views on an engine: of a judge that is one of several adapters on its model, and of a server."""

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from judgelm.engines.base import Engine
from judgelm.engines.model_files import adapter_identity
from judgelm.errors import first_line
from judgelm.records import Completion, Request

Result = TypeVar("Result")


class EngineView:
    """An engine as one of its users sees it; a subclass changes what it must.

    Args:
        engine: its owner closes it.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.supports_grammar = engine.supports_grammar
        self.thinking = engine.thinking

    @property
    def supports_images(self) -> bool:
        """As the engine."""
        return self._engine.supports_images

    @property
    def max_in_flight(self) -> int:
        """As the engine."""
        return self._engine.max_in_flight

    def submit(self, requests: Sequence[Request]) -> None:
        """As the engine."""
        self._engine.submit(requests)

    def collect(self, timeout_s: float) -> list[Completion]:
        """As the engine."""
        return self._engine.collect(timeout_s)

    def progress(self, keys: Iterable[str]) -> Mapping[str, str]:
        """As the engine."""
        return self._engine.progress(keys)

    def abort(self, keys: Iterable[str]) -> None:
        """As the engine."""
        self._engine.abort(keys)

    def describe(self) -> dict[str, Any]:
        """As the engine."""
        return self._engine.describe()

    def stats(self) -> dict[str, Any]:
        """As the engine."""
        return self._engine.stats()

    def close(self) -> None:
        """Nothing: the engine's owner closes it."""


class AdapterView(EngineView):
    """Adds an adapter's name to all requests. Views share the engine, so only one of them may run at a time.

    Args:
        engine: holds the adapter; its owner closes it.
        adapter: folder or hub id.
    """

    def __init__(self, engine: Engine, adapter: str) -> None:
        super().__init__(engine)
        self.adapter = adapter
        self._identity = adapter_identity(adapter)

    def submit(self, requests: Sequence[Request]) -> None:
        """Submit requests for the adapter."""
        self._engine.submit([replace(request, adapter=self.adapter) for request in requests])

    def describe(self) -> dict[str, Any]:
        """As the engine, with the adapter's folder and hash."""
        description = self._engine.describe()
        return description | {"model": description["model"] | self._identity}


class LoneFailures(EngineView):
    """The engine of a server: a request that it refuses fails by itself, where the run of a batch would end.

    Such as a mode whose prompts are chats, for a model without a chat template.
    """

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._refused: list[Completion] = []

    def submit(self, requests: Sequence[Request]) -> None:
        """Submit the requests together, or one by one where the engine refuses one of them."""
        try:
            super().submit(requests)
            return
        except Exception as error:  # of a tokenizer, an image processor or the engine
            if len(requests) == 1:
                self._refused.append(Completion.failed(requests[0].key, first_line(error)))
                return
        self._engine.abort([request.key for request in requests])
        for request in requests:
            self.submit([request])

    def collect(self, timeout_s: float) -> list[Completion]:
        """The refused requests, else as the engine."""
        refused, self._refused = self._refused, []
        return refused or super().collect(timeout_s)

    def abort(self, keys: Iterable[str]) -> None:
        """Forget requests."""
        dropped = set(keys)
        self._refused = [completion for completion in self._refused if completion.key not in dropped]
        super().abort(dropped)


def with_adapter(
    begin: Callable[[], Generator[list[Request], list[Completion], Result]], adapter: str
) -> Generator[list[Request], list[Completion], Result]:
    """A flow whose requests name the adapter, for an engine that is driven for several judges.

    Args:
        begin: makes the flow.
        adapter: folder or hub id.
    """
    flow = begin()
    completions: list[Completion] | None = None
    try:
        while True:
            requests = next(flow) if completions is None else flow.send(completions)
            completions = yield [replace(request, adapter=adapter) for request in requests]
    except StopIteration as finished:
        result: Result = finished.value
        return result
    finally:
        flow.close()
