"""An engine as a judge sees it that is one of several adapters on the engine's model."""

from collections.abc import Callable, Generator, Sequence
from dataclasses import replace
from typing import Any, TypeVar

from judgelm.engines.base import Engine
from judgelm.engines.engine_view import EngineView
from judgelm.engines.model_files import adapter_identity
from judgelm.records import Completion, Request

Result = TypeVar("Result")


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
