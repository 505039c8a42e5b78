"""`judgelm-batch`: judge a file of pairs or answers."""

from dataclasses import fields, replace
from pathlib import Path
from typing import Annotated, Literal

import typer

from judgelm.cli import options
from judgelm.cli.commands import add_command
from judgelm.cli.console import EXIT_FAILURES, Results, console, errors, run_app, write_json
from judgelm.cli.help import essential
from judgelm.cli.options import ClusterOptions, ColumnOptions, Config, JudgeOptions, ModeFlags, RunOptions
from judgelm.data.readers.files import first_row
from judgelm.data.readers.inputs import is_stream
from judgelm.errors import ConfigError
from judgelm.modes import MODES, mode_type


@essential(
    "out model prompt mode both_orders reasons references column limit overwrite engine gpus "
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
            help=f"Judging mode (see judgelm judges modes): {', '.join(MODES)}.",
            autocompletion=options.modes,
            rich_help_panel="Judging",
        ),
    ] = "pair",
    mode_arg: Annotated[list[str] | None, typer.Option(metavar="KEY=VALUE", autocompletion=options.mode_args)] = None,
    references: options.References = None,
    criteria: Annotated[Path | None, typer.Option(metavar="FILE")] = None,
    self_answers: str | None = None,
    cascade: Annotated[str | None, typer.Option(metavar="SMALL,LARGE")] = None,
    cascade_band: Annotated[str | None, typer.Option(metavar="LOW,HIGH")] = None,
    unknown: Literal["answer", "refuse"] | None = None,
    *,
    columns: ColumnOptions,
    flags: ModeFlags,
    judge_options: JudgeOptions,
    run_options: RunOptions,
    workers: ClusterOptions,
    results: Results,
    config: Config = None,
) -> None:
    """Judge pairs or single answers with a local judge.

    Options:
        inputs: Files or folders (JSONL, JSON, CSV, TSV, or Parquet; may be compressed), two AlpacaEval output
            files, or - for standard input.
        out: JSONL file for the judgments, or for the Batch API results. Use - for standard output, which
            cannot be resumed.
        unknown: For Batch API input, answer unknown prompts with the model, or refuse them. Default: see judgelm
            serve.

    Model and engine:
        model: The judge: a folder, GGUF file, hub id, name (see judgelm judges), or name on a server. Default:
            qwen-1.5b.
        cascade: Use two judges instead of --model; the second judges only pairs about which the first is unsure.
        cascade_band: The first judge is unsure if P(first better) is between LOW and HIGH. Default: 0.3,0.7.

    Judging:
        mode_arg: Mode option; its value is parsed as YAML. Repeatable.
        criteria: For mode checklist, a YAML or JSON list, or one criterion per line. Criteria in a row take precedence.
        self_answers: Reuse the judge's own answers from this run file (self-reference modes only).

    Examples:
        judgelm-batch pairs.jsonl -o judgments.jsonl --both-orders
        judgelm-batch pairs.jsonl -o judgments.jsonl --model my-judge --both-orders
        judgelm-batch answers.csv -o judgments.jsonl --prompt my_prompt.txt
        judgelm-batch requests.jsonl -o results.jsonl --model my-judge
        judgelm-batch model.json reference.json -o out.jsonl --model my-judge
        judgelm-batch - --model my-judge < pairs.jsonl > judgments.jsonl
        judgelm-batch pairs.jsonl -o try.jsonl --engine scripted --model "8 6"

    The first command uses the default judge, the third command answers an OpenAI Batch API file, and the last command
    needs no model. Run the same command again to resume. Exit codes: 0 done, 1 usage or input error, 2 more failures
    than --max-failure-rate, 130 interrupted (resumable).
    """
    from judgelm.cli.run import cascade_of, check_paths, checked_mode, judge_job, output_of
    from judgelm.judges.released import recognise
    from judgelm.modes.checklist import read_criteria
    from judgelm.prompts.judge_card import find_card
    from judgelm.runs.batch import check_joins

    target = output_of(inputs, out, results.json_out)
    job = run_options.job(inputs, target, references=references, self_answers=self_answers, reading=columns.reading)
    if _holds_requests(inputs, columns.sheet):
        from judgelm.cli.serve import answer_file

        _refuse_judging_options(context)
        refused = answer_file(
            job, model, judge_options, unknown=unknown, both_orders=flags.both_orders, results=results
        )
        if refused > run_options.max_failure_rate:
            raise typer.Exit(EXIT_FAILURES)
        return
    if unknown is not None:
        raise ConfigError("--unknown requires Batch API input (rows with custom_id and body); remove it")
    prompt = judge_options.judge_prompt()
    shown = prompt
    card = find_card(model) if prompt is None and model is not None and Path(model).is_dir() else None
    if card is not None:
        shown = None if card.prompt is None else card.prompt.load()
    if shown is not None and "question" not in shown.slots:
        job = replace(job, reading=replace(job.reading, requires_question=False))
    compares = mode in ("pair", "multi") and not options.is_default(context, "mode")
    check_paths(job, prompt, compares=compares)
    console.messages(check_joins(job))
    chosen = options.mode_options(context, mode_arg or ())
    if criteria is not None:
        if "criteria" in chosen:
            raise ConfigError("--mode-arg criteria=... and --criteria set the same option; keep only one")
        chosen["criteria"] = read_criteria(criteria)
    released = None
    if model is not None and not judge_options.ignore_card:
        released = recognise(model, judge_options.card, adapter=judge_options.adapter).judge
    is_default = options.is_default(context, "mode")
    if is_default and prompt is not None:
        mode = prompt.modes[0]
    elif is_default and card is not None and not judge_options.ignore_card:
        mode = card.mode or mode
    mode = checked_mode(mode, chosen, judge_options, released=released, is_default=is_default)
    if self_answers is not None and not mode_type(mode).uses_self_answers(chosen):
        way_out = "use --mode ssr, or --mode correctness --mode-arg self_reference=guided"
        raise ConfigError(
            f"--self-answers is not supported by mode {mode}, which does not show the judge its own answers; {way_out}"
        )
    cascaded = cascade_of(job, cascade, cascade_band, mode=mode, model=model, adapter=judge_options.adapter)
    judges = [judge_options.resolve(name) for name in (cascaded.models if cascaded else (model,))]
    needed = mode_type(mode).reading
    if needed and judge_options.template is None and judge_options.reading is None:
        judge_options = replace(judge_options, reading=needed)  # rejects unsuitable models before they are loaded
    stats = judge_job(cascaded or job, judges, judge_options, workers.cluster(), mode=mode, chosen=chosen)
    write_json(results.json_out, {"failure_rate": stats.failure_rate} | stats.row())
    if stats.failure_rate > run_options.max_failure_rate:
        if stats.first_failure:
            errors.message(stats.first_failure, label="first failure, sample", style="yellow")
        share = f"{stats.failure_rate:.1%} of the samples have no verdict"
        errors.message(f"(limit {run_options.max_failure_rate:.1%})", label=share, style="yellow")
        raise typer.Exit(EXIT_FAILURES)


def _holds_requests(inputs: list[str], sheet: str | None) -> bool:

    if len(inputs) != 1 or is_stream(inputs[0]) or not Path(inputs[0]).is_file():
        return False
    row = first_row(inputs[0], sheet=sheet)
    return row is not None and {"custom_id", "body"} <= row.data.keys()


def _refuse_judging_options(context: typer.Context) -> None:
    own = {"mode", "mode_arg", "references", "criteria", "self_answers", "cascade", "cascade_band", "limit", "retry"}
    own |= {flag.name for group in (ModeFlags, ColumnOptions, ClusterOptions) for flag in fields(group)}
    own &= context.params.keys() - {"both_orders"}
    options.refuse(context, sorted(own), "cannot be used with Batch API input; remove it")


app = typer.Typer(pretty_exceptions_enable=False)
add_command(app, batch, "batch")


def main() -> None:
    """Run `judgelm-batch`."""
    run_app(app)
