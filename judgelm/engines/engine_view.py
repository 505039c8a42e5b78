"""Views on an engine: what one of its users changes of it. Light: a cluster's worker imports this before torch."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from judgelm.engines.base import Engine
from judgelm.errors import first_line
from judgelm.records import Completion, Request


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
