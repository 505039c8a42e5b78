"""Judge many files on one set of workers, loaded once: for `ray job submit`, Slurm, and shards of a large input.

    python serve/ray_batch.py shards/*.jsonl -o judged --model my-judge --config configs/judge/vllm.yaml
    ray job submit --working-dir . -- python serve/ray_batch.py /shared/*.jsonl -o /shared/judged --model /shared/judge

Each file's judgments, manifest and rejects are written to the folder as `judgelm-batch` writes them, and the same
command resumes an interrupted run. `--config` holds options of `judgelm-batch` (mode, model and engine). For one file
`judgelm-batch --ray auto` does the same and shows its progress. Exit codes: 0, 1, 2 and 130, as there.
"""

import argparse
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

from judgelm import Judge
from judgelm.cli.console import EXIT_FAILURES, EXIT_INTERRUPTED, EXIT_USAGE, echo, terminated_as_interrupt
from judgelm.cli.options import parse_pairs
from judgelm.cluster.plan import RayCluster
from judgelm.engines.base import EngineOptions
from judgelm.errors import ConfigError, JudgelmError
from judgelm.modes import Pairwise
from judgelm.runs.batch import BatchHooks, BatchJob, run_batch, run_dtype
from judgelm.yaml_files import read_yaml

JUDGE = {"engine", "template", "ignore_card", *(field.name for field in fields(EngineOptions))} - {
    "model",
    "engine_args",
}
MODE = {field.name for field in fields(Pairwise)} - {"template", "scale", "step"}


def main() -> int:
    """Load the workers, judge file after file."""
    options = parse_options()
    judge_options, mode_options = read_config(options.config)
    jobs = jobs_of(options.inputs, Path(options.out))
    cluster = RayCluster(address=options.ray, workers=options.workers, cores=options.worker_cores)
    engine, dtype = judge_options.get("engine", "auto"), judge_options.pop("dtype", "auto")
    resumed = (
        resolved for job in jobs if (resolved := run_dtype(job, dtype, engine)) != "auto"
    )  # a run keeps its format
    failed = 0.0
    with Judge(options.model, cluster=cluster, dtype=next(resumed, "auto"), **judge_options) as judge:
        echo("\n".join([f"loaded in {judge.load_s:.0f} s: {judge.engine.stats()['workers']}", *judge.notes]))
        mode = judge.pairwise(**mode_options)
        for job in jobs:
            stats = run_batch(job, mode, judge.engine, hooks=BatchHooks())
            failed = max(failed, stats.failure_rate)
            counts = (
                f"{stats.judged} judged, {sum(stats.failures.values())} of them failed, {stats.skipped} done before"
            )
            echo(f"{job.out}: {counts}, {stats.rejected} lines rejected, {stats.judge_s:.0f} s")
        stats = judge.engine.stats()
    echo(f"lost workers: {stats['lost_workers']}, requests sent again: {stats['requests_sent_again']}")
    return EXIT_FAILURES if failed > options.max_failure_rate else 0


def parse_options() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("inputs", nargs="+", help="files of pairs")
    parser.add_argument("-o", "--out", required=True, help="folder for the judgments")
    parser.add_argument("--model", required=True, help="folder that every node sees, or hub id")
    parser.add_argument("--config", help="YAML file with options of judgelm-batch")
    parser.add_argument("--ray", default="auto", help="auto (default), HOST:PORT, or local")
    parser.add_argument("--workers", type=int, help="default: one per GPU, or per node without")
    parser.add_argument("--worker-cores", type=int, help="CPU cores of each worker")
    parser.add_argument("--max-failure-rate", type=float, default=0.05, help="exit with 2 above it, in any file")
    return parser.parse_args()


def read_config(path: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """Options of the judge and of the mode.

    Raises:
        ConfigError: no such file, or an option that is neither.
    """
    if path is None:
        return {}, {}
    values = dict(read_yaml(path) or {})
    pairs = values.pop("engine_arg", {})
    engine_args = pairs if isinstance(pairs, dict) else parse_pairs(pairs, "--engine-arg")
    if unknown := values.keys() - JUDGE - MODE:
        raise ConfigError(
            f"{path}: {', '.join(sorted(unknown))} is not an option of judge or mode; pass it on the command line, or "
            "leave it out"
        )
    judge = {key: value for key, value in values.items() if key in JUDGE}
    return judge | {"engine_args": engine_args}, {key: value for key, value in values.items() if key in MODE}


def jobs_of(inputs: list[str], out: Path) -> list[BatchJob]:
    """One job a file.

    Raises:
        ConfigError: two files would have the same output.
    """
    out.mkdir(parents=True, exist_ok=True)
    outputs: dict[Path, str] = {}
    for path in inputs:
        output = out / f"{Path(path).name.split('.')[0]}.jsonl"
        if output in outputs:
            raise ConfigError(f"{path} and {outputs[output]} would both be judged into {output}; rename one of them")
        outputs[output] = path
    return [BatchJob(inputs=(path,), out=str(output)) for output, path in outputs.items()]


if __name__ == "__main__":
    try:
        with terminated_as_interrupt():
            sys.exit(main())
    except JudgelmError as error:
        echo(f"error: {error}", err=True)
        sys.exit(EXIT_USAGE)
    except KeyboardInterrupt:
        echo("interrupted; run the same command again to resume", err=True)
        sys.exit(EXIT_INTERRUPTED)
