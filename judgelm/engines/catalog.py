"""All engines by name, and the door through which one is had; what an engine needs is imported only behind it."""

import importlib.util
from collections.abc import Callable

from judgelm.engines.base import Engine, EngineOptions, refuse_engine_args, require, require_version
from judgelm.errors import ConfigError


def load_engine(name: str, options: EngineOptions) -> Engine:
    """The engine of that name, its model loaded; `auto` takes `choose_engine`'s.

    Raises:
        ConfigError: no such engine.
        ModelError: the model cannot be loaded.
    """
    if name == "auto":
        name, _ = choose_engine()
    if name not in ENGINES:
        raise ConfigError(f"engine {name!r} does not exist; there are: auto, {', '.join(ENGINES)}")
    load: Callable[[EngineOptions], Engine] = ENGINES[name]
    return load(options)


def choose_engine() -> tuple[str, str]:
    """The engine that `auto` takes on this machine, and why."""
    if importlib.util.find_spec("vllm") is None:
        return "transformers", "vllm is not installed"
    import torch

    if not torch.cuda.is_available():
        return "transformers", "torch sees no CUDA device, and on a CPU transformers starts at once and is as fast"
    return "vllm", f"vllm is installed and torch sees {torch.cuda.device_count()} CUDA device(s)"


def _load_scripted(options: EngineOptions) -> Engine:
    from judgelm.engines.scripted import ScriptedEngine

    refuse_engine_args(options, "scripted")
    return ScriptedEngine.load(options)


def _load_transformers(options: EngineOptions) -> Engine:
    refuse_engine_args(options, "transformers")
    require_version("transformers")
    if options.quantization is not None:
        require("bitsandbytes", extra="train")
    from judgelm.engines.transformers_engine import TransformersEngine

    return TransformersEngine.load(options)


def _load_vllm(options: EngineOptions) -> Engine:
    require("vllm", extra="vllm")
    for one in ("vllm", "transformers"):
        require_version(one)
    from judgelm.engines.vllm_environment import quiet_imports

    with quiet_imports():
        from judgelm.engines.vllm_engine import VllmEngine

    return VllmEngine.load(options)


def _load_openai(options: EngineOptions) -> Engine:
    require("openai", extra="openai")
    from judgelm.engines.openai_engine import OpenAIEngine

    return OpenAIEngine.load(options)


ENGINES: dict[str, Callable[[EngineOptions], Engine]] = {
    "transformers": _load_transformers,
    "vllm": _load_vllm,
    "openai": _load_openai,
    "scripted": _load_scripted,
}
