"""Shared steps of `judgelm serve` and `judgelm web`: load the judge, avoid pauses, print the address."""

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from judgelm.cli.console import console
from judgelm.judge import Judge
from judgelm.judges.cards import default_card


@contextmanager
def loaded_judge(model: str | None, engine: str, *, quiet: bool, **options: Any) -> Iterator[Judge]:
    """The judge, announced before it is loaded, closed at the end. `options` are those of `Judge`."""
    if not quiet:
        console.print(f"loading {shown_model(model)} ({engine} engine)", markup=False, highlight=False)
    with Judge(model, engine=engine, **options) as judge, heap_frozen():
        if not quiet:
            show_notes(judge)
        yield judge


def shown_model(model: str | None) -> str:
    """A model's name for messages."""
    return f"{default_card().name}, since no model is named" if model is None else model


def show_notes(judge: Judge) -> None:
    """Print the licences of a judge that has a card, and the engine's own choices, one per line."""
    for note in judge.notes:
        console.print(note, markup=False, highlight=False, soft_wrap=True)


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
