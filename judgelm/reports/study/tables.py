"""A study's tables as CSV, and their cells as a page shows them."""

import csv
import io
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from judgelm.metrics.resampling import Estimate
from judgelm.reports import wording
from judgelm.studies.result import Cell, Kind, Table, format_bounds

MOST_ROWS = 2000
"""Rows of a table that its page holds; its CSV file has all."""

UNDEFINED = "–"
_SMALL = 0.0005
_PARTS = ("low", "high", "n", "level")


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownCell:
    """A cell as text, the small print under it, and what it sorts by: a number, or None for its text."""

    text: str
    small: str = ""
    order: float | None = None
    is_number: bool = False


def table_csv(table: Table) -> str:
    """A table as CSV with a heading line.

    A column that holds an estimate becomes five: its value under the column's key, and `_low`, `_high`, `_n`, `_level`
    (of the interval, 0.95 for instance). Shares stay in [0, 1]. What is undefined is an empty cell.
    """
    estimated = [any(isinstance(row[index], Estimate) for row in table.rows) for index in range(len(table.columns))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = []
    for column, wide in zip(table.columns, estimated, strict=True):
        heads += [column.key, *(f"{column.key}_{part}" for part in _PARTS if wide)]
    writer.writerow(heads)
    for row in table.rows:
        cells = [_csv_cells(cell, wide) for cell, wide in zip(row, estimated, strict=True)]
        writer.writerow([cell for group in cells for cell in group])
    return out.getvalue()


def page_table(table: Table, path: str) -> dict[str, Any]:
    """A table for the page's template; `path` is its CSV file's, relative to the page."""
    kinds = [column.kind for column in table.columns]
    rows = [[shown(cell, kind) for cell, kind in zip(row, kinds, strict=True)] for row in table.rows[:MOST_ROWS]]
    return {
        "name": table.name,
        "title": table.title,
        "source": table.source,
        "note": table.note,
        "heads": [(column.heading, column.kind != "text") for column in table.columns],
        "rows": rows,
        "total": len(table.rows),
        "intervals": _interval_note(table),
        "undefined": any(cell.text == UNDEFINED for row in rows for cell in row),
        "path": path,
    }


def shown(cell: Cell, kind: Kind) -> ShownCell:
    """A cell as its column's kind writes it."""
    is_number = kind != "text"
    if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
        return ShownCell(text=UNDEFINED, is_number=is_number)
    if isinstance(cell, Estimate):
        if not math.isfinite(cell.value):
            return ShownCell(text=UNDEFINED, small=f"n = {cell.n:,}", is_number=True)
        return ShownCell(
            text=_written(cell.value, kind),
            small=f"{_bounds(cell, kind)}, n = {cell.n:,}",
            order=cell.value,
            is_number=True,
        )
    if isinstance(cell, str):
        return ShownCell(text=cell, is_number=is_number)
    return ShownCell(text=_written(cell, kind), order=float(cell), is_number=is_number)


def _written(value: float, kind: Kind) -> str:
    match kind:
        case "share":
            return wording.percent(value)
        case "number":
            return f"{value:.1e}" if 0 < abs(value) < _SMALL else f"{value:,.3f}"  # 0.000 would read as zero
        case "count":
            return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}"
        case "text":
            return f"{value:g}" if isinstance(value, float) else str(value)


def _bounds(cell: Estimate, kind: Kind) -> str:
    if kind == "share" and math.isfinite(cell.low) and math.isfinite(cell.high):
        return wording.bounds(cell)
    return format_bounds(cell, lambda bound: f"{bound:,.3f}")


def _interval_note(table: Table) -> str:
    levels = sorted({cell.level for row in table.rows for cell in row if isinstance(cell, Estimate)})
    return f"Small print: {' and '.join(f'{100 * level:g} %' for level in levels)} interval." if levels else ""


def _csv_cells(cell: Cell, wide: bool) -> Sequence[Cell]:
    if isinstance(cell, Estimate):
        return [_finite(cell.value), *(_finite(getattr(cell, part)) for part in _PARTS)]
    return [_finite(cell), *[None] * len(_PARTS)] if wide else [_finite(cell)]


def _finite(value: Any) -> Any:
    return None if isinstance(value, float) and not math.isfinite(value) else value
