"""The engine protocol, its options, requests as engines prepare them, views of an engine, and what engines share."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from judgelm.parsing.thinking import Thinking
from judgelm.records import Completion, Request, ThinkingMode

MODEL_ENGINES = ("auto", "transformers", "vllm")
"""Names of the engines that load a model on this machine or on workers."""


class Engine(Protocol):
    """Takes requests and returns completions in any order. Not thread-safe: one runner drives one engine.

    Attributes:
        supports_grammar: whether it can constrain a reply to `Sampling.grammar`.
        thinking: its judge's thinking settings.
    """

    supports_grammar: bool
    thinking: Thinking

    @property
    def supports_images(self) -> bool:
        """True if a prompt may show images; otherwise requests with images are refused."""
        ...

    @property
    def max_in_flight(self) -> int:
        """Number of requests that keep the engine busy."""
        ...

    def submit(self, requests: Sequence[Request]) -> None:
        """Submit requests. Keys are unique among the requests in flight."""
        ...

    def collect(self, timeout_s: float) -> list[Completion]:
        """Work or wait up to about `timeout_s` and return the finished requests, possibly none.

        Raises:
            EngineError: the engine as a whole broke. A single request that fails is a completion with
                `finish_reasons == ("error",)`.
        """
        ...

    def progress(self, keys: Iterable[str]) -> Mapping[str, str]:
        """The unfinished first replies to these requests, by key; an engine may know none."""
        ...

    def abort(self, keys: Iterable[str]) -> None:
        """Forget requests; they get no completion."""
        ...

    def describe(self) -> dict[str, Any]:
        """Model with its hash, dtype, device and versions, for the manifest."""
        ...

    def stats(self) -> dict[str, Any]:
        """Counts since the engine was loaded (passes, retries, cache hits, cost, ...), for the manifest.

        `notes`, where present, is a list of lines for the user on the engine's own choices.
        """
        ...

    def close(self) -> None:
        """Free the engine's resources. Safe to call twice."""
        ...


@runtime_checkable
class HoldsAdapters(Protocol):
    """An engine whose model can hold several LoRA adapters at once; `Request.adapter` chooses one."""

    def load_adapter(self, adapter: str) -> None:
        """Load a LoRA adapter, a folder or hub id, for the requests that name it; a loaded one stays.

        Raises:
            ModelError, EngineError: it cannot be loaded, or there is no room for it.
        """
        ...

    def unload_adapter(self, adapter: str) -> bool:
        """Free a LoRA adapter; False, and nothing is done, while requests in flight name it."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options for all engines; each uses those that concern it.

    Attributes:
        model: local folder or hub id; for the scripted engine the reply, or a JSON file of replies.
        adapter: folder or hub id of a PEFT adapter.
        adapters: folders or hub ids of LoRA adapters that the model holds at once, for requests that name one.
        revision: hub revision.
        dtype: `auto` (the checkpoint's own; on a CPU see `judgelm.engines.dtype`), `float32`, `bfloat16` or
            `float16`.
        device: `auto`, `cpu`, `cuda`, `cuda:1`, ...
        quantization: `4bit` or `8bit` through bitsandbytes, or None.
        max_num_batched_tokens: maximum tokens in one forward pass; None lets the engine choose.
        max_num_seqs: maximum sequences in flight.
        max_model_len: context window in tokens, where the model's config does not state it or it should be shorter.
        trust_remote_code: run Python code that comes with the model.
        thinking: whether the chat template asks the judge to think; None takes its card's setting, else `absent`.
        thinking_tokens: maximum tokens of its thinking, at most half of its window.
        engine_args: options of a single engine, by their own names.
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
    """An image cannot be read. Only the request that shows it fails."""
