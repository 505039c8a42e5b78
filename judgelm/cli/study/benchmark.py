"""`judgelm study benchmark`."""

import json as json_format
from pathlib import Path
from typing import Annotated

import typer

from judgelm.cli.study.options import BootstrapOption, JsonOption, OutOption, OverwriteOption, SeedOption, finish
from judgelm.errors import InputError


def benchmark_command(
    judgments: Annotated[Path, typer.Argument(metavar="RUN", help="A run file over rows of `judgelm data import`.")],
    rows: Annotated[
        Path,
        typer.Option("--rows", "-r", metavar="FILE", help="These rows; their .protocol.json says which benchmark."),
    ],
    out: OutOption,
    name: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="The benchmark, where its .protocol.json is not beside the rows."),
    ] = None,
    overwrite: OverwriteOption = False,
    seed: SeedOption = 0,
    bootstrap: BootstrapOption = 2000,
    json: JsonOption = None,
) -> None:
    """A run by its benchmark's own metric: RewardBench 1 and 2, JudgeBench, LLMBar, Auto-J, FairEval, Prometheus.

    Example: judgelm study benchmark judgments.jsonl --rows rewardbench.jsonl -o rewardbench
    """
    from judgelm.cli.study.inputs import read_judges  # scikit-learn takes seconds to load
    from judgelm.data.labelled_set import read_labels
    from judgelm.metrics.resampling import Resampling
    from judgelm.studies.benchmark.study import benchmark_study

    [found] = read_judges([judgments], [], parser="judgelm", scale="any").values()
    result = benchmark_study(
        name or _benchmark_of(rows), found, read_labels(str(rows)), Resampling(seed=seed, resamples=bootstrap)
    )
    finish(result, out, overwrite=overwrite, json=json)


def _benchmark_of(rows: Path) -> str:
    """What the import has written beside the rows.

    Raises:
        InputError: there is no such file, or it does not say.
    """
    path = rows.with_name(f"{rows.name.removesuffix('.jsonl')}.protocol.json")
    try:
        return str(json_format.loads(path.read_text(encoding="utf-8"))["benchmark"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{path}: does not say which benchmark this is ({error}); pass --name") from error
