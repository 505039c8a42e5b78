"""Steps that the judging commands share: announce and load the judge, avoid pauses, show the address."""

import gc
import logging
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from judgelm.cli.console import console
from judgelm.cluster.plan import RayCluster
from judgelm.judge import Judge, engine_of
from judgelm.judges.cards import default_card

_START_LOG = logging.getLogger("judgelm.vllm_start")
"""The stages of vLLM's start: `START_LOG` of `judgelm.engines.vllm`."""


def announced(
    model: str | None, engine: str, cluster: RayCluster | None, *, adapter: str | None = None, quiet: bool
) -> str:
    """Print which model is loaded, by which engine and why; the engine's name. Workers choose for themselves.

    From then on the stages of vLLM's start are printed too.
    """
    name, why = engine_of(model, engine, adapter=adapter) if cluster is None else (engine, "")
    if cluster is not None:
        why = f"on workers, Ray address {cluster.address}"
    if not quiet:
        console.message(f"loading {shown_model(model)} ({name} engine{why and f': {why}'})")
    _START_LOG.setLevel(logging.WARNING if quiet else logging.INFO)
    if not any(isinstance(handler, _ConsoleHandler) for handler in _START_LOG.handlers):
        _START_LOG.addHandler(_ConsoleHandler())
    return name


class _ConsoleHandler(logging.Handler):
    """Prints messages to the console, which is looked up anew for each."""

    def emit(self, record: logging.LogRecord) -> None:
        console.message(record.getMessage())


@contextmanager
def loaded_judge(
    model: str | None, engine: str, *, quiet: bool, cluster: RayCluster | None = None, **options: Any
) -> Iterator[Judge]:
    """The judge, announced before it is loaded, closed at the end. `options` are those of `Judge`."""
    name = announced(model, engine, cluster, adapter=options.get("adapter"), quiet=quiet)
    with Judge(model, engine=name, cluster=cluster, **options) as judge, heap_frozen():
        if not quiet:
            show_notes(judge.notes)
            if cluster is not None:
                stats = judge.engine.stats()
                console.message(f"{stats['workers']}, on {', '.join(stats['nodes'])}")
        yield judge


def shown_model(model: str | None) -> str:
    """A model's name for messages."""
    return f"{default_card().name}, since no model is named" if model is None else model


def show_notes(notes: Iterable[str]) -> None:
    """Print notes of a judge (the licences of its card, the engine's own choices), one per line."""
    for note in notes:
        console.message(note)


@contextmanager
def heap_frozen() -> Iterator[None]:
    """Exclude the objects that exist at start-up from garbage collection.

    With torch they are a million objects; each collection of them would stop all work.
    """
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()  # else some libraries complain of leaks when Python ends


def shown_address(host: str, port: int) -> str:
    """An address as a URL for browsers and clients on this machine."""
    name = f"[{host}]" if ":" in host else {"0.0.0.0": "127.0.0.1"}.get(host, host)
    return f"http://{name}:{port}"
