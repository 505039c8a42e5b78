"""All engines by name, and `load_engine`, which imports an engine's dependencies only when it is loaded."""

import importlib.util
from collections.abc import Callable
from dataclasses import replace

from judgelm.engines.base import INT8, Engine, EngineOptions, release_openmp_threads, require, require_version
from judgelm.engines.model_cache import read_speeds
from judgelm.errors import ConfigError, ModelError, not_found
from judgelm.package import install_hint


def load_engine(name: str, options: EngineOptions) -> Engine:
    """Load the engine of that name; `auto` takes `choose_engine`'s.

    Raises:
        ConfigError: unknown engine.
        ModelError: the model cannot be loaded.
    """
    if name == "auto":
        name, _ = choose_engine(options.model, options.adapter)
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
        name, _ = choose_engine(options.model, options.adapter)
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
            choice = resolve_dtype(base, load_config(base, options), options, device=device, engine=name)
        else:
            require("vllm", extra="vllm")
            from judgelm.engines.vllm import quiet_imports

            with quiet_imports():
                from judgelm.engines.vllm.backends import choose_dtype
            choice = choose_dtype(base, options)
    except ModelError:
        return options, missing
    return replace(options, dtype=choice.dtype), "; ".join(filter(None, (missing, choice.note)))


def choose_engine(model: str | None = None, adapter: str | None = None) -> tuple[str, str]:
    """The engine that `auto` takes on this machine, and the reason.

    Args:
        model: what is to be loaded; with speeds measured for it, the fastest engine is taken.
        adapter: its adapter, if it is not in the model's folder.
    """
    if not _has_vllm():
        return "transformers", missing_vllm_note(visible_gpus()) or "vllm is not installed"
    rates: dict[str, float] = {}
    for speed in read_speeds(model, adapter) if model is not None else ():
        if speed.quantization is None:
            rates[speed.engine] = max(rates.get(speed.engine, 0.0), speed.prompt_tokens_per_s)
    if len(rates) > 1:
        fast, slow = sorted(rates, key=lambda name: -rates[name])[:2]
        return fast, f"measured at {rates[fast] / rates[slow]:.2f}x the speed of {slow} on this machine"
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
    """Number of CUDA devices that torch sees on this machine."""
    import torch

    return torch.cuda.device_count() if torch.cuda.is_available() else 0


def _load_scripted(options: EngineOptions) -> Engine:
    from judgelm.engines.scripted import ScriptedEngine

    return ScriptedEngine.load(options)


def _load_transformers(options: EngineOptions) -> Engine:
    require_version("transformers")
    if options.quantization not in (None, INT8):
        require("bitsandbytes", extra="train")
    from judgelm.engines.transformers.engine import TransformersEngine

    return TransformersEngine.load(options)


def _load_vllm(options: EngineOptions) -> Engine:
    require("vllm", extra="vllm")
    require_version("vllm")
    require_version("transformers")
    from judgelm.engines.vllm import quiet_imports

    with quiet_imports():
        from judgelm.engines.vllm.engine import VllmEngine

    return VllmEngine.load(options)


def _load_openai(options: EngineOptions) -> Engine:
    require("openai", extra="openai")
    from judgelm.engines.openai.engine import OpenAIEngine

    return OpenAIEngine(options)


ENGINES: dict[str, Callable[[EngineOptions], Engine]] = {
    "transformers": _load_transformers,
    "vllm": _load_vllm,
    "openai": _load_openai,
    "scripted": _load_scripted,
}
