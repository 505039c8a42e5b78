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
"""None means undefined or missing; the note of the table explains why."""

Row = tuple[Cell, ...]

Value = float | Estimate | None

Kind = Literal["text", "count", "share", "number"]
"""Cell format: a `share` in [0, 1] is shown in percent; a `number` is shown with three decimals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A table column; `key` is its name in JSON and CSV files."""

    key: str
    heading: str
    kind: Kind = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table; each row has one cell per column.

    Attributes:
        name: file name, in lower case with hyphens.
        source: table in a paper that has this layout.
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
        """Return each row as a mapping from column key to cell."""
        return [dict(zip([column.key for column in self.columns], row, strict=True)) for row in self.rows]

    def column(self, key: str) -> list[Cell]:
        """Return all cells in a column."""
        return [row[key] for row in self.records()]


def columns(kind: Kind, computed: Iterable[tuple[str, str]] = (), /, **headings: str) -> list[Column]:
    """Build columns of one kind from `computed` (key, heading) pairs, followed by `headings`."""
    return [Column(key=key, heading=heading, kind=kind) for key, heading in chain(computed, headings.items())]


class Layouts:
    """Columns and texts for the tables and figures of a study, loaded from a YAML file.

    The file contains `tables` and `figures` by name. Columns are a list of {kind: {key: heading}}. Texts can contain
    `str.format` fields.
    """

    def __init__(self, path: Path) -> None:
        self._path = path

    @cached_property
    def _file(self) -> dict[str, Any]:
        content: dict[str, Any] = read_yaml(self._path)
        return content

    def groups(self, name: str) -> list[tuple[Kind, dict[str, str]]]:
        """Return the column groups of a table, each with kind and headings by key."""
        return [pair for group in self._file["tables"][name]["columns"] for pair in group.items()]

    def table(self, name: str, rows: Iterable[Row], /, *computed: Column, **words: object) -> Table:
        """Build a table with the `computed` columns last; `words` are the values for fields in its texts."""
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
        """Return the name, title, and labels of a figure."""
        return {key: text.format(**words) for key, text in ({"name": name} | self._file["figures"][name]).items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """A named series of points with optional `labels`."""

    name: str
    x: tuple[float, ...]
    y: tuple[Value, ...]
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """A line or scatter plot; `diagonal` adds y = x, and `joined` connects the points of each series."""

    name: str
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    diagonal: bool = False
    joined: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestRow:
    """An estimate in a forest plot; rows in the same group have the same colour."""

    label: str
    estimate: Estimate
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """A forest plot: estimates with intervals, and a line at `no_effect`."""

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
    """A heat map with one value per row and column.

    Attributes:
        values: shape (rows, columns); None leaves a cell empty.
        marked: (row, column) of each framed cell.
        centred: whether to use a colour scale that diverges from 0.
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
        protocol: how the numbers were computed; quote it with every number.
        findings: sentences, most important first.
        counts: number of rows for each outcome, including failures.
        warnings: limitations that readers should know.
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
        """Return the rows of a table as mappings from column key to cell."""
        return [row for each in self.tables if each.name == name for row in each.records()]

    def to_json(self) -> dict[str, Any]:
        """Return plain values, with table rows as mappings."""
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
