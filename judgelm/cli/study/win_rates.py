"""`judgelm study win-rates`."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgelm.cli.options import ColumnOptions
from judgelm.cli.study.options import StudyOutput
from judgelm.errors import ConfigError, InputError

if TYPE_CHECKING:
    from judgelm.data.readers.rows import RejectCounts
    from judgelm.data.samples import Reading
    from judgelm.data.sources.alpaca_eval import Comparison


def win_rates_command(
    files: Annotated[list[Path], typer.Argument(metavar="FILE...")],
    rows: Annotated[Path | None, typer.Option("--rows", "-r", metavar="FILE")] = None,
    difficulty: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    *,
    rows_as: ColumnOptions,
    output: StudyOutput,
) -> None:
    """Win rates against a baseline as AlpacaEval computes them: weighted, discrete, length-controlled.

    Example: judgelm study win-rates results/*/annotations.json -o win-rates

    Options:
        files: AlpacaEval's annotations.json, or run files of pairs (with --rows).
        rows: The pairs that runs judged; answer 1 is the baseline's.
        difficulty: Rows: instruction (or index) and instruction_difficulty, for the length control.
    """
    from judgelm.data.readers.rows import RejectCounts
    from judgelm.data.sources.alpaca_eval import read_difficulties
    from judgelm.studies.win_rates import win_rate_study  # statsmodels takes seconds to load

    rejects = RejectCounts()
    notes: list[str] = []
    comparisons = list(_comparisons(files, rows, rejects, notes, rows_as.reading))
    difficulties = None if difficulty is None else read_difficulties(str(difficulty))
    notes += [f"left out: {line}" for line in rejects.lines()]
    output.write(win_rate_study(comparisons, output.resampling, difficulties=difficulties, notes=notes))


def _comparisons(
    files: list[Path], rows: Path | None, rejects: "RejectCounts", notes: list[str], reading: "Reading"
) -> "Iterator[Comparison]":
    """Read the comparisons of all files; adds notes on joins.

    Raises:
        ConfigError: a file given twice, or a run file without its rows.
        InputError: a file cannot be read, holds no comparison, or a run is not of these rows.
    """
    from judgelm.cli.evaluation import is_run_file
    from judgelm.data.judged_texts import match_samples
    from judgelm.data.samples import SampleStream
    from judgelm.data.sources.alpaca_eval import comparisons_of_run, read_annotations
    from judgelm.runs.run_files import read_judgments

    paths = [path.resolve() for path in files]
    if repeated := next((path for path in files if paths.count(path.resolve()) > 1), None):
        raise ConfigError(f"{repeated}: given twice; give each file once")
    for path in files:
        if not is_run_file(path):
            yield from read_annotations(str(path), on_reject=rejects)
            continue
        if rows is None:
            raise ConfigError(f"{path}: a run file; also give the pairs that it judged, with --rows")
        samples = {sample.id: sample for sample in SampleStream([str(rows)], on_reject=rejects, reading=reading)}
        judgments = read_judgments(path)
        _, texts = match_samples(judgments, samples, name=str(rows))
        if texts.turned:
            raise InputError(
                f"{rows}: {texts.turned:,} rows have the answers in another order than {path} judged, so it is not "
                "clear which is the baseline's; give the rows that were judged"
            )
        notes += [f"{path.name}: {note}" for note in texts.notes()]
        yield from comparisons_of_run(path.stem, judgments, samples)
