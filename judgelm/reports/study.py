"""Write a study's results to a folder.

FOLDER/study.json          all numbers (`StudyResult.to_json`), written last
FOLDER/report.html         self-contained page
FOLDER/tables/NAME.csv     one per table
FOLDER/figures/NAME.svg    one per figure, with NAME.png at 150 dpi
"""

import csv
import io
import json
import math
import os
import re
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from judgelm.errors import RunError
from judgelm.jsonl import parse_json
from judgelm.metrics.resampling import Estimate
from judgelm.reports import wording
from judgelm.reports.cells import CellTexts
from judgelm.reports.html import render_page
from judgelm.reports.plots import Drawn, draw
from judgelm.studies.result import Cell, Figure, Kind, Lines, StudyResult, Table
from judgelm.studies.sentences import format_bounds, format_percents

STUDY_FILE, PAGE_FILE = "study.json", "report.html"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


def write_study(result: StudyResult, folder: Path, *, overwrite: bool = False) -> list[Path]:
    """Write a study to a folder and return the paths of its files. Unrelated files are kept.

    Files are moved from a temporary folder, `study.json` last, so a folder with `study.json` is complete. `overwrite`
    replaces the whole study.

    Raises:
        RunError: the folder is not writable, or it contains a study or one of the files and `overwrite` is False.
        ValueError: the name of a table or figure is not valid as a file name.
    """
    files = study_files(result)
    try:
        _check_free(folder, list(files), overwrite)
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".study-", dir=folder) as draft:
            for name, content in files.items():
                path = Path(draft, name)
                path.parent.mkdir(exist_ok=True)
                path.write_bytes(content)
            if overwrite:
                _remove_study(folder)
            for name in sorted(files, key=lambda file: file == STUDY_FILE):
                (folder / name).parent.mkdir(exist_ok=True)
                os.replace(Path(draft, name), folder / name)
    except OSError as error:
        raise RunError(f"{folder}: cannot write the study: {error.strerror}; choose another folder") from error
    return [folder / name for name in files]


def study_files(result: StudyResult) -> dict[str, bytes]:
    """Return the contents of a study's files by path, with the page and `study.json` first."""
    for name in (part.name for part in (*result.tables, *result.figures)):
        if not _NAME.fullmatch(name):
            raise ValueError(
                f"study {result.study}: {name!r} is not a valid file name; use lower-case letters, digits, and hyphens"
            )
    drawn = [(figure, draw(figure)) for figure in result.figures]
    text = json.dumps(result.to_json(), indent=1, ensure_ascii=False, allow_nan=False, default=_plain)
    files = {PAGE_FILE: _bytes(_page(result, drawn)), STUDY_FILE: _bytes(text)}
    files |= {_table_path(table.name): _bytes(table_csv(table)) for table in result.tables}
    for figure, pictures in drawn:
        files[f"figures/{figure.name}.svg"] = _bytes(pictures.svg)
        files[f"figures/{figure.name}.png"] = pictures.png
    return files


def _page(result: StudyResult, drawn: list[tuple[Figure, Drawn]]) -> str:
    return render_page(
        "study.html.j2",
        script="tables.js",
        styles=("report.css", "study.css"),
        title=result.title,
        study=result,
        tables=[page_table(table, _table_path(table.name)) for table in result.tables],
        figures=[_page_figure(figure, pictures) for figure, pictures in drawn],
        max_rows=MAX_PAGE_ROWS,
        n_files=2 + len(result.tables) + 2 * len(result.figures),
    )


def _page_figure(figure: Figure, pictures: Drawn) -> dict[str, Any]:
    """Leave the SVG unescaped, because matplotlib already escapes strings."""
    return {
        "name": figure.name,
        "title": figure.title,
        "svg": Markup(pictures.inline),
        "wide": pictures.wide,
        "diagonal": isinstance(figure, Lines) and figure.diagonal,
    }


def _table_path(name: str) -> str:
    return f"tables/{name}.csv"


def _check_free(folder: Path, names: list[str], overwrite: bool) -> None:
    if folder.exists() and not folder.is_dir():
        raise RunError(f"{folder} is a file; pass a folder with -o")
    taken = next((name for name in names if (folder / name).exists()), None)
    if (folder / STUDY_FILE).exists():
        taken = "a study"
    if taken is not None and not overwrite:
        raise RunError(f"{folder}: already contains {taken}; choose another -o, or pass --overwrite to replace it")


