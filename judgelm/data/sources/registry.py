"""Look-up and recognition of sources: by name, by the fields of a file's first row, and of published judgments."""

import difflib
from collections.abc import Mapping, Sequence

from judgelm.data.readers.fields import ID_FIELDS
from judgelm.data.readers.files import first_row
from judgelm.data.readers.rows import Row, row_error
from judgelm.data.sources.alpaca_eval import are_tables
from judgelm.data.sources.source import Source
from judgelm.data.sources.table import LABELS, PAIR_LABELS, TABLE
from judgelm.errors import ConfigError, InputError, not_found

SOURCES: Mapping[str, Source] = {source.name: source for source in TABLE}
BENCHMARKS: Mapping[str, Source] = {name: source for name, source in SOURCES.items() if source.protocol is not None}
PUBLISHED: Mapping[str, Source] = {name: source for name, source in SOURCES.items() if source.runs is not None}
_LAYOUTS = tuple(source for source in TABLE if source.needs and source.sample is not None)

_PAIR_LABEL_FIELDS = (
    {"question_id", "model_a", "model_b", "label"},
    {"question_id", "model_1", "model_2", "g1_winner", "g2_winner"},
)
_LABEL_MARKS = frozenset({"winner", "score", "scores", "score_1", "score_a", "score_w_reference", "text_w_reference"})
_MARKS_AMONG_LABELS = frozenset({"text", "annotator1", "preference", "label"})
"""Fields that count as labels only where a file of labels is expected."""


def get_source(name: str) -> Source:
    """The source of that name; `_` and `-` are the same.

    Raises:
        ConfigError: there is none; the message lists the available ones.
    """
    for known, source in SOURCES.items():
        if known.replace("_", "-") == name.replace("_", "-"):
            return source
    raise not_found("source", name, SOURCES)


def get_benchmark(name: str) -> Source:
    """The source of that name, which has a protocol.

    Raises:
        ConfigError: there is none; the message lists the available ones.
    """
    if name in BENCHMARKS:
        return BENCHMARKS[name]
    close = difflib.get_close_matches(name, BENCHMARKS, n=1)
    hint = f"; did you mean {close[0]}?" if close else ";"
    raise ConfigError(f"benchmark {name!r} not found{hint} Available: {', '.join(BENCHMARKS)}")


def get_published(name: str) -> Source:
    """The source of that name, of which judges' outputs are published.

    Raises:
        ConfigError: there is none; the message lists the available ones.
    """
    if name not in PUBLISHED:
        raise not_found("format", name, PUBLISHED)
    return PUBLISHED[name]


def recognise(row: Row, *, label_rows: bool = False) -> Source:
    """The source of a file, from the field names of its first good row; its `fields` narrowed to those of the row.

    Args:
        row: the file's first good row.
        label_rows: whether a file of labels is expected.

    Raises:
        InputError: no source matches; names the fields, those that each layout needs, and likely misspellings.
    """
    names = row.data.keys()
    for candidate in _LAYOUTS:
        if names >= set(candidate.needs):
            return candidate.narrowed(row)
    if "question" in names and ("answers" in names or "answer" in names):
        return SOURCES["plain"].narrowed(row)
    if any(needs <= names for needs in _PAIR_LABEL_FIELDS):
        return PAIR_LABELS.narrowed(row)
    marks = _LABEL_MARKS | _MARKS_AMONG_LABELS if label_rows else _LABEL_MARKS
    if not marks.isdisjoint(names) and any(name in names for name in ID_FIELDS):
        return LABELS.narrowed(row)
    raise _unknown_fields(row)


def _unknown_fields(row: Row) -> InputError:
    fields = list(row.data)
    nearest = max(_LAYOUTS, key=lambda known: _likeness(known, fields))
    missing = [need for need in nearest.needs if need not in row.data]
    guesses = [f'"{near}" looks like "{need}"' for need in missing if (near := _near(need, fields))]
    known = "; ".join(f"{known.name} ({', '.join(known.needs)})" for known in _LAYOUTS)
    hint = f"; {', '.join(guesses)}" if guesses else ""
    near = (
        f" Nearest is {nearest.name}, without {', '.join(missing)}."
        if len(missing) < len(nearest.needs) or hint
        else ""
    )
    return row_error(
        row,
        f"fields not recognised: {', '.join(fields) or 'none'}{hint}.{near} Name the columns with --column, such as "
        "--column question=prompt, or call them question, answer_1, answer_2 (in a table by its first line). Layouts "
        f"known and what each needs: {known}; or an id with a winner or score, as labels",
    )


def _likeness(known: Source, fields: list[str]) -> float:
    """Similarity of the fields to those that a layout needs, from 0 to 1."""
    matches = [(need, near) for need in known.needs if (near := _near(need, fields))]
    alike = (difflib.SequenceMatcher(None, need, _folded(near)).ratio() for need, near in matches)
    return sum(alike) / len(known.needs)


def _near(need: str, fields: list[str]) -> str | None:
    """The field that is spelt most like what is needed: `Answer 1` like `answer_1`."""
    folded = {_folded(field): field for field in fields}
    close = difflib.get_close_matches(need, folded, n=1, cutoff=0.75)
    return folded[close[0]] if close else None


def _folded(field: str) -> str:
    return "_".join(field.lower().split())


def recognise_published(files: Sequence[str]) -> Source:
    """The source of files of published judgments.

    Raises:
        InputError: a file cannot be read, or its fields fit no source.
        ConfigError: the files are of different sources.
    """
    if are_tables(files):
        return PUBLISHED["alpaca-eval"]
    sources = {path: _recognise_published(path) for path in files}
    if len({source.name for source in sources.values()}) > 1:
        listed = ", ".join(f"{path} is {source.name}" for path, source in sources.items())
        raise ConfigError(f"files of different formats: {listed}; import them one by one")
    return next(iter(sources.values()))


def _recognise_published(path: str) -> Source:
    row = first_row(path)
    if row is None:
        raise InputError(f"{path}: no row can be read; give a file of published judgments")
    matches = [
        (len(runs.needs), source)
        for source in PUBLISHED.values()
        if (runs := source.runs) is not None and row.data.keys() >= set(runs.needs) and runs.recognised(row)
    ]
    if not matches:
        fields = ", ".join(row.data) or "none"
        raise InputError(
            f"{path}: not recognised by its fields ({fields}); name its format with --format: {', '.join(PUBLISHED)}"
        )
    return max(matches, key=lambda match: match[0])[1]
