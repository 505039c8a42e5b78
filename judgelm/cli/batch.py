"""`judgelm-batch`: pairs in, judgments out."""

from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from judgelm.cli import options
from judgelm.cli.commands import add_command
from judgelm.cli.console import EXIT_FAILURES, Results, console, run_app, write_json
from judgelm.cli.help import essential
from judgelm.cli.options import ClusterOptions, ColumnOptions, Config, JudgeOptions, ModeFlags
from judgelm.errors import ConfigError
from judgelm.modes import MODES, mode_type

if TYPE_CHECKING:
    from judgelm.judge import Judge


@essential(
    "out model mode both_orders reasons references column limit overwrite engine gpus "
    "max_failure_rate json_out quiet config"
)
def batch(
    context: typer.Context,
    inputs: Annotated[list[str], typer.Argument(metavar="INPUT...")],
    out: str | None = None,
    model: Annotated[str | None, typer.Option("--model", "-m")] = None,
    mode: Annotated[
        str,
        typer.Option(
            help=f"Mode: {', '.join(MODES)}; see judgelm judges modes.",
            autocompletion=options.modes,
            rich_help_panel="How to judge",
        ),
    ] = "pair",
    mode_arg: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", autocompletion=options.mode_args)] = None,
    references: options.References = None,
    criteria: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    self_answers: str | None = None,
    cascade: Annotated[str | None, typer.Option(metavar="SMALL,LARGE")] = None,
    cascade_band: Annotated[str | None, typer.Option(metavar="LOW,HIGH")] = None,
    prompts: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    *,
    columns: ColumnOptions,
    flags: ModeFlags,
    judge_options: JudgeOptions,
    limit: options.Limit = None,
    retry: options.Retries = "engine",
    overwrite: options.Overwrite = False,
    max_failure_rate: options.MaxFailureRate = 0.05,
    workers: ClusterOptions,
    results: Results,
    config: Config = None,
) -> None:
    """Judge answers with a local judge model: pairs, or as --mode says.

    Options:
        inputs: Files or folders of pairs (JSONL, JSON list, CSV, TSV, Parquet; also compressed), two files of
            AlpacaEval outputs, or - for standard input.
        out: Judgments as JSONL; - is standard output (no resume). Of a file for OpenAI's Batch API its results.
        prompts: Of a file for OpenAI's Batch API: YAML that describes judge prompts of your own.

    Model and engine:
        model: Local folder, GGUF file, hub id or name (judgelm judges) of the judge, or its name on a server; default:
            qwen-1.5b.
        cascade: Two judges instead of --model: the second judges only what the first is unsure about.
        cascade_band: Unsure means P(first better) from LOW to HIGH; default 0.3,0.7.

    How to judge:
        mode_arg: An option of this mode; the value is YAML. Repeatable.
        criteria: Mode checklist: a list in YAML or JSON, or one criterion a line; rows with their own keep those.
        self_answers: Run file whose judge's own answers are reused (modes with self-reference).

    Examples:
        judgelm-batch pairs.jsonl -o judgments.jsonl --both-orders
        judgelm-batch pairs.jsonl -o judgments.jsonl --model my-judge --both-orders
        judgelm-batch requests.jsonl -o results.jsonl --model my-judge
        judgelm-batch model.json reference.json -o out.jsonl --model my-judge
        judgelm-batch - --model my-judge < pairs.jsonl > judgments.jsonl
        judgelm-batch pairs.jsonl -o try.jsonl --engine scripted --model "8 6"

    The first uses the default judge (judgelm judges), the third answers a file for OpenAI's Batch API, the last needs
    no model. The same command again resumes a run. Exit codes: 0 all judged, 1 usage or input error, 2 finished with
    failures above --max-failure-rate, 130 interrupted (resumable).
    """
    # these load a judge's parts, for which help does not wait
    from judgelm.cli.run import (
        announce,
        cascade_of,
        check_paths,
        checked_mode,
        clear_and_mark,
        judge_in_cascade,
        output_of,
        run,
        show_notes,
    )
    from judgelm.judge import Judge
    from judgelm.judges.released import recognise
    from judgelm.modes.checklist import read_criteria
    from judgelm.runs.batch import BatchJob, check_joins, run_dtype, run_engine

    engine = judge_options.engine
    job = BatchJob(
        inputs=tuple(inputs),
        out=output_of(inputs, out, results.json_out),
        limit=limit,
        references=references,
        self_answers=self_answers,
        retry=retry,
        overwrite=overwrite,
        reading=columns.reading,
    )
    if _holds_requests(inputs, columns.sheet):
        from judgelm.cli.serve import answer_file

        _refuse_judging_options(context)
        refused = answer_file(job, model, judge_options, prompts, both_orders=flags.both_orders, results=results)
        if refused > max_failure_rate:
            raise typer.Exit(EXIT_FAILURES)
        return
    if prompts is not None:
        raise ConfigError("--prompts describes the prompts of a file of requests, which the input is not")
    check_paths(job)
    joins = check_joins(job)
    if not results.quiet:
        show_notes(joins)
    chosen = options.mode_options(context, mode_arg or ())
    if criteria is not None:
        if "criteria" in chosen:
            raise ConfigError("--mode-arg criteria=... and --criteria set the same option; keep one of them")
        chosen["criteria"] = read_criteria(criteria)
    released = None
    if model is not None and not judge_options.ignore_card:
        released = recognise(model, judge_options.card, adapter=judge_options.adapter).judge
    mode = checked_mode(mode, chosen, judge_options, released=released, is_default=options.is_default(context, "mode"))
    if self_answers is not None and not mode_type(mode).uses_self_answers(chosen):
        way = "--mode ssr, or --mode correctness --mode-arg self_reference=guided"
        raise ConfigError(f"--self-answers: mode {mode} shows the judge none of its own answers; use {way}")
    both = cascade_of(job, cascade, cascade_band, mode=mode, model=model, adapter=judge_options.adapter)
    names = (model,) if both is None else both.models
    judges = {name: judge_options.resolve(name) for name in names}
    arguments = judge_options.judge_arguments()
    if (needed := mode_type(mode).reading) and judge_options.template is None:
        arguments["reading"] = judge_options.reading or needed  # other models are refused before they are loaded
    cluster = workers.cluster()

    def load(name: str | None, job: BatchJob) -> "Judge":
        dtype, resolved = run_dtype(job, judge_options.dtype, engine), judges[name].with_engine(run_engine(job, engine))
        announce(resolved, cluster, quiet=results.quiet)
        return Judge(resolved, cluster=cluster, **arguments | {"dtype": dtype})

    if both is not None:
        stats = judge_in_cascade(both, load, chosen, quiet=results.quiet)
    else:
        clear_and_mark(job, quiet=results.quiet)
        with load(model, job) as judge:
            if mode == "pair" and judge.reads_all_score_lines:
                chosen.setdefault("distribution", True)
            stats = run(job, judge, judge.mode(mode, **chosen), quiet=results.quiet)
    write_json(results.json_out, {"failure_rate": stats.failure_rate} | stats.row())
    if stats.failure_rate > max_failure_rate:
        share = f"{stats.failure_rate:.1%} of the samples have no verdict"
        console.message(f"(limit {max_failure_rate:.1%})", label=share, style="yellow")
        raise typer.Exit(EXIT_FAILURES)