def _remove_study(folder: Path) -> None:
    """Remove `study.json` first, so that an interrupted removal does not leave an incomplete study."""
    mark = folder / STUDY_FILE
    try:
        study = parse_json(mark.read_text(encoding="utf-8"))
        tables = [part["name"] for part in study["tables"]]
        figures = [part["name"] for part in study["figures"]]
    except (OSError, ValueError, KeyError, TypeError):
        tables, figures = [], []
    mark.unlink(missing_ok=True)
    names = [_table_path(name) for name in tables if _is_name(name)]
    names += [f"figures/{name}.{kind}" for name in figures if _is_name(name) for kind in ("svg", "png")]
    for name in names:
        (folder / name).unlink(missing_ok=True)
    for name in ("tables", "figures"):
        with suppress(OSError):  # missing, or contains other files
            (folder / name).rmdir()


def _is_name(name: object) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _bytes(text: str) -> bytes:
    r"""Encode as UTF-8, writing lone surrogates as `\udXXX`, as in JSON."""
    return text.encode("utf-8", errors="backslashreplace")


def _plain(value: Any) -> Any:
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a study's result contains a value of type {type(value).__name__}, which is not JSON-serializable")


MAX_PAGE_ROWS = 2000
"""Maximum number of rows per table on the page. The CSV file contains all rows."""

UNDEFINED = "–"
_SMALL = 0.0005
_PARTS = ("low", "high", "n", "level")


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShownCell:
    text: str
    small: str = ""
    order: float | None = None
    is_number: bool = False


def table_csv(table: Table, texts: CellTexts | None = None) -> str:
    """Return a table as CSV. `texts` counts formulas.

    A column of estimates becomes five columns: its key, and the key with `_low`, `_high`, `_n`, and `_level`. Shares
    are between 0 and 1, and undefined cells are empty.
    """
    estimated = [any(isinstance(row[index], Estimate) for row in table.rows) for index in range(len(table.columns))]
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    heads = []
    for column, wide in zip(table.columns, estimated, strict=True):
        heads += [column.key, *(f"{column.key}_{part}" for part in _PARTS if wide)]
    writer.writerow(heads)
    texts = texts or CellTexts()
    for row in table.rows:
        cells = [_csv_cells(cell, wide) for cell, wide in zip(row, estimated, strict=True)]
        writer.writerow([texts.fitted(cell) for group in cells for cell in group])
    return out.getvalue()


def table_notes(result: StudyResult) -> list[str]:
    """Return notes about CSV cells that were changed or look like formulas."""
    texts = CellTexts()
    for table in result.tables:
        table_csv(table, texts)
    return [f"tables: {note}" for note in (*texts.notes(), *texts.formula_note("import the columns as text"))]


def page_table(table: Table, path: str) -> dict[str, Any]:
    """Convert a table for the page template."""
    kinds = [column.kind for column in table.columns]
    rows = [[shown(cell, kind) for cell, kind in zip(row, kinds, strict=True)] for row in table.rows[:MAX_PAGE_ROWS]]
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


def shown(cell: Cell, kind: Kind) -> _ShownCell:
    """Format a cell according to the kind of its column."""
    is_number = kind != "text"
    if cell is None or (isinstance(cell, float) and not math.isfinite(cell)):
        return _ShownCell(text=UNDEFINED, is_number=is_number)
    if isinstance(cell, Estimate):
        if not math.isfinite(cell.value):
            return _ShownCell(text=UNDEFINED, small=f"n = {cell.n:,}", is_number=True)
        return _ShownCell(
            text=_written(cell.value, kind),
            small=f"{_bounds(cell, kind)}, n = {cell.n:,}",
            order=cell.value,
            is_number=True,
        )
    if isinstance(cell, str):
        return _ShownCell(text=cell, is_number=is_number)
    return _ShownCell(text=_written(cell, kind), order=float(cell), is_number=is_number)


def _written(value: float, kind: Kind) -> str:
    match kind:
        case "share":
            return wording.percent(value)
        case "number":
            return f"{value:.1e}" if 0 < abs(value) < _SMALL else f"{value:,.3f}"  # 0.000 would look like zero
        case "count":
            return f"{value:,}" if isinstance(value, int) else f"{value:,.0f}"
        case "text":
            return f"{value:g}" if isinstance(value, float) else str(value)


def _bounds(cell: Estimate, kind: Kind) -> str:
    if kind == "share" and math.isfinite(cell.low) and math.isfinite(cell.high):
        return format_percents(cell)
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
