"""Generate the page `docs/benchmarks.md` from `figures.yaml` and stored results.

    python -m benchmarks.figures            # writes the page
    python -m benchmarks.figures --stale    # lists outdated rows, which the page omits

A figure is a string, or a path such as `/sets/pandalm/n` into the row's `stored` JSON. The path leads to a number, a
list of a value and its bounds, or an object with `value` (or `auc`), `low` and `high` (or `interval`), and often `n`.
"""

import argparse
import json
import re
import sys
from collections.abc import Mapping
from datetime import date
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError, model_validator

from judgelm.errors import InputError

FOLDER = Path(__file__).parent
ROWS, PAGE = FOLDER / "figures.yaml", FOLDER.parent / "docs/benchmarks.md"
UNITS = {
    "%": (100, ".1f"), "points": (100, "+.1f"), "AUC": (1, ".2f"), "times": (1, "#.3g"), "pairs/s": (1, "#.3g"),
    "tokens/s": (1, ",.0f"), "GiB": (2**-30, ".1f"), "TFLOP/s": (1e-12, ".0f"), "TB/s": (1e-12, ".1f"),
    "of": (1, ",.0f"),
}  # fmt: skip
"""Factor and format by unit."""


class Row(BaseModel):
    """A row of the page.

    Attributes:
        figures: figures by name; the name of a single figure is empty.
        n: sample size, or without a digit, the noun after the stored sizes.
        machine: key of one of the page's machines.
        stored: file in this folder for figures that are paths.
        unit: unit of those figures, a key of `UNITS`.
        minutes: approximate duration of the command.
        stale: omitted from the page because the code has changed or the machine is gone.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    what: str
    figures: dict[str, str]
    n: str
    command: str
    date: date
    machine: str
    stored: str | None = None
    unit: str = "%"
    minutes: float | None = None
    stale: bool = False

    @model_validator(mode="after")
    def _known_unit(self) -> "Row":
        if self.unit not in UNITS:
            raise ValueError(f"unit {self.unit!r}: expected {', '.join(UNITS)}")
        return self


class Section(BaseModel):
    """A section: title, introduction, and rows."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    title: str
    rows: list[Row]
    text: str = ""


class Page(BaseModel):
    """The whole page; `machines` maps names used in rows to sentences."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    head: str
    machines: dict[str, str]
    sections: list[Section]
    foot: str

    @model_validator(mode="after")
    def _known_machines(self) -> "Page":
        for row in (row for section in self.sections for row in section.rows):
            if row.machine not in self.machines:
                raise ValueError(f"row {row.what!r}: machine {row.machine!r}: expected {', '.join(self.machines)}")
        return self


def read(file: Path = ROWS) -> Page:
    """Read the rows.

    Raises:
        InputError: The file is not valid.
    """
    try:
        return Page.model_validate(yaml.safe_load(file.read_text(encoding="utf-8")))
    except (yaml.YAMLError, ValidationError) as error:
        raise InputError(f"{file}: {error}") from error


def render(page: Page, folder: Path = FOLDER) -> str:
    """Write the page as Markdown; sections without rows are omitted.

    Raises:
        InputError: A path does not lead to a figure.
    """
    parts = [page.head.strip(), "\n".join(f"- **{name}**: {text}" for name, text in page.machines.items())]
    for section in page.sections:
        lines = [_line(row, folder) for row in section.rows if not row.stale]
        if lines:
            table = "| what | figure | n | command | date | machine |\n|---|---|---|---|---|---|\n" + "\n".join(lines)
            parts += [f"## {section.title}", *([section.text.strip()] if section.text else []), table]
    return "\n\n".join([*parts, page.foot.strip()]) + "\n"


def _line(row: Row, folder: Path) -> str:
    """Return the cells of a row."""
    stored = {name: _at(row, path, folder) for name, path in row.figures.items() if path.startswith("/")}
    texts = [
        (f"{name}: " if name else "") + (_text(row, text, stored[name]) if name in stored else text)
        for name, text in row.figures.items()
    ]
    n = row.n
    if not re.search(r"\d", n):
        counts = [f"{value['n']:,}" for value in stored.values() if isinstance(value, Mapping) and "n" in value]
        if len(counts) < len(row.figures):
            raise InputError(f"{ROWS.name}: row {row.what!r}: n is not stored with each figure; write it")
        n = f"{'; '.join(counts if len(set(counts)) > 1 else counts[:1])} {n}"
    cells = (row.what, "; ".join(texts), n, row.command, row.date, row.machine)
    return f"| {' | '.join(map(str, cells))} |"


def _at(row: Row, path: str, folder: Path) -> Any:
    """Return the value at a path in the stored results."""
    place: Any = json.loads((folder / (row.stored or "")).read_text(encoding="utf-8")) if row.stored else None
    for key in path.split("/")[1:]:
        try:
            place = place[int(key) if isinstance(place, list) else key]
        except (LookupError, TypeError, ValueError):
            raise InputError(f"{ROWS.name}: row {row.what!r}: {row.stored} has nothing at {path}") from None
    return place


def _text(row: Row, path: str, stored: Any) -> str:
    """Format a value and its bounds in the row's unit."""
    factor, form = UNITS[row.unit]
    if isinstance(stored, Mapping):
        bounds = stored.get("interval") or [stored[key] for key in ("low", "high") if key in stored]
        stored = [stored.get("value", stored.get("auc")), *bounds]
    numbers = stored if isinstance(stored, list) else [stored]
    if len(numbers) not in (1, 3) or any(type(number) not in (int, float) for number in numbers):
        raise InputError(f"{ROWS.name}: row {row.what!r}: {path} is no number with its bounds; name the place of one")
    value, *bounds = (number * factor for number in numbers)
    unit = "" if row.unit == "of" else f" {row.unit}"
    plain = form.removeprefix("+")
    return f"{value:{form}}{unit}" + (f" ({bounds[0]:{plain}} to {bounds[1]:{plain}})" if bounds else "")


def stale_rows(page: Page) -> str:
    """List outdated rows with command and duration."""
    rows = [row for section in page.sections for row in section.rows if row.stale]
    return "".join(f"{row.what} ({row.date}): {row.command}, {row.minutes or '?'} min\n" for row in rows)


def main() -> None:
    """Write the page, or list outdated rows."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--stale", action="store_true", help="show the rows to be measured again; write nothing")
    options = parser.parse_args()
    try:
        page = read()
        if options.stale:
            print(stale_rows(page), end="")
        else:
            PAGE.write_text(render(page), encoding="utf-8")
    except (InputError, OSError) as error:
        sys.exit(f"benchmarks.figures: {error}")


if __name__ == "__main__":
    main()
