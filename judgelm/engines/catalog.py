"""All engines by name, `load_engine`, which imports an engine's dependencies only when it is loaded, and its GPUs."""

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
"""vLLM's arguments whose product is the number of its devices."""


def load_engine(name: str, options: EngineOptions) -> Engine:
    """Load the engine of that name; `auto` takes `choose_engine`'s.

    Raises:
        ConfigError: unknown engine.
        ModelError: the model cannot be loaded.
    """
    if name == "auto":
        name, _ = choose_engine()
    check_engine(name)
    if options.engine_args and name in ("scripted", "transformers"):
        names = ", ".join(options.engine_args)
        raise ConfigError(f"the {name} engine has no engine arguments of its own, but got {names}; leave it out")
    engine = ENGINES[name](options)
    release_openmp_threads()  # the engine may run in another thread
    return engine


def check_engine(name: str) -> None:
    """Refuse an engine that does not exist.

    Raises:
        ConfigError: it is neither `auto` nor one of judgelm's.
    """
    if name != "auto" and name not in ENGINES:
        raise not_found("engine", name, ("auto", *ENGINES))


def resolve_options(name: str, options: EngineOptions) -> tuple[EngineOptions, str]:
    """The options with `dtype: auto` resolved on this machine, for other workers to load the same, and a note.

    A model that cannot be read stays `auto`: loading it gives the error. So do engines that run no model here.
    """
    missing = ""
    if name == "auto":
        name, _ = choose_engine()
        missing = missing_vllm_note(visible_gpus()) if name == "transformers" and not _has_vllm() else ""
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
    """The engine that `auto` takes on this machine, and the reason."""
    if not _has_vllm():
        return "transformers", missing_vllm_note(visible_gpus()) or "vllm is not installed"
    if not (devices := visible_gpus()):
        return "transformers", "torch sees no CUDA device, and on a CPU transformers starts at once and is as fast"
    return "vllm", f"vllm is installed and torch sees {devices} CUDA device(s)"


def missing_vllm_note(cuda_devices: int) -> str:
    """Advice to install vLLM, where torch sees these devices and vLLM is missing; else empty."""
    if not cuda_devices:
        return ""
    return (
        f"torch sees {cuda_devices} CUDA device(s), where auto prefers vllm, but vllm is not installed; "
        f"run: {install_hint('vllm')}"
    )


def _has_vllm() -> bool:
    return importlib.util.find_spec("vllm") is not None


def visible_gpus() -> int:
    """Number of CUDA devices that torch can use on this machine.

    Raises:
        MissingExtraError: torch is not installed, without which no model runs here.
    """
    require_local()
    return usable_gpus()


def gpus_each(name: str, options: EngineOptions) -> int:
    """GPUs of one engine: vLLM's devices for a group of tensor and pipeline parallelism, times its data parallel size.

    Raises:
        ConfigError: one of vLLM's sizes is not a whole number of 1 or more.
    """
    if name not in MODEL_ENGINES or options.device == "cpu":
        return 0
    return math.prod(_size(options, factor) for factor in GPU_FACTORS)


def _size(options: EngineOptions, factor: str) -> int:
    value = options.engine_args.get(factor, 1)
    if not isinstance(value, int) or value < 1:
        raise ConfigError(f"--engine-arg {factor}={value}: it must be a whole number of 1 or more")
    return value


def unused_gpus_note(visible: int, used: int) -> str:
    """The line on GPUs that a single engine leaves idle, with the option that uses them; empty where none does.

    Args:
        visible: GPUs that torch sees on this machine.
        used: GPUs of the engine, 0 where it runs elsewhere.
    """
    if not used or visible < 2 * used:
        return ""
    all_used = visible // used * used
    return (
        f"GPUs: uses {used} of the {visible} that torch sees; --gpus {all_used} of judgelm-batch and judgelm serve (in "
        f"Python cluster=RayCluster(gpus={all_used})) judges with {all_used // used} copies of the model"
    )


def idle_gpus(name: str, options: EngineOptions) -> list[str]:
    """The note on GPUs that an engine in this process leaves idle; none where its device was chosen.

    Args:
        name: of the engine, which has loaded torch if it uses GPUs.
        options: the engine's options.
    """
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
