"""Judge rows in memory: dictionaries, samples, or a pandas DataFrame."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from judgelm.data.readers.rows import Row
from judgelm.data.samples import Reading, SampleStream
from judgelm.engines.base import Engine
from judgelm.errors import InputError
from judgelm.modes.mode import BatchMode
from judgelm.modes.readings import prompt_of
from judgelm.modes.votes import verdict_text
from judgelm.records import GradeVerdict, Judgment, PairVerdict, Sample, Verdict, failure_name
from judgelm.runs.runner import judge

if TYPE_CHECKING:
    import pandas as pd

VERDICT_COLUMNS = ("verdict", "probability", "scores", "consistent", "reason", "failure")
"""Columns that are added to judged rows."""

Rows: TypeAlias = "Iterable[Mapping[str, Any] | Sample] | pd.DataFrame"


def is_frame(rows: object) -> bool:
    """Return whether rows are a pandas DataFrame."""
    return hasattr(rows, "to_dict") and hasattr(rows, "columns")


def read_samples(rows: Any, mode: BatchMode, columns: Mapping[str, str] | None = None) -> list[Sample]:
    """Convert rows to samples as `judgelm-batch` does.

    Args:
        rows: dictionaries with the fields of an input file, samples, or a DataFrame.
        mode: determines the number of answers and other required fields.
        columns: field -> column.

    Raises:
        InputError: a row cannot be used; the message names its number, starting at 1, and the field.
    """
    listed: list[Any] = _records(rows) if is_frame(rows) else list(rows)
    if not listed:
        return []
    samples = [row for row in listed if isinstance(row, Sample)]
    if len(samples) == len(listed):
        _check_ids(samples)
        for sample in samples:
            mode.check(sample)
        return samples
    renamed = {column: name for name, column in (columns or {}).items()}
    stream = SampleStream(
        ["rows"],
        given=_given(listed, renamed),
        reference=mode.reference,
        answers=mode.answers,
        check=mode.check,
        prompt=prompt_of(mode),
        reading=Reading(),
    )
    return list(stream)


def _records(frame: "pd.DataFrame") -> list[dict[str, Any]]:
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return [{str(name): value for name, value in row.items()} for row in rows]


def _given(rows: Sequence[Any], renamed: Mapping[str, str]) -> Iterator[Row]:
    for number, row in enumerate(rows, 1):
        if not isinstance(row, Mapping):
            finding = f"expected a dictionary, got {type(row).__name__}; pass all rows in the same form"
            raise InputError(f"rows:{number}: {finding}")
        if missing := [column for column in renamed if column not in row]:
            raise InputError(f"rows:{number}: has no column {missing[0]!r}; its columns are {', '.join(map(str, row))}")
        yield Row("rows", number, {renamed.get(str(name), str(name)): value for name, value in row.items()})


def _check_ids(samples: Sequence[Sample]) -> None:
    seen: set[str] = set()
    for number, sample in enumerate(samples, 1):
        if sample.id in seen:
            raise InputError(f"rows:{number}: id {sample.id!r} appears more than once; ids must be unique")
        seen.add(sample.id)


def judge_samples(samples: Sequence[Sample], mode: BatchMode, engine: Engine, *, progress: bool) -> list[Judgment]:
    """Judge samples and return the judgments in the same order.

    Args:
        samples: samples with different IDs.
        mode: the mode.
        engine: the engine.
        progress: show a progress bar in terminals and notebooks.
    """
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, TimeRemainingColumn

    console = Console(stderr=True)
    shown = progress and (console.is_terminal or console.is_jupyter)
    judgments: dict[str, Judgment] = {}
    with Progress(
        *Progress.get_default_columns()[:2],
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=console,
        disable=not shown,
    ) as bar:
        task = bar.add_task("judging", total=len(samples))
        for judgment in judge(samples, mode, engine):
            judgments[judgment.sample_id] = judgment
            bar.advance(task)
    return [judgments[sample.id] for sample in samples]


def with_verdicts(frame: "pd.DataFrame", judgments: Sequence[Judgment]) -> "pd.DataFrame":
    """Return a copy of a DataFrame with `VERDICT_COLUMNS`, which get the prefix `judge_` if the name is taken."""
    judged = frame.copy()
    cells = [verdict_cells(judgment) for judgment in judgments]
    for index, name in enumerate(verdict_columns(list(map(str, frame.columns)))):
        judged[name] = cast(Any, [row[index] for row in cells])
    return judged


def verdict_columns(own: Sequence[str], columns: Sequence[str] = VERDICT_COLUMNS) -> list[str]:
    """Return the names of the added columns.

    Raises:
        InputError: a name is taken even with the prefix.
    """
    added = [name if name not in own else f"judge_{name}" for name in columns]
    if taken := set(added) & set(own):
        raise InputError(f"column {min(taken)!r} is also a verdict column; rename it in the input")
    return added


def verdict_cells(judgment: Judgment | None) -> list[object]:
    """Return the cells for `VERDICT_COLUMNS`; None means that the row was not judged."""
    if judgment is None:
        return [None, None, None, None, None, "not judged"]
    failure = None if judgment.failure is None else failure_name(judgment.failure.code)
    verdict = None if judgment.verdict is None else _verdict_cell(judgment.verdict)
    scores = None if judgment.scores is None else " ".join(f"{score:.6g}" for score in judgment.scores)
    return [verdict, judgment.probability, scores, judgment.consistent, judgment.reason, failure]


def _verdict_cell(verdict: Verdict) -> object:
    if isinstance(verdict, PairVerdict):
        return verdict.winner
    if isinstance(verdict, GradeVerdict):
        return int(verdict.score) if verdict.score.is_integer() else verdict.score
    return verdict_text(verdict)
