"""Record the column names and sheet of a run's input, so that later commands can read files the same way."""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from judgelm.data.readers.files import read_rows
from judgelm.data.readers.inputs import input_files, is_stream
from judgelm.data.readers.rows import Row, row_suffix
from judgelm.data.samples import Reading
from judgelm.errors import InputError, RunError
from judgelm.runs.run_files import read_manifest

_LOOKED_AT = 100


def row_names(reading: Reading) -> dict[str, Any]:
    """Return fingerprint entries for the column names and the sheet."""
    columns = {"columns": dict(reading.columns)} if reading.columns else {}
    return columns | ({"sheet": reading.sheet} if reading.sheet is not None else {})


def recorded_reading(path: str, given: Reading, runs: Iterable[Path], other: str | None = None) -> tuple[Reading, str]:
    """Return options for reading judged rows or labels, and a note about names taken from the runs.

    The user's names take precedence. Recorded columns are used if the file has them. A recorded sheet is used if the
    file has the judged file's name. `other` is a second file to which the user's names may also apply.
    """
    prints = [each for run in runs for each in _fingerprints(_fingerprint_of(run))]
    sheet = _sheet_of(path, given, prints, strict=other is None)
    recorded: dict[str, list[str]] = {}
    for name, column in (item for each in prints for item in each.get("columns", {}).items()):
        recorded.setdefault(name, []).append(column)
    own = dict(given.columns)
    sought = {*own.values(), *(column for columns in recorded.values() for column in columns)}
    fields = _fields(path, sheet, sought) if recorded or (other and own) else set()
    if other is not None:
        others = _fields(other, _sheet_of(other, given, prints, strict=False), sought) if own else set()
        for name, column in own.items():
            if _folded(column) not in fields | others:
                raise InputError(f"--column {name}={column}: neither {path} nor {other} has it; check the name")
        own = {name: column for name, column in own.items() if _folded(column) in fields}
    free = fields - set(map(_folded, own.values()))
    columns = {
        name: _one_of(path, f"--column {name}", present)
        for name in recorded
        if name not in own and (present := [each for each in recorded[name] if _folded(each) in free])
    }
    used = [f"--column {name}={column}" for name, column in columns.items()]
    used += [f"--sheet {sheet}"] if sheet not in (None, given.sheet) else []
    required = given.requires_question and not any(map(_has_own_prompt, prints))
    reading = replace(given, columns={**columns, **own}, sheet=sheet, requires_question=required)
    return reading, f"{path}: read with the same options as the run: {' '.join(used)}" if used else ""


def _has_own_prompt(fingerprint: Mapping[str, Any]) -> bool:
    return str(fingerprint.get("template", {}).get("id")).startswith("prompt:")


def _sheet_of(path: str, given: Reading, prints: Sequence[Mapping[str, Any]], *, strict: bool) -> str | None:
    """If `strict` is set, use the user's sheet for any file type."""
    if given.sheet is not None:
        return given.sheet if strict or _is_workbook(path) else None
    name = Path(path).name
    prints = [each for each in prints if name in {file["file"] for file in each.get("input", [])}]
    sheets = [each["sheet"] for each in prints if "sheet" in each]
    return _one_of(path, "--sheet", sheets) if sheets else None


def _fingerprint_of(run: Path) -> Mapping[str, Any]:
    try:
        manifest = read_manifest(run)
    except RunError:
        return {}
    return {} if manifest is None else dict(manifest["fingerprint"])


def _fingerprints(fingerprint: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    yield fingerprint
    joined = [*fingerprint.get("panel", {}).get("runs", {}).values(), fingerprint.get("cascade", {}).get("small")]
    for part in filter(None, joined):
        yield from _fingerprints(part)


def _one_of(path: str, option: str, values: list[str]) -> str:
    first, *others = dict.fromkeys(values)
    if others:
        raise InputError(f"{path}: the runs differ ({option}={first} and {option}={others[0]}); set this option")
    return first


def _is_workbook(path: str) -> bool:
    return not is_stream(path) and any(row_suffix(file) == ".xlsx" for file in input_files(path))


def _fields(path: str, sheet: str | None, sought: Collection[str]) -> set[str]:
    """`sought` helps to distinguish a table's header from a title above it."""
    rows = (row for row in read_rows(path, known=sought, sheet=sheet) if isinstance(row, Row))
    return {_folded(name) for row in islice(rows, _LOOKED_AT) for name in row.data}


def _folded(name: str) -> str:
    return name.strip().casefold()
