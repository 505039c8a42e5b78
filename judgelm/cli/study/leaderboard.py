"""`judgelm study leaderboard`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgelm.cli.options import ColumnOptions
from judgelm.cli.study.options import StudyOutput, named_run
from judgelm.errors import ConfigError

if TYPE_CHECKING:
    from judgelm.data.readers.rows import RejectCounts
    from judgelm.data.samples import Reading
    from judgelm.studies.leaderboard import JudgeMatches


def leaderboard_command(
    files: Annotated[list[str], typer.Argument(metavar="RUN...")],
    rows: Annotated[list[Path] | None, typer.Option("--rows", "-r", metavar="FILE")] = None,
    *,
    rows_as: ColumnOptions,
    output: StudyOutput,
) -> None:
    """Elo ratings of many models by Bradley-Terry: soft verdicts, ties, order effects, intervals, ranks.

    Example: judgelm study leaderboard judgments.jsonl --rows pairs.jsonl -o leaderboard

    Options:
        files: Runs of pairs (NAME=FILE or FILE), or AlpacaEval's annotations.json.
        rows: The pairs that runs judged, with the models' names.
    """
    from judgelm.data.readers.rows import RejectCounts
    from judgelm.studies.leaderboard import leaderboard_study  # statsmodels takes seconds to load

    rejects = RejectCounts()
    notes: list[str] = []
    judges = _judges(files, rows or [], rejects, notes, rows_as.reading)
    notes += [f"left out: {line}" for line in rejects.lines()]
    output.write(leaderboard_study(judges, output.resampling, notes=notes))


def _judges(
    files: list[str], rows: list[Path], rejects: "RejectCounts", notes: list[str], reading: "Reading"
) -> "list[JudgeMatches]":
    """The matches of each judge: of a run file, or of an annotator in all files of annotations; adds notes on joins.

    Raises:
        ConfigError: a file or judge given twice, or a run file without its rows.
        InputError: a file cannot be read, or names no models, or a run is not of these rows.
    """
    from judgelm.cli.evaluation import is_run_file
    from judgelm.data.judged_texts import match_samples
    from judgelm.data.samples import SampleStream
    from judgelm.data.sources.alpaca_eval import read_annotations
    from judgelm.runs.run_files import read_judgments
    from judgelm.studies.leaderboard import matches_of_comparisons, matches_of_run

    named = [named_run(text) for text in files]
    paths = [path.resolve() for _, path in named]
    if repeated := next((path for path in paths if paths.count(path) > 1), None):
        raise ConfigError(f"{repeated}: given twice; give each file once")
    runs = {path: name for name, path in named if is_run_file(path)}
    if runs and not rows:
        raise ConfigError(f"{next(iter(runs))}: a run file; also give the pairs that it judged, with --rows")
    if len(set(runs.values())) < len(runs):
        raise ConfigError(f"runs named alike ({', '.join(runs.values())}); give each a name: NAME=FILE")
    stream = SampleStream([str(path) for path in rows], on_reject=rejects, reading=reading) if runs else ()
    samples = {sample.id: sample for sample in stream}
    judges = []
    for path, name in runs.items():
        judgments = read_judgments(path)
        matched, texts = match_samples(judgments, samples, name="--rows")
        judges.append(matches_of_run(name, judgments, matched))
        notes += [f"{name}: {note}" for note in texts.notes()]
    annotations = [path for _, path in named if path not in runs]
    comparisons = (row for path in annotations for row in read_annotations(str(path), on_reject=rejects))
    return [*judges, *matches_of_comparisons(comparisons)]
