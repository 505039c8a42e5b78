"""What a batch run says as it begins: how it read its input, and how it judges."""

from dataclasses import fields
from typing import Any, cast

from judgelm.cli.console import console
from judgelm.data.readers.rows import Reject
from judgelm.data.samples import SampleStream
from judgelm.judge import Judge
from judgelm.modes import BatchMode, Pairwise
from judgelm.modes.factory import JUDGES_OWN


def show_input(stream: SampleStream, judge: Judge, mode: BatchMode) -> None:
    """What the input's fields were taken for, and how it will be judged."""
    mapping = ", ".join(f"{target} = {source}" for target, source in stream.format.mapping.items())
    console.print(f"input: {stream.format.name} ({mapping})", markup=False, highlight=False, soft_wrap=True)
    how = _pairs(judge, mode) if type(mode) is Pairwise else _others(judge, mode)
    console.print(f"judging: {how}", markup=False, highlight=False, soft_wrap=True)
    if getattr(mode, "reasons", "none") != "none" and judge.format.never_explained:
        console.print("[yellow]reasons:[/] this judge saw none in its training, says its card; do not trust them")


def _pairs(judge: Judge, mode: Pairwise) -> str:
    orders = "both orders" if mode.both_orders else "one order"
    if mode.both_orders or mode.order_rule == "probability":
        orders += f", rule {mode.order_rule}"
    low, high = mode.scale
    return f"{orders}, {_template(judge, mode)}, scores {low:g} to {high:g}"


def _others(judge: Judge, mode: BatchMode) -> str:
    """The mode's name, its template, and all that was not left as it is by default."""
    usual = type(mode)()
    said = [
        f"{one.name} {value}"
        for one in fields(cast(Any, mode))
        if one.name not in JUDGES_OWN and (value := getattr(mode, one.name)) != getattr(usual, one.name)
    ]
    return ", ".join([f"mode {mode.name}", _template(judge, mode), *said])


def _template(judge: Judge, mode: BatchMode) -> str:
    """Its name, and where it comes from unless the mode has no other."""
    if "template" not in {one.name for one in fields(cast(Any, mode))}:
        return f"template {mode.template}"
    source = f"from the {judge.format.source}"
    if judge.format.source != "card" and judge.engine.describe()["engine"] == "openai":
        source += ", since a server's model has no card"
    return f"template {mode.template} ({source})"


def show_resume(finished: int, repaired: int) -> None:
    """What earlier sessions left."""
    if repaired:
        console.print(f"mended a torn last line ({repaired} bytes removed)", highlight=False)
    if finished:
        console.print(f"resuming: {finished} samples are already judged", highlight=False)


class RejectPrinter:
    """Prints the first rejects, as all of them are in the rejects file; all of them where there is no such file."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._count = 0

    def __call__(self, reject: Reject) -> None:
        """Print one."""
        self._count += 1
        if self._most is None or self._count <= self._most:
            console.print(f"rejected {reject.message}", markup=False, highlight=False, soft_wrap=True)
        elif self._count == self._most + 1:
            console.print("more rejects follow; all are in the rejects file", highlight=False)
