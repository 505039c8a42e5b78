"""All engines by name, and the door through which one is had; what an engine needs is imported only behind it."""

from collections.abc import Callable

from judgelm.engines.base import Engine, EngineOptions, require
from judgelm.errors import ConfigError


def load_engine(name: str, options: EngineOptions) -> Engine:
    """The engine of that name, its model loaded.

    Raises:
        ConfigError: no such engine.
        ModelError: the model cannot be loaded.
    """
    if name not in ENGINES:
        raise ConfigError(f"engine {name!r} does not exist; there are: auto, {', '.join(ENGINES)}")
    load: Callable[[EngineOptions], Engine] = ENGINES[name]
    return load(options)


def _load_scripted(options: EngineOptions) -> Engine:
    from judgelm.engines.scripted import ScriptedEngine

    return ScriptedEngine.load(options)


def _load_transformers(options: EngineOptions) -> Engine:
    if options.quantization is not None:
        require("bitsandbytes", extra="train")
    from judgelm.engines.transformers_engine import TransformersEngine

    return TransformersEngine.load(options)


ENGINES: dict[str, Callable[[EngineOptions], Engine]] = {
    "transformers": _load_transformers,
    "scripted": _load_scripted,
}
AUTO_ENGINE = "transformers"
