"""Studies of judged pairs, such as `judgelm study judgelm`, `compare-judges`, `position-bias`, and `calibration`."""

import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from judgelm.cli.help import essential
from judgelm.cli.options import ColumnOptions, LabelChoice, LabelOptions, Labels, Parser, Scale, StudyOutput, named_run
from judgelm.data.readers.rows import RejectCounts
from judgelm.errors import ConfigError, InputError
from judgelm.parsing.scores import LabelRule


@essential("labels name failures order_rule column label_code out overwrite json")
def compare_judges_command(
    judgments: Annotated[list[Path], typer.Argument(metavar="RUN")],
    labels: Labels,
    name: Annotated[list[str] | None, typer.Option(metavar="NAME")] = None,
    failures: Literal["excluded", "as_tie"] = "excluded",
    order_rule: LabelRule = "as_judged",
    tie_threshold: Annotated[float, typer.Option(min=0.0, max=0.5)] = 0.05,
    label_reference: LabelChoice = "auto",
    parser: Parser = "judgelm",
    scale: Scale = "1-10",
    *,
    rows_as: LabelOptions,
    output: StudyOutput,
) -> None:
    """Compare judges on the same labelled pairs: paired differences, kappa, flips, order effects, and categories.

    Example: judgelm study compare-judges a.jsonl b.jsonl --labels labels.jsonl -o compared

    Options:
        judgments: At least two run files, JudgeLM outputs (pred_text), or PandaLM results.
        name: Name of a judge. Repeat once per file, in the same order.
        failures: Exclude failed judgments, or count them as ties.
        order_rule: How to combine the two orders, for all judges; given is the rule used by `judgelm eval`.
        tie_threshold: For rule probability, count a pair as a tie if P is this close to 0.5.
    """
    from judgelm.cli.evaluation import load_labels, load_manifest, read_judges  # scikit-learn takes seconds to load
    from judgelm.studies.compare_judges import CompareOptions, compare_judges

    options = CompareOptions(
        failures=failures, order_rule=order_rule, tie_threshold=tie_threshold, resampling=output.resampling
    )
    judges = read_judges(judgments, name or [], parser=parser, scale=scale)
    labelled = load_labels(labels, label_reference, load_manifest(judgments[0]), rows_as.reading_of(labels, *judgments))
    output.write(compare_judges(judges, labelled, options))
    rows_as.check_rejected(labels, labelled.rejected, labelled.read)


def position_bias_command(
    judgments: Annotated[list[str], typer.Argument(metavar="[NAME=]RUN")], *, output: StudyOutput
) -> None:
    """Measure the effect of the answer order on a judge's verdicts, without labels.

    Example: judgelm study position-bias bard=bard-vs-gpt.jsonl gpt-vs-bard.jsonl -o order

    Options:
        judgments: Run files in both orders, or one review file (Vicuna, QLoRA) per order. Review files are paired if
            they are named X-vs-Y and Y-vs-X or have the same NAME. NAME defaults to the file name; for a pair of files,
            the first file's name.
    """
    from judgelm.cli.evaluation import check_once, decided, is_run_file  # scikit-learn and statsmodels are slow to load
    from judgelm.data.sources.reviews import group_files, read_reviews
    from judgelm.runs.run_files import read_judgments
    from judgelm.studies.position_bias import merge_groups, pairs_of_reviews, pairs_of_run, position_bias_study

    files = [named_run(text) for text in judgments]
    check_once(path for _, path in files)
    runs = [(name, path) for name, path in files if is_run_file(path)]
    reviews = [file for file in files if file not in runs]
    groups = [(name, pairs_of_run(decided(read_judgments(path), path))) for name, path in runs]
    for indices in group_files(reviews):
        joined = [reviews[index] for index in indices]
        groups += pairs_of_reviews([(name, review) for name, path in joined for review in read_reviews(str(path))])
    merged = merge_groups(groups)
    ordered = {name: merged[name] for name in dict.fromkeys(name for name, _ in files) if name in merged}
    output.write(position_bias_study(ordered, output.resampling))


def calibration_command(
    judgments: Annotated[Path, typer.Argument(metavar="RUN")],
    labels: Labels,
    bins: Annotated[int, typer.Option(min=2, max=100)] = 10,
    fit_share: Annotated[float, typer.Option(min=0.0, max=0.95)] = 0.5,
    label_reference: LabelChoice = "auto",
    *,
    rows_as: LabelOptions,
    output: StudyOutput,
) -> None:
    """Measure how reliable a judge's probabilities are, and fit a temperature.

    Example: judgelm study calibration judgments.jsonl --labels labels.jsonl -o calibration

    Options:
        judgments: Run file with probabilities (judgelm-batch --distribution).
        bins: Number of bins in the reliability curve.
        fit_share: Share of the questions used to fit the temperature; 0 skips the fit.
    """
    from judgelm.cli.evaluation import load_labels, load_manifest, read_run  # scikit-learn takes seconds to load
    from judgelm.studies.calibration import CalibrationOptions, calibration_study

    options = CalibrationOptions(bins=bins, fit_share=fit_share, resampling=output.resampling)
    labelled = load_labels(labels, label_reference, load_manifest(judgments), rows_as.reading_of(labels, judgments))
    output.write(calibration_study(read_run(judgments), labelled, options))
    rows_as.check_rejected(labels, labelled.rejected, labelled.read)


