"""A run of `judgelm-batch`: checks before the model is loaded, progress, messages and the final table."""

from collections.abc import Callable, Sequence
from dataclasses import MISSING, fields
from pathlib import Path
from typing import Any, cast

import typer

from judgelm.cli.batch.summary import summary_table
from judgelm.cli.console import EXIT_INTERRUPTED, console, watch
from judgelm.cli.loading import heap_frozen, show_notes
from judgelm.cli.options import JudgeOptions
from judgelm.cli.output import is_stdout
from judgelm.data.readers.rows import Reject
from judgelm.data.readers.streams import all_input_files
from judgelm.data.samples import SampleStream
from judgelm.engines.catalog import check_engine
from judgelm.errors import ConfigError, InputError
from judgelm.judge import Judge, judge_of
from judgelm.judges.released import recognise
from judgelm.modes import CARD_FIELDS, BatchMode, Pairwise, make_mode
from judgelm.records import Judgment
from judgelm.runs.batch import BatchHooks, BatchJob, count_rows, run_batch
from judgelm.runs.session import end_orphans, mark_children
from judgelm.runs.stats import RunStats

_SHOWN_REJECTS = 5


def check_names(engine: str, models: Sequence[str | None], adapter: str | None) -> None:
    """Refuse an engine that does not exist, and judges that are not installed, the default one among them.

    Raises:
        ConfigError: no such engine, or one that needs a model.
        ModelError: a judge's name (None is the default judge) whose parts are not on this machine.
    """
    check_engine(engine)
    for model in models:
        judge_of(model, engine, adapter=adapter)


def checked_mode(mode: str, chosen: dict[str, Any], judge: JudgeOptions, *, model: str | None, is_default: bool) -> str:
    """The mode's name: a released judge's usual one where none is asked for; options that do not fit are refused.

    Raises:
        ConfigError: no such mode or card, options that do not fit together, or a mode that the judge does not have.
        ModelError: the words of a released judge's prompt cannot be had.
    """
    named = model is None or judge.ignore_card
    released = None if named else recognise(str(model), judge.card, adapter=judge.adapter).judge
    if released is None or released.template:
        make_mode(mode, chosen)
        return mode
    if is_default and mode not in released.modes:
        mode = released.modes[0]
    released.mode(mode, chosen)
    return mode


def output_of(inputs: list[str], out: str | None, json_out: Path | None) -> str:
    """The path of the judgments; input from standard input alone goes to standard output.

    Raises:
        ConfigError: no path, not a JSONL file, or `--json` asks for standard output as well.
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


def check_paths(job: BatchJob) -> None:
    """Refuse mistyped paths before the model is loaded."""
    all_input_files(job.inputs)  # raises with a hint at similar names
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
        console.print(f"ended {processes} left by a killed run", highlight=False)
    mark_children(job.out)


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

    `total` is the number of samples to judge, where it is not the number of rows; `look` is called with each judgment.
    """
    done = 0
    notes = judge.notes
    if not quiet:
        show_notes(notes)

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
            again = "" if job.out == "-" else "; run the same command again to continue"
            console.print(f"\ninterrupted after {done} judgments{again}", style="yellow")
            raise typer.Exit(EXIT_INTERRUPTED) from None
    if not quiet:
        console.print(summary_table(stats, mode, judge.engine.stats()))
        show_notes(note for note in judge.notes if note not in notes)
        if job.out != "-":
            console.print(f"judgments in {job.out}", markup=False, highlight=False)
    return stats


def _total(job: BatchJob) -> int | None:
    rows = count_rows(job.inputs)
    return rows if job.limit is None or rows is None else min(rows, job.limit)


def show_input(stream: SampleStream, judge: Judge, mode: BatchMode) -> None:
    """Print the mapping of the input's fields, and how the samples are judged."""
    mapping = ", ".join(f"{target} = {source}" for target, source in stream.source.fields.items())
    console.print(f"input: {stream.source.name} ({mapping})", markup=False, highlight=False, soft_wrap=True)
    description = _pairs(judge, mode) if type(mode) is Pairwise else _others(judge, mode)
    console.print(f"judging: {description}", markup=False, highlight=False, soft_wrap=True)
    if getattr(mode, "reasons", "none") != "none" and judge.format.never_explained:
        console.message(
            "by its card this judge was trained without reasons; do not trust them", label="reasons:", style="yellow"
        )


def _pairs(judge: Judge, mode: Pairwise) -> str:
    orders = "both orders" if mode.both_orders else "one order"
    if mode.both_orders or mode.order_rule == "probability":
        orders += f", rule {mode.order_rule}"
    low, high = mode.scale
    return f"{orders}, {_template(judge, mode)}, scores {low:g} to {high:g}"


def _others(judge: Judge, mode: BatchMode) -> str:
    """The mode's name, its template, and all options that differ from their defaults."""
    options = [
        f"{field.name} {value}"
        for field in fields(cast(Any, mode))
        if field.name not in CARD_FIELDS
        and (value := getattr(mode, field.name))
        != (field.default if field.default_factory is MISSING else field.default_factory())
    ]
    return ", ".join([f"mode {mode.name}", _template(judge, mode), *options])


def _template(judge: Judge, mode: BatchMode) -> str:
    """The template's name, and its source unless the mode has only one."""
    if "template" not in {field.name for field in fields(cast(Any, mode))}:
        return f"template {mode.template}"
    source = f"from the {judge.format.source}"
    if judge.format.source != "card" and judge.engine.describe()["engine"] == "openai":
        source += ", since a server's model has no card"
    return f"template {mode.template} ({source})"


def show_resume(finished: int, repaired: int) -> None:
    """Print what earlier sessions left."""
    if repaired:
        console.print(f"removed an incomplete last line ({repaired} bytes)", highlight=False)
    if finished:
        console.print(f"resuming: {finished} samples are already judged", highlight=False)


class RejectPrinter:
    """Prints the first rejects; all of them where there is no rejects file."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._count = 0

    def __call__(self, reject: Reject) -> None:
        """Print one."""
        self._count += 1
        if self._most is None or self._count <= self._most:
            console.print(f"rejected {reject.message}", markup=False, highlight=False, soft_wrap=True)
        elif self._count == self._most + 1:
            console.print("further rejects are in the rejects file", highlight=False)
