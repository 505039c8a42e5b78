"""The engine protocol and its options."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from judgelm.parsing.thinking import Thinking
from judgelm.records import Completion, Request, ThinkingMode

MODEL_ENGINES = ("auto", "transformers", "vllm")


class Engine(Protocol):
    """Turns requests into completions, which may arrive in any order. Not thread-safe.

    Attributes:
        supports_grammar: whether replies can be constrained by a regular expression. Requests with unusable grammars
            (`judgelm.engines.grammars`) fail alone. Servers may support JSON schemas even if this is False.
    """

    supports_grammar: bool
    thinking: Thinking

    @property
    def supports_images(self) -> bool:
        """Whether prompts may contain images."""
        ...

    @property
    def max_in_flight(self) -> int:
        """Number of concurrent requests needed to keep the engine busy."""
        ...

    def submit(self, requests: Sequence[Request]) -> None:
        """Submit requests. Keys must be unique among requests in flight."""
        ...

    def collect(self, timeout_s: float) -> list[Completion]:
        """Process requests for about `timeout_s` seconds and return finished completions.

        Failed requests are returned with `finish_reasons == ("error",)`.

        Raises:
            EngineError: if the engine itself fails.
        """
        ...

    def progress(self, keys: Iterable[str]) -> Mapping[str, str]:
        """Return the partial text of each request's first reply, if available."""
        ...

    def abort(self, keys: Iterable[str]) -> None:
        """Cancel requests. Cancelled requests do not produce completions."""
        ...

    def describe(self) -> dict[str, Any]:
        """Return the model, its hash, the dtype, the device, and package versions."""
        ...

    def stats(self) -> dict[str, Any]:
        """Return counters. The optional key `notes` contains messages for the user."""
        ...

    def close(self) -> None:
        """Release all resources. Repeated calls have no effect."""
        ...


@runtime_checkable
class HoldsAdapters(Protocol):
    """An engine that supports multiple LoRA adapters, selected by `Request.adapter`."""

    def load_adapter(self, adapter: str) -> None:
        """Load a LoRA adapter unless it is already loaded."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadFile:
    """A head to load.

    Attributes:
        path: safetensors file with `score.weight`, shape (rows, hidden size), float32.
        layer: number of the layer whose normalised state is mapped to rewards, one for each of the `rows`.
        whole: whether to load all layers, for verdicts that also use probabilities of words.
    """

    path: str
    layer: int
    rows: int = 1
    whole: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options for all engines.

    Attributes:
        model: local folder or hub id. For the scripted engine, a reply or a JSON file of replies.
        adapter: folder or hub id of a PEFT adapter.
        adapters: folders or hub ids of LoRA adapters that requests can select.
        dtype: `auto` (see `judgelm.engines.dtype`), `float32`, `bfloat16`, or `float16`.
        device: `auto`, or a torch device such as `cpu` or `cuda:1`.
        quantization: `4bit` or `8bit` (uses bitsandbytes).
        max_num_batched_tokens: maximum number of tokens per forward pass.
        max_model_len: context window in tokens. Defaults to the value in the model's config.
        thinking: defaults to the mode in the judge card, or `absent`.
        head: linear head of a judge from `judgelm tune`.
        thinking_tokens: maximum number of thinking tokens, capped at half the context window.
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
    head: HeadFile | None = None
    thinking_tokens: int = 4096
    engine_args: Mapping[str, Any] = field(default_factory=dict)


class ImageError(Exception):
    """Raised for unreadable images. Only requests with that image fail."""