def leaderboard_command(
    files: Annotated[list[str], typer.Argument(metavar="RUN...")],
    rows: Annotated[list[Path] | None, typer.Option("--rows", "-r", metavar="FILE")] = None,
    *,
    rows_as: ColumnOptions,
    output: StudyOutput,
) -> None:
    """Rank models by Elo with intervals, and compute AlpacaEval's win rates for each pair of models.

    Elo ratings come from a Bradley-Terry model with soft verdicts, ties, and both orders. Win rates are weighted,
    discrete, and length-controlled.

    Example: judgelm study leaderboard judgments.jsonl --rows pairs.jsonl -o leaderboard

    Options:
        files: Run files for pairs (NAME=FILE or FILE), or AlpacaEval's annotations.json.
        rows: File with the judged pairs, including the model names.
    """
    from judgelm.cli.evaluation import check_once, decided, is_run_file  # scikit-learn and statsmodels are slow to load
    from judgelm.data.judged_texts import match_samples
    from judgelm.data.samples import SampleStream
    from judgelm.data.sources.alpaca_eval import read_annotations
    from judgelm.runs.run_files import read_judgments
    from judgelm.studies.leaderboard import leaderboard_study, matches_of_comparisons, matches_of_run

    named = [named_run(text) for text in files]
    check_once(path for _, path in named)
    runs = {path: name for name, path in named if is_run_file(path)}
    if runs and not rows:
        raise ConfigError(f"{next(iter(runs))}: run files require the judged pairs; add --rows")
    if len(set(runs.values())) < len(runs):
        raise ConfigError(f"duplicate run names ({', '.join(runs.values())}); use NAME=FILE to name each run")
    rejects, judges, notes = RejectCounts(), [], []
    reading = rows_as.reading_of(rows[0], *runs) if runs and rows else rows_as.reading
    stream = SampleStream([str(path) for path in rows], on_reject=rejects, reading=reading) if runs and rows else ()
    samples = {sample.id: sample for sample in stream}
    for path, name in runs.items():
        judgments = decided(read_judgments(path), path)
        matched, texts = match_samples(judgments, samples, name="--rows")
        judges.append(matches_of_run(name, judgments, matched))
        notes += [f"{name}: {note}" for note in texts.notes()]
    annotations = [path for _, path in named if path not in runs]
    comparisons = (row for path in annotations for row in read_annotations(str(path), on_reject=rejects))
    judges += matches_of_comparisons(comparisons)
    notes += [f"excluded: {line}" for line in rejects.lines()]
    output.write(leaderboard_study(judges, output.resampling, notes=notes))


def benchmark_command(
    judgments: Annotated[Path, typer.Argument(metavar="RUN")],
    rows: Annotated[Path, typer.Option("--rows", "-r", metavar="FILE")],
    name: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    *,
    rows_as: LabelOptions,
    output: StudyOutput,
) -> None:
    """Score a run with the metric of its benchmark, and compare it with published scores.

    Supports RewardBench 1 and 2, RM-Bench, JudgeBench, LLMBar, Auto-J, FairEval, Prometheus, EVOUNA, and more.

    Example: judgelm study benchmark judgments.jsonl --rows rewardbench.jsonl -o rewardbench

    Options:
        judgments: Run file for rows from `judgelm data import`.
        rows: File with these rows; the benchmark is identified by the .protocol.json next to it.
        name: Name of the benchmark, if there is no .protocol.json.
    """
    from judgelm.cli.evaluation import decided, read_run  # scikit-learn takes seconds to load
    from judgelm.data.labelled_set import read_labels
    from judgelm.studies.benchmark.study import benchmark_study

    benchmark = name or _benchmark_of(rows)
    labelled = read_labels(str(rows), reading=rows_as.reading_of(rows, judgments))
    output.write(benchmark_study(benchmark, decided(read_run(judgments), judgments), labelled, output.resampling))
    rows_as.check_rejected(rows, labelled.rejected, labelled.read)


def _benchmark_of(rows: Path) -> str:
    path = rows.with_name(f"{rows.name.removesuffix('.jsonl')}.protocol.json")
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["benchmark"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: could not determine the benchmark ({error}); pass --name") from error


def judgelm_command(
    tables: Annotated[Path, typer.Argument(metavar="FILE")],
    runs: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
    labels: Annotated[Path | None, typer.Option(metavar="LABELS")] = None,
    *,
    output: StudyOutput,
) -> None:
    """Reproduce JudgeLM's Tables 1 to 6 for your judges: agreement, order effects, scaling, ablations, and cost.

    Example: judgelm study judgelm configs/study/judgelm_tables.yaml -o tables

    Options:
        tables: YAML file that assigns runs to rows of the paper's tables, with prices for Table 3.
        runs: Folder that contains the runs. Default: the folder of FILE.
        labels: Labels that override the labels in FILE.
    """
    from judgelm.cli.study.tables import read_table_runs  # scikit-learn takes seconds to load
    from judgelm.studies.judgelm_tables import paper_tables

    output.write(paper_tables(*read_table_runs(tables, output.resampling, folder=runs, labels=labels)))
