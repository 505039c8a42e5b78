"""Choose and load engines, and count their GPUs."""

import importlib.util
import math
from collections.abc import Callable
from dataclasses import replace

from judgelm.engines.base import MODEL_ENGINES, Engine, EngineOptions
from judgelm.engines.dependencies import require, require_local, require_version
from judgelm.engines.openmp import release_openmp_threads
from judgelm.errors import ConfigError, ModelError, not_found
from judgelm.machine import usable_gpus
from judgelm.package import install_hint

GPU_FACTORS = ("tensor_parallel_size", "pipeline_parallel_size", "data_parallel_size")
"""vLLM arguments whose product is the number of GPUs."""


def load_engine(name: str, options: EngineOptions) -> Engine:
    """Load an engine."""
    if name == "auto":
        name, _ = choose_engine()
    check_engine(name)
    if options.engine_args and name in ("scripted", "transformers"):
        names = ", ".join(options.engine_args)
        raise ConfigError(f"the {name} engine does not accept engine arguments; remove {names}")
    engine = ENGINES[name](options)
    release_openmp_threads()  # the engine may run in another thread
    return engine


def check_engine(name: str) -> None:
    """Raise a ConfigError if the engine is unknown."""
    if name != "auto" and name not in ENGINES:
        raise not_found("engine", name, ("auto", *ENGINES))


def resolve_options(name: str, options: EngineOptions) -> tuple[EngineOptions, str]:
    """Resolve `dtype: auto` once for all workers. Return the options and a note (may be empty)."""
    missing = ""
    if name == "auto":
        name, reason = choose_engine()
        missing = reason if name == "transformers" and visible_gpus() else ""  # GPUs are available, but vLLM is not
    if options.dtype != "auto" or name not in ("transformers", "vllm"):
        return options, missing
    from judgelm.engines.model_files import load_config, split_adapter

    try:
        base, _ = split_adapter(options)
        if name == "transformers":
            from judgelm.engines.dtype import resolve_dtype
            from judgelm.engines.transformers.loaded_model import device_of

            device = device_of(options.device)
            choice = resolve_dtype(base, load_config(base, options), options, device=device)
        else:
            require("vllm", extra="vllm")
            from judgelm.engines.vllm import quiet_imports

            with quiet_imports():
                from judgelm.engines.vllm.arguments import choose_dtype
            choice = choose_dtype(base, options)
    except ModelError:
        return options, missing
    return replace(options, dtype=choice.dtype), "; ".join(filter(None, (missing, choice.note)))


def choose_engine() -> tuple[str, str]:
    """Return the engine that `auto` selects, and the reason."""
    devices = visible_gpus()
    if importlib.util.find_spec("vllm") is None:
        finding = f"found {devices} CUDA device(s), but vllm is not installed; run: {install_hint('vllm')}"
        return "transformers", finding if devices else "vllm is not installed"
    if not devices:
        return "transformers", "no CUDA device found; on a CPU, transformers is as fast as vLLM and starts immediately"
    return "vllm", f"vllm is installed, and {devices} CUDA device(s) were found"


def visible_gpus() -> int:
    """Count the CUDA devices that torch can use."""
    require_local()
    return usable_gpus()


def gpus_each(name: str, options: EngineOptions) -> int:
    """Return the number of GPUs that one engine uses."""
    if name not in MODEL_ENGINES or options.device == "cpu":
        return 0
    return math.prod(_size(options, factor) for factor in GPU_FACTORS)


def _size(options: EngineOptions, factor: str) -> int:
    value = options.engine_args.get(factor, 1)
    if not isinstance(value, int) or value < 1:
        raise ConfigError(f"--engine-arg {factor}={value}: expected an integer of at least 1")
    return value


def unused_gpus_note(visible: int, used: int) -> str:
    """Describe idle GPUs, if any, and how to use them."""
    if not used or visible < 2 * used:
        return ""
    all_used = visible // used * used
    return (
        f"GPUs: using {used} of {visible}; to run {all_used // used} replicas, pass --gpus {all_used} to judgelm-batch "
        f"or judgelm serve (in Python: cluster=RayCluster(gpus={all_used}))"
    )


def idle_gpus(name: str, options: EngineOptions) -> list[str]:
    """Return a note about idle GPUs unless the user chose a device."""
    if name not in MODEL_ENGINES or options.device not in ("auto", "cuda"):
        return []
    note = unused_gpus_note(visible_gpus(), gpus_each(name, options))
    return [note] if note else []


def _load_scripted(options: EngineOptions) -> Engine:
    from judgelm.engines.scripted import ScriptedEngine

    return ScriptedEngine.load(options)


def _load_transformers(options: EngineOptions) -> Engine:
    require_local()
    require_version("transformers")
    if options.quantization is not None:
        require("bitsandbytes", extra="train")
    from judgelm.engines.model_files import has_reward_head
    from judgelm.engines.transformers.engine import RewardEngine, TransformersEngine

    return (RewardEngine if has_reward_head(options) else TransformersEngine).load(options)


def _load_vllm(options: EngineOptions) -> Engine:
    require("vllm", extra="vllm")
    require_version("vllm")
    require_version("transformers")
    from judgelm.engines.vllm import quiet_imports

    with quiet_imports():
        from judgelm.engines.model_files import has_reward_head
        from judgelm.engines.vllm.engine import VllmEngine, VllmRewardEngine

    return (VllmRewardEngine if has_reward_head(options) else VllmEngine).load(options)


def _load_openai(options: EngineOptions) -> Engine:
    from judgelm.engines.openai.engine import OpenAIEngine

    return OpenAIEngine(options)


ENGINES: dict[str, Callable[[EngineOptions], Engine]] = {
    "transformers": _load_transformers,
    "vllm": _load_vllm,
    "openai": _load_openai,
    "scripted": _load_scripted,
}
