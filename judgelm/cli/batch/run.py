"""How `judgelm-batch` runs: what is checked before the model is loaded, and a run with its progress and its table."""

from collections.abc import Callable
from pathlib import Path

import typer

from judgelm.cli.batch.messages import RejectPrinter, show_input, show_resume
from judgelm.cli.batch.summary import summary_table
from judgelm.cli.console import EXIT_INTERRUPTED, console, watch
from judgelm.cli.loading import heap_frozen, show_notes
from judgelm.cli.output import is_stdout
from judgelm.cluster.plan import Cluster
from judgelm.data.samples import SampleStream
from judgelm.engines.catalog import ENGINES, choose_engine
from judgelm.errors import ConfigError, InputError
from judgelm.judge import Judge
from judgelm.modes import BatchMode
from judgelm.records import Judgment
from judgelm.runs.batch import BatchHooks, BatchJob, count_rows, run_batch
from judgelm.runs.process_cleanup import end_orphans, mark_children
from judgelm.runs.stats import RunStats

_SHOWN_REJECTS = 5


def check_names(engine: str, model: str | None) -> None:
    """Refuse an engine that does not exist, and a run without a model.

    Raises:
        ConfigError: either.
    """
    if engine != "auto" and engine not in ENGINES:
        raise ConfigError(f"engine {engine!r} does not exist; there are: auto, {', '.join(ENGINES)}")
    if not model:
        raise ConfigError("--model is missing; give a local folder or a hub id (owner/name)")


def place_of(inputs: list[str], out: str | None, json_out: Path | None) -> str:
    """Where the judgments go; what comes from standard input alone goes to standard output.

    Raises:
        ConfigError: nobody says where, it is no JSONL file, or `--json` asks for standard output as well.
    """
    if out is None and inputs == ["-"]:
        out = "-"
    if out == "-" and is_stdout(json_out):
        raise ConfigError("--json -: the judgments go to standard output; give --json a file, or name one with -o")
    if out is None:
        raise ConfigError("-o is missing; name the file for the judgments, such as -o judgments.jsonl")
    if out != "-" and not out.endswith(".jsonl"):
        raise ConfigError(f"-o {out}: the judgments are JSONL; give it the ending .jsonl")
    return out


def check_places(job: BatchJob) -> None:
    """See what a mistyped path would only show after the model has been loaded."""
    for path in job.inputs:
        if path != "-" and not Path(path).exists():
            SampleStream([path])  # raises with a hint at similar names
    if job.out != "-" and Path(job.out).is_dir():
        raise InputError(f"{job.out}: is a folder; name a file in it")
    if job.out != "-" and not Path(job.out).resolve().parent.is_dir():
        raise InputError(f"{job.out}: no such folder; create {Path(job.out).parent} first")


def clear_and_mark(job: BatchJob, *, quiet: bool) -> None:
    """End the engine processes of a killed run of the same file, and mark those that this one is about to start."""
    if job.out == "-":
        return
    if (ended := end_orphans(job.out)) and not quiet:
        processes = "1 process" if len(ended) == 1 else f"{len(ended)} processes"
        console.print(f"ended {processes} that a killed run left behind", highlight=False)
    mark_children(job.out)


def announced(model: str, engine: str, cluster: Cluster | None, *, quiet: bool) -> str:
    """The engine's name, said together with the reason where it was judgelm's choice; workers choose for themselves."""
    name, why = choose_engine() if engine == "auto" and cluster is None else (engine, "")
    if cluster is not None:
        why = f"on workers, Ray address {cluster.address}"
    if not quiet:
        console.print(f"loading {model} ({name} engine{why and f': {why}'})", markup=False, highlight=False)
    return name


def run(
    job: BatchJob,
    judge: Judge,
    mode: BatchMode,
    *,
    quiet: bool,
    total: int | None = None,
    look: Callable[[Judgment], None] = lambda judgment: None,
) -> RunStats:
    """Run with progress and a table at the end; Ctrl-C and SIGTERM leave a resumable run.

    `total` is how many there are to judge, where that is not the input's rows; `look` sees each judgment.
    """
    done = 0
    if not quiet:
        show_notes(judge)

    def count(stats: RunStats, judgment: Judgment) -> None:
        nonlocal done
        done = stats.judged
        update(stats, judgment)
        look(judgment)

    with watch(_total(job) if total is None else total, quiet=quiet) as update:
        hooks = BatchHooks(
            on_input=lambda stream: None if quiet else show_input(stream, judge, mode),
            on_resume=(lambda finished, repaired: None) if quiet else show_resume,
            on_judgment=count,
            on_reject=RejectPrinter(_SHOWN_REJECTS if job.out != "-" else None),
        )
        try:
            with heap_frozen():
                stats = run_batch(job, mode, judge.engine, load_s=judge.load_s, hooks=hooks)
        except KeyboardInterrupt:
            again = "" if job.out == "-" else "; run the same command again to go on"
            console.print(f"\n[yellow]interrupted[/] after {done} judgments{again}")
            raise typer.Exit(EXIT_INTERRUPTED) from None
    if not quiet:
        console.print(summary_table(stats, mode, judge.engine.stats()))
        if job.out != "-":
            console.print(f"judgments in {job.out}", markup=False, highlight=False)
    return stats


def _total(job: BatchJob) -> int | None:
    rows = count_rows(job.inputs[0])
    return rows if job.limit is None or rows is None else min(rows, job.limit)
