"""`judgelm study benchmark`."""

import json
from pathlib import Path
from typing import Annotated

import typer

from judgelm.cli.options import LabelOptions
from judgelm.cli.study.options import StudyOutput
from judgelm.errors import InputError


def benchmark_command(
    judgments: Annotated[Path, typer.Argument(metavar="RUN")],
    rows: Annotated[Path, typer.Option("--rows", "-r", metavar="FILE")],
    name: Annotated[str | None, typer.Option(metavar="NAME")] = None,
    *,
    rows_as: LabelOptions,
    output: StudyOutput,
) -> None:
    """A run by its benchmark's own metric, beside published scores: RewardBench, RMB, RM-Bench, JudgeBench and more.

    Also RewardBench 2, LLMBar, Auto-J, FairEval, Prometheus, JUDGE-BENCH, EVOUNA and WMT side by side.

    Example: judgelm study benchmark judgments.jsonl --rows rewardbench.jsonl -o rewardbench

    Options:
        judgments: A run file over rows of `judgelm data import`.
        rows: These rows; their .protocol.json names the benchmark.
        name: The benchmark, where its .protocol.json is not beside the rows.
    """
    from judgelm.cli.study.inputs import read_run  # scikit-learn takes seconds to load
    from judgelm.data.labelled_set import read_labels
    from judgelm.studies.benchmark.study import benchmark_study

    benchmark = name or _benchmark_of(rows)
    labelled = read_labels(str(rows), reading=rows_as.reading)
    output.write(benchmark_study(benchmark, read_run(judgments), labelled, output.resampling))
    rows_as.check_rejected(rows, labelled.rejected, labelled.read)


def _benchmark_of(rows: Path) -> str:
    """The benchmark that the import has written beside the rows.

    Raises:
        InputError: there is no such file, or it names none.
    """
    path = rows.with_name(f"{rows.name.removesuffix('.jsonl')}.protocol.json")
    try:
        return str(json.loads(path.read_text(encoding="utf-8"))["benchmark"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: does not name the benchmark ({error}); pass --name") from error
