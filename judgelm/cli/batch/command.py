"""`judgelm-batch`: pairs in, judgments out."""

from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from judgelm.cli import completion
from judgelm.cli.batch import options
from judgelm.cli.batch.options import ModeFlags
from judgelm.cli.commands import add_command
from judgelm.cli.console import EXIT_FAILURES, console, run_app
from judgelm.cli.options import (
    CanaryOptions,
    ClusterOptions,
    ColumnOptions,
    Config,
    JudgeOptions,
)
from judgelm.cli.output import JsonOut, Quiet, write_json

if TYPE_CHECKING:
    from judgelm.judge import Judge


def batch(
    context: typer.Context,
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT...")],
    out: str | None = None,
    model: Annotated[str | None, typer.Option("--model", "-m")] = None,
    mode: Annotated[
        str,
        typer.Option(
            help=f"Mode: {', '.join(completion.MODE_NAMES)}; see judgelm modes.",
            autocompletion=completion.modes,
            rich_help_panel="How to judge",
        ),
    ] = "pair",
    mode_arg: Annotated[
        list[str] | None, typer.Option(metavar="KEY=VALUE", autocompletion=completion.mode_args)
    ] = None,
    references: options.References = None,
    self_answers: str | None = None,
    cascade: Annotated[str | None, typer.Option(metavar="SMALL,LARGE")] = None,
    cascade_band: Annotated[str | None, typer.Option(metavar="LOW,HIGH")] = None,
    *,
    columns: ColumnOptions,
    flags: ModeFlags,
    judge_options: JudgeOptions,
    limit: options.Limit = None,
    retry: options.Retries = "engine",
    overwrite: options.Overwrite = False,
    max_failure_rate: options.MaxFailureRate = 0.05,
    canary_options: CanaryOptions,
    workers: ClusterOptions,
    json_out: JsonOut = None,
    quiet: Quiet = False,
    config: Config = None,
) -> None:
    """Judge answers with a local judge model: pairs, or as --mode says.

    Options:
        inputs: Files or folders of pairs (JSONL, JSON list, CSV, TSV, Parquet; also compressed), two files of
            AlpacaEval outputs, or - for standard input.
        out: Judgments as JSONL; - is standard output (no resume).

    Model and engine:
        model: Local folder, GGUF file, hub id or name (judgelm judges) of the judge, or its name on a server; default:
            small-judge.
        cascade: Two judges instead of --model: the second judges only what the first is unsure about.
        cascade_band: Unsure means P(first better) from LOW to HIGH; default 0.3,0.7.

    How to judge:
        mode_arg: An option of this mode; the value is YAML. Repeatable.
        self_answers: Run file whose judge's own answers are reused (modes with self-reference).

    Examples:
        judgelm-batch pairs.jsonl -o judgments.jsonl --both-orders
        judgelm-batch pairs.jsonl -o judgments.jsonl --model my-judge --both-orders
        judgelm-batch model.json reference.json -o out.jsonl --model my-judge
        judgelm-batch - --model my-judge < pairs.jsonl > judgments.jsonl
        judgelm-batch pairs.jsonl -o try.jsonl --engine scripted --model "8 6"

    The first uses the small judge (judgelm judges), the third judges two AlpacaEval output files, the last needs no
    model. The same command again resumes a run. Exit codes: 0 all judged, 1 usage or input error, 2 finished with
    failures above --max-failure-rate, 3 the judge drifted from its --canary, 130 interrupted (resumable).
    """
    # these load a judge's parts, for which help does not wait
    from judgelm.cli.batch import run as running
    from judgelm.cli.batch.cascade import cascade_of, judge_in_cascade
    from judgelm.cli.canary import check_at_start, check_canary_options
    from judgelm.cli.loading import announced
    from judgelm.judge import Judge
    from judgelm.runs.batch import BatchJob, run_dtype, run_engine

    check_canary_options(canary_options, cascade=cascade)
    engine = judge_options.engine
    running.check_names(engine, cascade.split(",") if cascade else [model], judge_options.adapter)
    job = BatchJob(
        inputs=tuple(inputs),
        out=running.output_of(inputs, out, json_out),
        limit=limit,
        references=references,
        self_answers=self_answers,
        retry=retry,
        overwrite=overwrite,
        reading=columns.reading,
    )
    chosen = options.mode_options(context, mode_arg or ())
    mode = running.checked_mode(
        mode, chosen, judge_options, model=model, is_default=options.is_default(context, "mode")
    )
    arguments = judge_options.judge_arguments()
    cluster = workers.cluster()
    running.check_paths(job)
    both = cascade_of(job, cascade, cascade_band, mode=mode, model=model, adapter=judge_options.adapter)

    def load(name: str | None, job: BatchJob) -> "Judge":
        dtype, resumed = run_dtype(job, judge_options.dtype, engine), run_engine(job, engine)
        name_of_engine = announced(name, resumed, cluster, adapter=judge_options.adapter, quiet=quiet)
        return Judge(name, engine=name_of_engine, cluster=cluster, **arguments | {"dtype": dtype})

    begin, run = partial(running.clear_and_mark, quiet=quiet), partial(running.run, quiet=quiet)
    if both is not None:
        stats = judge_in_cascade(both, load, chosen, run, begin=begin, quiet=quiet)
    else:
        begin(job)
        with load(model, job) as judge:
            check_at_start(judge, canary_options, quiet=quiet)
            stats = run(job, judge, judge.mode(mode, **chosen))
    write_json(json_out, {"failure_rate": stats.failure_rate} | stats.row())
    if stats.failure_rate > max_failure_rate:
        share = f"{stats.failure_rate:.1%} of the samples have no verdict"
        console.message(f"(limit {max_failure_rate:.1%})", label=share, style="yellow")
        raise typer.Exit(EXIT_FAILURES)


app = typer.Typer(pretty_exceptions_enable=False)
add_command(app, batch, "batch")


def main() -> None:
    """Entry point of `judgelm-batch`."""
    run_app(app)
