"""The engine protocol and options."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from judgelm.parsing.thinking import Thinking
from judgelm.records import Completion, Request, ThinkingMode

MODEL_ENGINES = ("auto", "transformers", "vllm")
"""Engines that load a model."""


class Engine(Protocol):
    """Turns requests into completions, in any order. Not thread-safe."""

    supports_grammar: bool
    thinking: Thinking

    @property
    def supports_images(self) -> bool:
        """True if prompts may contain images."""
        ...

    @property
    def max_in_flight(self) -> int:
        """Number of requests that keep the engine busy."""
        ...

    def submit(self, requests: Sequence[Request]) -> None:
        """Submit requests. Keys must be unique among requests in flight."""
        ...

    def collect(self, timeout_s: float) -> list[Completion]:
        """Work or wait for about `timeout_s` seconds and return finished completions.

        Raises:
            EngineError: if the engine fails. Failed requests have `finish_reasons == ("error",)`.
        """
        ...

    def progress(self, keys: Iterable[str]) -> Mapping[str, str]:
        """Return the partial first reply for each key, if known."""
        ...

    def abort(self, keys: Iterable[str]) -> None:
        """Drop requests without returning completions."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return the model, its hash, dtype, device, and versions."""
        ...

    def stats(self) -> dict[str, Any]:
        """Return counters. The optional key `notes` contains messages for the user."""
        ...

    def close(self) -> None:
        """Free all resources. Safe to call twice."""
        ...


@runtime_checkable
class HoldsAdapters(Protocol):
    """An engine with LoRA adapters, selected by `Request.adapter`."""

    def load_adapter(self, adapter: str) -> None:
        """Load a LoRA adapter if it is not loaded."""
        ...

    def unload_adapter(self, adapter: str) -> bool:
        """Unload an adapter. Return False if requests in flight use it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options for all engines. Each engine uses the relevant ones.

    Attributes:
        model: local folder or hub id. For the scripted engine, a reply or a JSON file of replies.
        adapter: folder or hub id of a PEFT adapter.
        adapters: folders or hub ids of LoRA adapters that requests can select.
        dtype: `auto` (see `judgelm.engines.dtype`), `float32`, `bfloat16`, or `float16`.
        device: for example, `auto`, `cpu`, `cuda`, or `cuda:1`.
        quantization: `4bit` or `8bit`, using bitsandbytes.
        max_num_batched_tokens: maximum number of tokens per forward pass.
        max_model_len: context window in tokens. Defaults to the config's.
        thinking: defaults to the judge card's mode, or else `absent`.
        thinking_tokens: capped at half the context window.
        engine_args: engine-specific arguments, under their original names.
    """

    model: str
    adapter: str | None = None
    adapters: tuple[str, ...] = ()
    revision: str | None = None
    dtype: str = "auto"
    device: str = "auto"
    quantization: str | None = None
    max_num_batched_tokens: int | None = None
    max_num_seqs: int = 256
    max_model_len: int | None = None
    trust_remote_code: bool = False
    thinking: ThinkingMode | None = None
    thinking_tokens: int = 4096
    engine_args: Mapping[str, Any] = field(default_factory=dict)


class ImageError(Exception):
    """An image is unreadable. Only its requests fail."""
