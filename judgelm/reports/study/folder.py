"""A study's result as a folder: everything as JSON, each table as CSV, each figure as SVG and PNG, and one page.

FOLDER/study.json          all numbers, `StudyResult.to_json`; a folder holds a study when it holds this file
FOLDER/report.html         the page: findings, figures, tables that sort and filter; it loads nothing
FOLDER/tables/NAME.csv     one file for each table
FOLDER/figures/NAME.svg    one for each figure, and NAME.png at 150 dots per inch
"""

import json
import os
import re
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any

from markupsafe import Markup

from judgelm.errors import RunError
from judgelm.jsonl import parse_json
from judgelm.reports.html import render_page
from judgelm.reports.plots import Drawn, draw
from judgelm.reports.study.tables import MOST_ROWS, page_table, table_csv
from judgelm.studies.result import Figure, Lines, StudyResult

STUDY_FILE, PAGE_FILE = "study.json", "report.html"
_NAME = re.compile(r"[a-z0-9][a-z0-9._-]*")


def write_study(result: StudyResult, folder: Path, *, overwrite: bool = False) -> list[Path]:
    """Write everything that a study found into a folder.

    All files are made in a draft folder beside their places and then moved, `study.json` last: a folder with that file
    holds a whole study. Files of others in the folder stay.

    Args:
        result: what to write.
        folder: made where it is not there.
        overwrite: replace the study that the folder holds; tables and figures that it alone has are removed.

    Returns:
        The files written, page and `study.json` first.

    Raises:
        RunError: the folder holds a study, or a file of a name that is needed, and `overwrite` is False; or it
            cannot be written.
        ValueError: a table or figure has a name that is no file's: lower case letters, digits, hyphens.
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
    """The files of a study by their path in its folder, page and `study.json` first.

    Raises:
        ValueError: as `write_study`.
    """
    for name in (part.name for part in (*result.tables, *result.figures)):
        if not _NAME.fullmatch(name):
            raise ValueError(f"study {result.study}: {name!r} cannot name a file; use lower case, digits and hyphens")
    drawn = [(figure, draw(figure)) for figure in result.figures]
    text = json.dumps(result.to_json(), indent=1, ensure_ascii=False, allow_nan=False, default=_plain)
    files = {PAGE_FILE: _bytes(_page(result, drawn)), STUDY_FILE: _bytes(text)}
    files |= {_table_path(table.name): _bytes(table_csv(table)) for table in result.tables}
    for figure, pictures in drawn:
        files[f"figures/{figure.name}.svg"] = _bytes(pictures.svg)
        files[f"figures/{figure.name}.png"] = pictures.png
    return files


def render_study(result: StudyResult) -> str:
    """The page alone, as one self-contained HTML document; the same result gives the same text."""
    return _page(result, [(figure, draw(figure)) for figure in result.figures])


def _page(result: StudyResult, drawn: list[tuple[Figure, Drawn]]) -> str:
    return render_page(
        "study.html.j2",
        script="tables.js",
        styles=("report.css", "study.css"),
        title=result.title,
        study=result,
        tables=[page_table(table, _table_path(table.name)) for table in result.tables],
        figures=[_page_figure(figure, pictures) for figure, pictures in drawn],
        most_rows=MOST_ROWS,
        n_files=2 + len(result.tables) + 2 * len(result.figures),
    )


def _page_figure(figure: Figure, pictures: Drawn) -> dict[str, Any]:
    """A figure for the template. matplotlib has escaped the text inside, so the SVG is passed on as it is."""
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
        raise RunError(f"{folder}: is a file; give a folder with -o")
    if overwrite:
        return
    if (folder / STUDY_FILE).exists():
        raise RunError(f"{folder}: holds a study; choose another -o, or pass --overwrite to replace it")
    taken = next((name for name in names if (folder / name).exists()), None)
    if taken is not None:
        raise RunError(f"{folder}: holds {taken} already; choose another -o, or pass --overwrite to replace it")


def _remove_study(folder: Path) -> None:
    """Remove the study in the folder, its `study.json` first; an unreadable one names no other files."""
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
        with suppress(OSError):  # missing, or it holds other files
            (folder / name).rmdir()


def _is_name(name: object) -> bool:
    return isinstance(name, str) and _NAME.fullmatch(name) is not None


def _bytes(text: str) -> bytes:
    r"""UTF-8; a lone surrogate becomes `\udXXX`, which is also how JSON writes it."""
    return text.encode("utf-8", errors="backslashreplace")


def _plain(value: Any) -> Any:
    """Convert a numpy scalar for `json`."""
    if hasattr(value, "item"):
        return value.item()
    raise TypeError(f"a study's result holds {type(value).__name__}, which is not JSON")
