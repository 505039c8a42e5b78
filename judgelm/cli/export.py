"""`judgelm export`: write the input rows with their verdicts."""

import csv
import io
import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from judgelm.cli.console import Results, console, write_text
from judgelm.cli.options import LabelOptions
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import Reject
from judgelm.data.readers.values import ID_FIELDS
from judgelm.engines.dependencies import require
from judgelm.errors import ConfigError, InputError
from judgelm.jsonl import check_no_input, renamed
from judgelm.records import Judgment, Sample, failure_name
from judgelm.reports.cells import MAX_XLSX_CELL, NOT_IN_CSV, NOT_IN_PARQUET, NOT_IN_XLSX, CellTexts

TableFormat = Literal["csv", "parquet", "xlsx"]
_PART_COLUMNS = ("answer_number", "part", "part_score", "passage", "part_failure")
_MAX_XLSX_ROWS, _MAX_XLSX_COLUMNS = 1_048_576, 16_384
_MAX_XLSX_INTEGER = 10**15
"""Excel stores at most 15 digits of a number."""


def export_command(
    judgments: Annotated[Path, typer.Argument()],
    samples: Annotated[Path | None, typer.Option("--samples", "-s", metavar="FILE")] = None,
    to: Annotated[str | None, typer.Option(metavar="FORMAT")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    parts: bool = False,
    escape_formulas: bool = False,
    overwrite: bool = False,
    *,
    rows_as: LabelOptions,
    results: Results,
) -> None:
    """Export the judged rows with their verdicts, probabilities, and reasons to CSV, Parquet, or Excel.

    Columns and rows keep their input order. Rows without a judgment are marked "not judged". With `--parts`, there is
    one row for each part of a judgment, such as a claim of an answer, with its probability.

    Options:
        judgments: Run file to export.
        samples: File that was judged. If omitted, the rows contain the id instead of the texts.
        to: Output format: csv, parquet, or xlsx. Default: determined by the extension of --out.
        out: Output file. Default: next to the run file.
        parts: Write one row per claim, criterion, or task.
        escape_formulas: For CSV, add an apostrophe to text that a spreadsheet would treat as a formula (=1+1).
        overwrite: Replace an existing file.

    Examples:
        judgelm export judgments.jsonl --samples pairs.csv --to xlsx
        judgelm export judgments.jsonl -s pairs.jsonl -o verdicts.parquet
        judgelm export judgments.jsonl -s answers.csv --parts --to csv

    Exit codes: 0 done, 1 usage or input error.
    """
    from judgelm.runs.run_files import read_judgments, recorded_input

    chosen = to or (out.suffix[1:] if out is not None and str(out) != "-" else "csv")
    if chosen not in get_args(TableFormat):
        raise ConfigError(f"unknown format {chosen!r}; available for --to: {', '.join(get_args(TableFormat))}")
    if escape_formulas and chosen != "csv":
        raise ConfigError("--escape-formulas is only supported for CSV; remove it")
    target = out or judgments.with_suffix(f".{chosen}")
    check_no_input([str(target)], {str(judgments), str(samples)})
    if target.is_file():
        check_no_input([target], filter(None, [recorded_input(judgments, target.name)]))
        if not overwrite:
            raise ConfigError(f"{target} already exists; choose a different -o or add --overwrite")
    run = read_judgments(judgments)
    if samples is None:
        rows: list[_Row] = [({"id": name}, judgment) for name, judgment in run.items()]
    else:
        rows = list(_judged_rows(run, judgments, samples, rows_as))
    unwanted = {"csv": NOT_IN_CSV, "parquet": NOT_IN_PARQUET, "xlsx": NOT_IN_XLSX}[chosen]
    longest = MAX_XLSX_CELL if chosen == "xlsx" else None
    texts = CellTexts(unwanted=unwanted, max_units=longest, escape_formulas=escape_formulas)
    if parts and not any(shown.part for judgment in run.values() for shown in judgment.shown):
        raise ConfigError(f"{judgments}: the judgments have no parts; remove --parts")
    header, cells = _table(rows, parts=parts)
    _WRITERS[chosen](target, header, cells, texts)
    counts = {"replaced": texts.replaced, "cut": texts.cut, "formulas": texts.formulas}
    results.write({"file": str(target), "rows": len(cells), "judged": len(run)} | counts)
    formulas = texts.formula_note("use --to xlsx or --escape-formulas for one") if chosen == "csv" else []
    console.messages([*texts.notes(), *formulas], label="note:", style="bold yellow")
    console.message(f"wrote {len(cells):,} rows to {target}")


_Row = tuple[Mapping[str, object], Judgment | None]


def _judged_rows(run: Mapping[str, Judgment], judgments: Path, samples: Path, rows_as: LabelOptions) -> Iterator[_Row]:
    from judgelm.data.judged_texts import judged_orders
    from judgelm.data.samples import SampleStream

    places: dict[tuple[str, int], str] = {}
    given: dict[str, Sample] = {}
    reading = rows_as.reading_of(samples, judgments)
    stream = SampleStream([str(samples)], on_reject=lambda reject: None, reading=reading)
    for row, sample in stream.pairs():
        places[row.file, row.line], given[sample.id] = sample.id, sample
    orders, texts = judged_orders(run, given, str(samples))
    if orders:
        finding = "the answers are in a different order"
        raise InputError(f"{samples}: {judgments} was not made from this file: {finding}; pass the judged file")
    console.messages(texts.notes())
    for raw in read_rows(str(samples), sheet=reading.sheet):
        if isinstance(raw, Reject):
            yield {"unreadable": raw.raw}, None
        else:
            yield raw.data, run.get(places.get((raw.file, raw.line), ""))


def _table(rows: Sequence[_Row], *, parts: bool) -> tuple[list[str], list[list[object]]]:
    from judgelm.runs.in_memory import VERDICT_COLUMNS, verdict_cells, verdict_columns  # loads numpy

    own = list(dict.fromkeys(name for data, _ in rows for name in data))
    added = verdict_columns(own, (*VERDICT_COLUMNS, *_PART_COLUMNS) if parts else VERDICT_COLUMNS)
    ids = {name for name in own if name.strip().casefold() in ID_FIELDS}
    return own + added, [
        [_id_text(data.get(name)) if name in ids else data.get(name) for name in own] + verdict_cells(judgment) + part
        for data, judgment in rows
        for part in (_parts(judgment) if parts else [[]])
    ]


def _parts(judgment: Judgment | None) -> list[list[object]]:
    """Return the cells of each part; a judgment without parts has one row."""
    shown = [each for each in judgment.shown if each.part] if judgment is not None else []
    return [
        [
            " ".join(str(index + 1) for index in each.order),
            each.part,
            each.scores[0] if each.scores and len(each.scores) == 1 else None,
            each.passage or None,
            None if each.failure is None else failure_name(each.failure.code),
        ]
        for each in shown
    ] or [[None] * len(_PART_COLUMNS)]


def _id_text(value: object) -> object:
    """Convert integers to text, because Excel stores at most 15 digits."""
    return str(value) if type(value) is int else value


def _text(value: object) -> object:
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def _write_csv(path: Path, header: list[str], rows: list[list[object]], texts: CellTexts) -> None:
    table = io.StringIO(newline="")
    lines: list[list[object]] = [[*header], *rows]
    csv.writer(table).writerows([texts.fitted(_text(value)) for value in row] for row in lines)
    write_text(path, table.getvalue())


def _write_parquet(path: Path, header: list[str], rows: list[list[object]], texts: CellTexts) -> None:
    """Leave columns with a single type unchanged, and convert mixed columns to text or JSON."""
    require("pyarrow", extra="parquet")
    import pyarrow
    from pyarrow import parquet

    columns: dict[str, Any] = {}
    for index, name in enumerate(header):
        values = [texts.storable(row[index]) for row in rows]
        try:
            column = pyarrow.array(values)
        except (pyarrow.ArrowException, OverflowError):
            column = None
        if column is None or not _is_storable(column.type):
            column = pyarrow.array([_as_json(value) for value in values], pyarrow.string())
        columns[str(texts.storable(name))] = column
    with renamed(path) as partial:
        parquet.write_table(pyarrow.table(columns), partial)


def _is_storable(kind: Any) -> bool:
    """Return False for empty structs, which Parquet cannot store."""
    parts = [kind.field(index).type for index in range(kind.num_fields)]
    return all(map(_is_storable, parts)) and (bool(parts) or not str(kind).startswith("struct"))


def _as_json(value: object) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _write_xlsx(path: Path, header: list[str], rows: list[list[object]], texts: CellTexts) -> None:
    require("openpyxl", extra="xlsx")
    from openpyxl import Workbook
    from openpyxl.cell import WriteOnlyCell

    if len(rows) >= _MAX_XLSX_ROWS or len(header) > _MAX_XLSX_COLUMNS:
        finding = f"{len(rows):,} rows and {len(header):,} columns exceed Excel's limits"
        raise InputError(f"{path}: {finding} ({_MAX_XLSX_ROWS - 1:,} and {_MAX_XLSX_COLUMNS:,}); use --to csv")
    with renamed(path) as partial:
        book = Workbook(write_only=True)
        sheet = book.create_sheet("verdicts")
        lines: list[list[object]] = [[*header], *rows]
        for row in lines:
            cells = []
            for value in row:
                is_long = type(value) is int and abs(value) >= _MAX_XLSX_INTEGER
                cell = WriteOnlyCell(sheet, str(value) if is_long else texts.fitted(_text(value)))
                cell.data_type = "s" if isinstance(cell.value, str) else cell.data_type
                cells.append(cell)
            sheet.append(cells)
        book.save(partial)


_WRITERS = {"csv": _write_csv, "parquet": _write_parquet, "xlsx": _write_xlsx}
