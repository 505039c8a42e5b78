"""What an engine is, and what one is loaded with."""

import importlib.util
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, requires, version
from typing import Any, Protocol

from packaging.requirements import Requirement

from judgelm.errors import ConfigError, MissingExtraError
from judgelm.prompts.thinking import Thinking
from judgelm.records import Completion, Request, ThinkingMode

MODEL_ENGINES = ("auto", "transformers", "vllm")
"""Engines, by name, that load a model on this machine or on workers."""


class Engine(Protocol):
    """Takes requests, gives completions in any order. Not safe for threads: one runner drives one engine.

    Attributes:
        max_in_flight: how many requests the engine wants at once to keep busy.
        supports_grammar: whether it can hold a reply to `Sampling.grammar`.
        thinking: whether its judge is asked to think, and how much room it has for that.
    """

    supports_grammar: bool
    thinking: Thinking

    @property
    def supports_images(self) -> bool:
        """Whether a prompt may show images; where it may not, a request that does is refused."""
        ...

    @property
    def max_in_flight(self) -> int:
        """How many requests the engine wants in hand."""
        ...

    def submit(self, requests: Sequence[Request]) -> None:
        """Hand requests over. Keys are unique among those in hand."""
        ...

    def collect(self, timeout_s: float) -> list[Completion]:
        """Work or wait up to about `timeout_s` and give what is finished, perhaps nothing.

        Raises:
            EngineError: the engine as a whole broke. A single request that fails is a completion with
                `finish_reasons == ("error",)`.
        """
        ...

    def progress(self, keys: Iterable[str]) -> Mapping[str, str]:
        """What the first replies to these requests are so far, by key; an engine may know of none."""
        ...

    def abort(self, keys: Iterable[str]) -> None:
        """Forget requests; no completion comes for them."""
        ...

    def describe(self) -> dict[str, Any]:
        """What the manifest must know: model and its hash, dtype, device, versions."""
        ...

    def stats(self) -> dict[str, Any]:
        """Counts since the engine was loaded (passes, retries, cache hits, cost, ...), for the manifest.

        `notes`, where there are any, is a list of lines for the user on what the engine chose by itself.
        """
        ...

    def close(self) -> None:
        """Free what the engine holds. Safe to call twice."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """What every engine is loaded with; each takes what concerns it.

    Attributes:
        model: local folder or hub id; for the scripted engine the reply, or a JSON file of replies.
        adapter: folder or hub id of a PEFT adapter put on top.
        revision: hub revision.
        dtype: `auto` (the checkpoint's own; on a CPU see `judgelm.engines.dtype`), `float32`, `bfloat16` or
            `float16`.
        device: `auto`, `cpu`, `cuda`, `cuda:1`, ...
        quantization: `4bit` or `8bit` through bitsandbytes, or None.
        max_num_batched_tokens: maximum tokens in one forward pass; None lets the engine choose.
        max_num_seqs: maximum sequences in flight.
        max_model_len: context window in tokens, where the model's config does not state it or it should be shorter.
        trust_remote_code: run Python code that comes with the model.
        thinking: whether the judge is asked to think, through its chat template; None is what its card says, else
            `absent`.
        thinking_tokens: room for its thinking, at most half of its window.
        engine_args: options that only one engine knows, by their own names.
    """

    model: str
    adapter: str | None = None
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


def thinking_policy(options: EngineOptions, *, window: int | None, resumes: bool) -> Thinking:
    """The thinking settings of an engine's judge.

    Raises:
        ConfigError: no room for thinking.
    """
    if options.thinking_tokens < 1:
        raise ConfigError(f"thinking_tokens is {options.thinking_tokens}; it must be above 0")
    mode = options.thinking or "absent"
    return Thinking(mode=mode, max_tokens=options.thinking_tokens, resumes=resumes).within(window)


def require(module: str, *, extra: str) -> None:
    """Say what to install before an import would fail.

    Raises:
        MissingExtraError: the module is not installed.
    """
    if importlib.util.find_spec(module) is None:
        raise MissingExtraError(f"{module} is not installed; run: pip install 'judgelm[{extra}]'")


def require_version(distribution: str) -> None:
    """Say which version is needed before one that is too old fails somewhere inside.

    A newer one than judgelm was tested with is not refused here; `judgelm doctor` names it.

    Raises:
        ConfigError: the installed version is below the lowest that judgelm declares.
    """
    try:
        installed, declared = version(distribution), requires("judgelm") or []
    except PackageNotFoundError:
        return  # judgelm runs from a folder that was never installed, or `require` says what is missing
    for one in map(Requirement, declared):
        lowest = [part for part in one.specifier if part.operator == ">="]
        if one.name == distribution and not all(part.contains(installed, prereleases=True) for part in lowest):
            raise ConfigError(
                f"{distribution} {installed} is installed, and judgelm needs {one.specifier}; "
                f"run: pip install '{distribution}{one.specifier}'"
            )


def refuse_engine_args(options: EngineOptions, engine: str) -> None:
    """For engines that have no arguments of their own.

    Raises:
        ConfigError: some were given.
    """
    if options.engine_args:
        given = ", ".join(options.engine_args)
        raise ConfigError(
            f"the {engine} engine has no engine arguments of its own, but {given} was given; leave it out"
        )
