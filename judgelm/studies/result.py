"""Study results: tables and figure data. `judgelm.reports.study` writes them to files."""

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any, Literal

from judgelm.jsonl import json_ready
from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.yaml_files import read_yaml

DEFAULT_RESAMPLING = Resampling()

Cell = str | int | float | Estimate | None
"""None is undefined or missing; the table's note gives the reason."""

Row = tuple[Cell, ...]

Value = float | Estimate | None

Kind = Literal["text", "count", "share", "number"]
"""Cell format: `share` is in [0, 1] and shown in percent; `number` is shown with three decimals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A table column; `key` names it in JSON and CSV."""

    key: str
    heading: str
    kind: Kind = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table; each row has one cell per column.

    Attributes:
        name: file name, in lower case with hyphens.
        source: table of a paper with this layout.
        note: definitions, and reasons for undefined cells.
    """

    name: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    source: str = ""
    note: str = ""

    def __post_init__(self) -> None:
        ragged = next((index for index, row in enumerate(self.rows) if len(row) != len(self.columns)), None)
        if ragged is not None:
            raise ValueError(
                f"table {self.name}: row {ragged}: expected {len(self.columns)} cells, got {len(self.rows[ragged])}"
            )

    def records(self) -> list[dict[str, Cell]]:
        """Return the rows by column key."""
        return [dict(zip([column.key for column in self.columns], row, strict=True)) for row in self.rows]

    def column(self, key: str) -> list[Cell]:
        """Return the cells of a column."""
        return [row[key] for row in self.records()]


def columns(kind: Kind, computed: Iterable[tuple[str, str]] = (), /, **headings: str) -> list[Column]:
    """Build columns of one kind: first the `computed` (key, heading), then `headings` by key."""
    return [Column(key=key, heading=heading, kind=kind) for key, heading in chain(computed, headings.items())]


class Layouts:
    """Columns and texts of a study's tables and figures, from a YAML file.

    The file has `tables` and `figures` by name, with columns as a list of {kind: {key: heading}}. Texts may contain
    `str.format` fields.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _file(self) -> dict[str, Any]:
        content: dict[str, Any] = read_yaml(self._path)
        return content

    def groups(self, name: str) -> list[tuple[Kind, dict[str, str]]]:
        """Return a table's column groups: kind, and headings by key."""
        return [pair for group in self._file["tables"][name]["columns"] for pair in group.items()]

    def table(self, name: str, rows: Iterable[Row], /, *computed: Column, **words: object) -> Table:
        """Build a table with `computed` columns last; `words` fill its text fields."""
        layout = {"name": name} | self._file["tables"][name]
        del layout["columns"]
        shown = [
            Column(key=key, heading=heading.format(**words), kind=kind)
            for kind, headings in self.groups(name)
            for key, heading in headings.items()
        ]
        texts = {key: text.format(**words).strip() for key, text in layout.items()}
        return Table(columns=(*shown, *computed), rows=tuple(rows), **texts)

    def figure(self, name: str, /, **words: object) -> dict[str, Any]:
        """Return a figure's name, title, and labels."""
        return {key: text.format(**words) for key, text in ({"name": name} | self._file["figures"][name]).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points with one name and optional `labels`."""

    name: str
    x: tuple[float, ...]
    y: tuple[Value, ...]
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Points over a numeric axis; `diagonal` draws y = x, and `joined` draws a line through each series."""

    name: str
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    diagonal: bool = False
    joined: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestRow:
    """An estimate; rows in one group share a colour."""

    label: str
    estimate: Estimate
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """Estimates with intervals, and a line at the value of no effect."""

    name: str
    title: str
    x_label: str
    rows: tuple[ForestRow, ...]
    no_effect: float = 0.0


def forest(
    rows: Iterable[tuple[str, Cell] | tuple[str, Cell, str]],
    *,
    name: str,
    title: str,
    x_label: str,
    no_effect: float = 0.0,
) -> Forest:
    """Build a forest plot from (label, value, optional group); rows without an estimate are skipped."""
    shown = [
        ForestRow(label=row[0], estimate=row[1], group=row[2] if len(row) == 3 else "")
        for row in rows
        if isinstance(row[1], Estimate)
    ]
    return Forest(name=name, title=title, x_label=x_label, rows=tuple(shown), no_effect=no_effect)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """A value per row and column.

    Attributes:
        values: shape (rows, columns); None leaves a cell empty.
        marked: (row, column) of framed cells.
        centred: whether colours diverge from 0.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    value_label: str
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    values: tuple[tuple[float | None, ...], ...]
    marked: frozenset[tuple[int, int]] = frozenset()
    centred: bool = False


Figure = Lines | Forest | HeatMap


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResult:
    """Results of a study.

    Attributes:
        study: name on the command line.
        protocol: how the numbers were made; quote it with every number.
        findings: sentences, most important first.
        counts: numbers of rows by outcome, including failures.
        warnings: limits that a reader must know.
    """

    study: str
    title: str
    protocol: str
    findings: tuple[str, ...] = ()
    counts: Mapping[str, int] = field(default_factory=dict)
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    warnings: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        names = [part.name for part in (*self.tables, *self.figures)]
        if doubled := {name for name in names if names.count(name) > 1}:
            raise ValueError(f"study {self.study}: duplicate table or figure names: {', '.join(sorted(doubled))}")

    def table(self, name: str) -> list[dict[str, Cell]]:
        """Return the rows of a table by column key."""
        return [row for each in self.tables if each.name == name for row in each.records()]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, with table rows by column key."""
        plain_result = asdict(self)
        for table, plain in zip(self.tables, plain_result["tables"], strict=True):
            keys = [column.key for column in table.columns]
            plain["rows"] = [dict(zip(keys, map(json_ready, row), strict=True)) for row in plain["rows"]]
        for figure, plain in zip(self.figures, plain_result["figures"], strict=True):
            plain["kind"] = type(figure).__name__.lower()
            if isinstance(figure, HeatMap):
                plain["marked"] = sorted(figure.marked)
        plain_result["figures"] = [json_ready(figure) for figure in plain_result["figures"]]
        return plain_result


def point(value: Value) -> float | None:
    """Return the number without its interval."""
    return value.value if isinstance(value, Estimate) else value
