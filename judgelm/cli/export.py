"""`judgelm export`: the input's rows with the verdicts beside them, as a table for spreadsheets and data frames."""

import csv
import io
import json
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, get_args

import typer

from judgelm.cli.console import Results, console, write_text
from judgelm.cli.options import LabelOptions
from judgelm.engines.base import require
from judgelm.errors import ConfigError, InputError, RunError
from judgelm.jsonl import check_no_input
from judgelm.records import Judgment, Sample, failure_name

TableFormat = Literal["csv", "parquet", "xlsx"]
_COLUMNS = ("verdict", "probability", "scores", "consistent", "reason", "failure")
_LONGEST_CELL = 32_767


def export_command(
    judgments: Annotated[Path, typer.Argument()],
    samples: Annotated[Path | None, typer.Option("--samples", "-s", metavar="FILE")] = None,
    to: Annotated[str | None, typer.Option(metavar="FORMAT")] = None,
    out: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    *,
    rows_as: LabelOptions,
    results: Results,
) -> None:
    """Write the judged rows with verdict, probability and reason beside them, as CSV, Parquet or Excel.

    The input's columns and rows stay, in their order; rows that were not judged are there too, and say so.

    Options:
        judgments: A run file of judgelm-batch.
        samples: The file that was judged; without it a row has the id alone.
        to: csv, parquet or xlsx; default: by the ending of --out.
        out: The table; default: beside the run.

    Examples:
        judgelm export judgments.jsonl --samples pairs.csv --to xlsx
        judgelm export judgments.jsonl -s pairs.jsonl -o verdicts.parquet

    Exit codes: 0 done, 1 usage or input error.
    """
    from judgelm.data.judged_texts import judged_orders
    from judgelm.data.readers.files import read_rows
    from judgelm.data.readers.rows import Reject
    from judgelm.data.samples import SampleStream
    from judgelm.runs.run_files import read_judgments

    chosen = to or (out.suffix[1:] if out is not None and str(out) != "-" else "csv")
    if chosen not in get_args(TableFormat):
        raise ConfigError(f"format {chosen!r}: choose --to {', '.join(get_args(TableFormat))}")
    target = out or judgments.with_suffix(f".{chosen}")
    check_no_input([str(target)], {str(judgments), str(samples)})
    run = read_judgments(judgments)
    rows: Iterator[tuple[Mapping[str, object], Judgment | None]]
    if samples is None:
        rows = (({"id": name}, judgment) for name, judgment in run.items())
    else:
        places: dict[tuple[str, int], str] = {}
        given: dict[str, Sample] = {}
        stream = SampleStream([str(samples)], on_reject=lambda reject: None, reading=rows_as.reading)
        for row, sample in stream.pairs():
            places[row.file, row.line], given[sample.id] = sample.id, sample
        orders, texts = judged_orders(run, given, str(samples))
        if orders:
            finding = "its answers stand in another order"
            raise InputError(f"{samples}: is not the file that {judgments} judged: {finding}; give that one")
        for note in texts.notes():
            console.message(note)
        raw = read_rows(str(samples))
        rows = (
            ({"unreadable": row.raw}, None)
            if isinstance(row, Reject)
            else (row.data, run.get(places.get((row.file, row.line), "")))
            for row in raw
        )
    header, cells = _table(list(rows))
    _WRITERS[chosen](target, header, cells)
    results.write({"file": str(target), "rows": len(cells), "judged": len(run)})
    console.message(f"{len(cells):,} rows in {target}")


def _table(rows: Sequence[tuple[Mapping[str, object], Judgment | None]]) -> tuple[list[str], list[list[object]]]:
    """The header and the cells: the input's columns as they first come, and those of the verdicts behind them."""
    own = list(dict.fromkeys(name for data, _ in rows for name in data))
    added = [name if name not in own else f"judge_{name}" for name in _COLUMNS]
    if taken := set(added) & set(own):
        raise InputError(f"column {min(taken)!r} is the input's and the verdicts'; rename it in the input")
    return own + added, [[data.get(name) for name in own] + _verdict(judgment) for data, judgment in rows]


def _verdict(judgment: Judgment | None) -> list[object]:
    """The cells of a judgment, in the order of `_COLUMNS`."""
    from judgelm.modes.votes import verdict_text

    if judgment is None:
        return [None, None, None, None, None, "not judged"]
    failure = None if judgment.failure is None else failure_name(judgment.failure.code)
    verdict = None if judgment.verdict is None else verdict_text(judgment.verdict)
    scores = None if judgment.scores is None else " ".join(f"{score:.6g}" for score in judgment.scores)
    return [verdict, judgment.probability, scores, judgment.consistent, judgment.reason, failure]


def _text(value: object) -> object:
    """A cell of a table without lists and objects: those are JSON."""
    return json.dumps(value, ensure_ascii=False) if isinstance(value, list | dict) else value


def _write_csv(path: Path, header: list[str], rows: list[list[object]]) -> None:
    table = io.StringIO(newline="")
    writer = csv.writer(table)
    writer.writerow(header)
    writer.writerows([_text(value) for value in row] for row in rows)
    write_text(path, table.getvalue())


def _write_parquet(path: Path, header: list[str], rows: list[list[object]]) -> None:
    """Columns of one type as they are; others as JSON texts."""
    require("pyarrow", extra="parquet")
    import pyarrow
    from pyarrow import parquet

    columns: dict[str, Any] = {}
    for name, values in zip(header, zip(*rows, strict=True), strict=True):
        try:
            columns[name] = pyarrow.array(values)
        except pyarrow.ArrowException:
            columns[name] = pyarrow.array([value if value is None else json.dumps(value) for value in values])
    with _whole(path) as partial:
        parquet.write_table(pyarrow.table(columns), partial)


def _write_xlsx(path: Path, header: list[str], rows: list[list[object]]) -> None:
    """Texts as texts: Excel would compute those that begin with an equals sign."""
    require("openpyxl", extra="xlsx")
    from openpyxl import Workbook
    from openpyxl.cell import WriteOnlyCell
    from openpyxl.utils.exceptions import IllegalCharacterError

    book = Workbook(write_only=True)
    sheet = book.create_sheet("verdicts")
    lines: list[list[Any]] = [[*header], *rows]
    for number, row in enumerate(lines, 1):
        cells = []
        for name, value in zip(header, map(_text, row), strict=True):
            if isinstance(value, str) and len(value) > _LONGEST_CELL:
                raise InputError(
                    f"row {number}, {name}: {len(value):,} characters, and Excel holds 32,767; use --to csv"
                )
            try:
                cell = WriteOnlyCell(sheet, value)
            except IllegalCharacterError:
                raise InputError(
                    f"row {number}, {name}: a control character, which Excel refuses; use --to csv"
                ) from None
            cell.data_type = "s" if isinstance(value, str) else cell.data_type
            cells.append(cell)
        sheet.append(cells)
    with _whole(path) as partial:
        book.save(partial)


@contextmanager
def _whole(path: Path) -> Iterator[Path]:
    """A name for a file that gets its own at the end of the block; after an error nothing is left of it.

    Raises:
        RunError: it cannot be written.
    """
    partial = path.with_name(f"{path.name}.partial")
    try:
        yield partial
        os.replace(partial, path)
    except OSError as error:
        raise RunError(f"{path}: cannot write: {error.strerror or error}; choose another place") from error
    finally:
        partial.unlink(missing_ok=True)


_WRITERS: dict[str, Callable[[Path, list[str], list[list[object]]], None]] = {
    "csv": _write_csv,
    "parquet": _write_parquet,
    "xlsx": _write_xlsx,
}
