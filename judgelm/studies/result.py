"""Results of a study: tables and the data of figures, which every report renders in the same way.

A study computes: it handles no files, colours or pages. `judgelm.reports.study` writes its result as
JSON, CSV, SVG, PNG and HTML.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any, Literal

from judgelm.jsonl import json_ready
from judgelm.metrics.resampling import Estimate, Resampling

DEFAULT_RESAMPLING = Resampling()

Cell = str | int | float | Estimate | None
"""None is undefined or missing, which the table's note explains; it is never shown as 0."""

Row = tuple[Cell, ...]

Value = float | Estimate | None

Kind = Literal["text", "count", "share", "number"]
"""Format of a column's cells: `share` is in [0, 1] and written in percent, `number` with three decimals."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """One column of a table; `key` names it in JSON and CSV."""

    key: str
    heading: str
    kind: Kind = "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Table:
    """A table; each row has one cell per column, in their order.

    Attributes:
        name: of its file, in lower case with hyphens.
        source: the table of the paper that it is laid out like, if it is.
        note: definitions, and the reasons for undefined cells.
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
            raise ValueError(f"table {self.name}: row {ragged} has not one cell for each of its columns")

    def column(self, key: str) -> list[Cell]:
        """The cells of one column."""
        index = [column.key for column in self.columns].index(key)
        return [row[index] for row in self.rows]


def columns(kind: Kind, computed: Iterable[tuple[str, str]] = (), /, **headings: str) -> list[Column]:
    """Neighbouring columns of one kind: headings by key, those of `computed` (key, heading) first."""
    return [Column(key=key, heading=heading, kind=kind) for key, heading in chain(computed, headings.items())]


def table(
    rows: Iterable[Row], *groups: Iterable[Column], name: str, title: str, source: str = "", note: str = ""
) -> Table:
    """A table from its rows and the declared `columns` of their cells, in order; an `Estimate` brings its interval."""
    return Table(name=name, title=title, columns=tuple(chain(*groups)), rows=tuple(rows), source=source, note=note)


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """Points of one name, with `labels` beside them where given."""

    name: str
    x: tuple[float, ...]
    y: tuple[Value, ...]
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Lines:
    """Points over a numeric axis, joined or not.

    Attributes:
        x_label: name and unit of the axis, as is `y_label`.
        diagonal: draw y = x, for calibration curves and the like.
        joined: a line through each series' points, else points alone.
    """

    name: str
    title: str
    x_label: str
    y_label: str
    series: tuple[Series, ...]
    diagonal: bool = False
    joined: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """Bars of one colour, one value for each category."""

    name: str
    values: tuple[Value, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Bars:
    """Bars side by side for each category."""

    name: str
    title: str
    x_label: str
    y_label: str
    categories: tuple[str, ...]
    groups: tuple[Group, ...]


def bars(
    groups: Mapping[str, Iterable[Value]],
    categories: Iterable[str],
    *,
    name: str,
    title: str,
    x_label: str,
    y_label: str,
) -> Bars:
    """Bars from the values of each group by its name, one for each category."""
    return Bars(
        name=name,
        title=title,
        x_label=x_label,
        y_label=y_label,
        categories=tuple(categories),
        groups=tuple(Group(name=group, values=tuple(values)) for group, values in groups.items()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ForestRow:
    """One estimate; rows of one group have one colour."""

    label: str
    estimate: Estimate
    group: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Forest:
    """Estimates with their intervals, one under another, and a line at the value of no effect."""

    name: str
    title: str
    x_label: str
    rows: tuple[ForestRow, ...]
    no_effect: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class HeatMap:
    """A value for each row and column.

    Attributes:
        values: shape (rows, columns); None is drawn as empty.
        marked: (row, column) of cells drawn with a frame, such as a diagonal.
        centred: colours diverge from 0, else they run from the lowest value to the highest.
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


Figure = Lines | Bars | Forest | HeatMap


@dataclass(frozen=True, slots=True, kw_only=True)
class StudyResult:
    """All results of a study.

    Attributes:
        study: its name on the command line.
        protocol: one sentence on how the numbers were made; it belongs beside every one of them.
        findings: sentences, the most important first, each with its numbers.
        counts: numbers of rows read by outcome, failures included.
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
            raise ValueError(f"study {self.study}: two tables or figures are named {', '.join(sorted(doubled))}")

    def to_json(self) -> dict[str, Any]:
        """Plain dicts, lists, numbers, strings and None, ready for `json.dumps`; tables' rows by column key."""
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


_OPENING = 160


def format_share(estimate: Estimate | None) -> str:
    """`71.1 % (95 % interval 68.2 to 73.9, n = 300)`."""
    return "undefined" if estimate is None else f"{100 * estimate.value:.1f} % ({_interval(estimate, 100, '.1f')})"


def format_points(estimate: Estimate) -> str:
    """A difference of shares: `+3.1 points (95 % interval -0.2 to +6.4, n = 300)`."""
    return f"{100 * estimate.value:+.1f} points ({_interval(estimate, 100, '+.1f')})"


def format_number(estimate: Estimate | None, form: str = ".3f") -> str:
    """`0.412 (95 % interval 0.380 to 0.447, n = 300)`."""
    return "undefined" if estimate is None else f"{estimate.value:{form}} ({_interval(estimate, 1, form)})"


def few_pairs_sentence(n: int, kind: str = "pairs") -> str:
    """A warning that intervals over n pairs are wide."""
    return f"With only {n:,} {kind}, rely on the intervals rather than on the point estimates."


def excerpt(text: str) -> str:
    """The first words of a text, in one line: enough to know it by."""
    line = " ".join(text.split())
    return line if len(line) <= _OPENING else f"{line[: _OPENING - 1]}…"


def file_slug(group: str) -> str:
    """The name of a grouping as part of a file's: ours are words, another's may be anything."""
    return "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in group.lower())


def format_bounds(estimate: Estimate, written: Callable[[float], str]) -> str:
    """`0.380 to 0.447`; an infinite bound as `from 0.380, no upper bound`, an undefined one as `no interval`."""
    low, high = estimate.low, estimate.high
    if math.isnan(low) or math.isnan(high):
        return "no interval"
    if math.isinf(low) and math.isinf(high):
        return "no bounds"
    if math.isinf(high):
        return f"from {written(low)}, no upper bound"
    if math.isinf(low):
        return f"to {written(high)}, no lower bound"
    return f"{written(low)} to {written(high)}"


def _interval(estimate: Estimate, times: float, form: str) -> str:
    bounds = format_bounds(estimate, lambda bound: f"{times * bound:{form}}")
    interval = bounds if bounds.startswith("no ") else f"{100 * estimate.level:g} % interval {bounds}"
    return f"{interval}, n = {estimate.n:,}"
