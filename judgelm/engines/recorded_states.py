"""Record the states of prompts while they are judged, and store them."""

import hashlib
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from judgelm.engines.base import Engine
from judgelm.engines.views import EngineView
from judgelm.records import Completion, Prompt, Request, Sampling

_WAIT_S = 1.0


class RecordedStates(EngineView):
    """Adds the states of some layers to each request, and keeps them; see `Completion.states`.

    Args:
        engine: a transformers engine.
        layers: numbers of the layers.
        path: file with states from earlier; ignored if it is for other layers or another model.
        model: identity of the model.
    """

    def __init__(self, engine: Engine, layers: tuple[int, ...], path: Path, model: str) -> None:
        super().__init__(engine)
        self.describe = engine.describe
        self.abort = engine.abort
        self.layers = layers
        self._path, self._model = path, model
        self._states: dict[str, NDArray[np.float32]] = self._stored()
        self._keys: dict[str, str] = {}

    def submit(self, requests: Sequence[Request]) -> None:
        """Submit requests with their states."""
        self._keys |= {request.key: _hash(request.prompt) for request in requests}
        self._engine.submit([replace(request, states=self.layers) for request in requests])

    def collect(self, timeout_s: float) -> list[Completion]:
        """Keep the states of completions."""
        completions = self._engine.collect(timeout_s)
        self._states |= {self._keys[each.key]: each.states for each in completions if each.states is not None}
        return completions

    def states(self, prompts: Sequence[Prompt]) -> NDArray[np.float32]:
        """Return the states of prompts, shape (prompts, layers, hidden); NaN for prompts that do not fit the window.

        States that were not recorded are computed, and all are stored.
        """
        hashes = [_hash(prompt) for prompt in prompts]
        missing = {key: prompt for key, prompt in zip(hashes, prompts, strict=True) if key not in self._states}
        requests = [Request(key=key, prompt=each, sampling=Sampling(max_tokens=1)) for key, each in missing.items()]
        for start in range(0, len(requests), self.max_in_flight):
            part = requests[start : start + self.max_in_flight]
            self.submit(part)
            done = 0
            while done < len(part):
                done += len(self.collect(_WAIT_S))
        known = next(iter(self._states.values()), np.zeros((len(self.layers), 1), np.float32))
        kept = {key: self._states.get(key, np.full_like(known, np.nan)) for key in hashes}
        with open(self._path, "wb") as file:
            np.savez(file, model=self._model, layers=self.layers, keys=list(kept), states=np.stack(list(kept.values())))
        return np.stack([kept[key] for key in hashes])

    def _stored(self) -> dict[str, NDArray[np.float32]]:
        try:
            with np.load(self._path, allow_pickle=False) as stored:
                if str(stored["model"]) == self._model and tuple(stored["layers"]) == self.layers:
                    known = zip(stored["keys"].tolist(), stored["states"], strict=True)
                    return {key: states for key, states in known if np.isfinite(states).all()}
        except (OSError, ValueError, KeyError, EOFError):
            pass  # they can be computed again
        return {}


def _hash(prompt: Prompt) -> str:
    return hashlib.sha256(repr(prompt).encode(errors="surrogatepass")).hexdigest()