def _holds_requests(inputs: list[str], sheet: str | None) -> bool:
    """True for one file whose rows are requests of OpenAI's Batch API."""
    from judgelm.data.readers.files import first_row
    from judgelm.data.readers.inputs import is_stream

    if len(inputs) != 1 or is_stream(inputs[0]) or not Path(inputs[0]).is_file():
        return False
    row = first_row(inputs[0], sheet=sheet)
    return row is not None and {"custom_id", "body"} <= row.data.keys()


def _refuse_judging_options(context: typer.Context) -> None:
    """Refuse options that say what is judged, or how, which each request of a file says itself.

    Raises:
        ConfigError: one is given.
    """
    own = {"mode", "mode_arg", "references", "criteria", "self_answers", "cascade", "cascade_band", "limit", "retry"}
    own |= {flag.name for group in (ModeFlags, ColumnOptions, ClusterOptions) for flag in fields(group)}
    own &= context.params.keys() - {"both_orders"}
    if given := sorted(name for name in own if not options.is_default(context, name)):
        raise ConfigError(
            f"--{given[0].replace('_', '-')}: a file of requests says itself what is judged; leave it out"
        )


app = typer.Typer(pretty_exceptions_enable=False)
add_command(app, batch, "batch")


def main() -> None:
    """Entry point of `judgelm-batch`."""
    run_app(app)
