"""Engine wrappers for servers and adapters."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from judgelm.engines.base import Engine
from judgelm.errors import first_line
from judgelm.records import Completion, Request


class EngineView:
    """Forwards calls to an engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.supports_grammar = engine.supports_grammar
        self.thinking = engine.thinking
        self.progress = engine.progress
        self.stats = engine.stats

    @property
    def supports_images(self) -> bool:
        """See `Engine`."""
        return self._engine.supports_images

    @property
    def max_in_flight(self) -> int:
        """See `Engine`."""
        return self._engine.max_in_flight

    def close(self) -> None:
        """Do nothing; the owner closes the engine."""


class PerRequestFailures(EngineView):
    """Turns rejected requests into failed completions."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self.describe = engine.describe
        self._refused: list[Completion] = []

    def submit(self, requests: Sequence[Request]) -> None:
        """Submit the requests together, or one by one if that fails."""
        try:
            self._engine.submit(requests)
            return
        except Exception as error:  # from a tokenizer, an image processor, or the engine
            if len(requests) == 1:
                self._refused.append(Completion.failed(requests[0].key, first_line(error)))
                return
        self._engine.abort([request.key for request in requests])
        for request in requests:
            self.submit([request])

    def collect(self, timeout_s: float) -> list[Completion]:
        """Return failed completions first."""
        refused, self._refused = self._refused, []
        return refused or self._engine.collect(timeout_s)

    def abort(self, keys: Iterable[str]) -> None:
        """Cancel requests."""
        dropped = set(keys)
        self._refused = [completion for completion in self._refused if completion.key not in dropped]
        self._engine.abort(dropped)


class AdapterView(EngineView):
    """Assigns requests to an adapter. Only one view of an engine may be active at a time."""

    def __init__(self, engine: Engine, adapter: str) -> None:
        from judgelm.engines.model_files import adapter_identity  # loads transformers

        super().__init__(engine)
        self.collect = engine.collect
        self.abort = engine.abort
        self.adapter = adapter
        self._identity = adapter_identity(adapter)

    def submit(self, requests: Sequence[Request]) -> None:
        """Submit requests to the adapter."""
        self._engine.submit([replace(request, adapter=self.adapter) for request in requests])

    def describe(self) -> dict[str, Any]:
        """Return the engine's description, including the adapter."""
        description = self._engine.describe()
        return description | {"model": description["model"] | self._identity}
