"""What the commands that stay up with a judge share: loading it, working without pauses, saying where they are."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from judgelm.cli.console import console
from judgelm.engines.catalog import ENGINES, choose_engine
from judgelm.errors import ConfigError
from judgelm.judge import Judge


def known_engine(engine: str) -> str:
    """The engine's name, `auto` made one of them.

    Raises:
        ConfigError: there is no such engine.
    """
    if engine == "auto":
        return choose_engine()[0]
    if engine not in ENGINES:
        raise ConfigError(f"engine {engine!r} does not exist; there are: auto, {', '.join(ENGINES)}")
    return engine


@contextmanager
def loaded_judge(model: str, engine: str, *, quiet: bool, **options: Any) -> Iterator[Judge]:
    """The judge, announced before it is loaded, which takes long; closed in the end. `options` are `Judge`'s."""
    if not quiet:
        console.print(f"loading {model} ({engine} engine)", markup=False, highlight=False)
    with Judge(model, engine=engine, **options) as judge, heap_frozen():
        if not quiet:
            show_notes(judge)
        yield judge


def show_notes(judge: Judge) -> None:
    """Choices that the engine made by itself, a line each."""
    for note in judge.notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)


@contextmanager
def heap_frozen() -> Iterator[None]:
    """Within it, Python looks for garbage only among what is made within it.

    The modules and the model, with torch a million objects, stay; each search of them would stop all work.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()  # else some libraries complain of leaks when Python ends


def shown_address(host: str, port: int) -> str:
    """An address as a browser or client of this machine takes it."""
    place = f"[{host}]" if ":" in host else {"0.0.0.0": "127.0.0.1"}.get(host, host)
    return f"http://{place}:{port}"
