"""`judgelm-batch`: pairs in, judgments out."""

from pathlib import Path
from typing import Annotated, Literal

import typer
from rich.table import Table

from judgelm.batch import BatchHooks, BatchJob, Tally, count_rows, run_batch
from judgelm.cli.console import (
    EXIT_FAILURES,
    EXIT_INTERRUPTED,
    console,
    load_config,
    run_app,
    watch,
)
from judgelm.data.rows import Reject
from judgelm.data.samples import SampleStream
from judgelm.engines.catalog import AUTO_ENGINE, ENGINES
from judgelm.errors import ConfigError, InputError
from judgelm.judge import Judge
from judgelm.modes import MODES, Pairwise
from judgelm.records import Judgment

app = typer.Typer(add_completion=False, rich_markup_mode="rich", pretty_exceptions_enable=False)

_EPILOG = """
Examples:

  judgelm-batch pairs.jsonl -o judgments.jsonl --model my-judge --both-orders

  judgelm-batch model.json reference.json -o judgments.jsonl --model my-judge   (two AlpacaEval output files)

  cat pairs.jsonl | judgelm-batch - --model my-judge > judgments.jsonl

The same command again resumes a run. Exit codes: 0 all judged, 1 usage or input error, 2 finished with failures
above --max-failure-rate, 130 interrupted (resumable).
"""
_SHOWN_REJECTS = 5
_JUDGING, _MODEL = "How to judge", "Model and engine"


@app.command(epilog=_EPILOG, no_args_is_help=True)
def batch(
    context: typer.Context,
    inputs: Annotated[
        list[str],
        typer.Argument(
            metavar="INPUT...",
            help="A file of pairs (JSONL, JSON list, CSV, TSV, Parquet, .gz), two files "
            "of AlpacaEval outputs, or - for JSONL on standard input.",
        ),
    ],
    out: Annotated[
        str | None, typer.Option("--out", "-o", help="Judgments as JSONL; - is standard output (no resume).")
    ] = None,
    model: Annotated[
        str, typer.Option("--model", "-m", help="Local folder or hub id of the judge.", rich_help_panel=_MODEL)
    ] = "",
    mode: Annotated[str, typer.Option(help=f"Way of judging: {', '.join(MODES)}.", rich_help_panel=_JUDGING)] = "pair",
    engine: Annotated[str, typer.Option(help=f"auto, {', '.join(ENGINES)}.", rich_help_panel=_MODEL)] = "auto",
    both_orders: Annotated[
        bool, typer.Option("--both-orders", metavar="", help="Show each pair in both orders.", rich_help_panel=_JUDGING)
    ] = False,
    order_rule: Annotated[
        Literal["mean", "tie"],
        typer.Option(help="Two orders into one verdict: mean score, or a conflict is a tie.", rich_help_panel=_JUDGING),
    ] = "mean",
    accept_one_order: Annotated[
        bool,
        typer.Option(
            "--accept-one-order",
            metavar="",
            help="When one order fails, take the other's verdict.",
            rich_help_panel=_JUDGING,
        ),
    ] = False,
    reference: Annotated[
        Literal["auto", "use", "ignore"],
        typer.Option(help="Show references: where there are, always, never.", rich_help_panel=_JUDGING),
    ] = "auto",
    references: Annotated[
        str | None, typer.Option(help="A file of references by id.", rich_help_panel=_JUDGING)
    ] = None,
    template: Annotated[
        str | None, typer.Option(help="Prompt template; default: the model card's.", rich_help_panel=_JUDGING)
    ] = None,
    ignore_card: Annotated[
        bool,
        typer.Option(
            "--ignore-card",
            metavar="",
            help="Use another template than the model was trained with.",
            rich_help_panel=_JUDGING,
        ),
    ] = False,
    temperature: Annotated[float, typer.Option(min=0.0, help="0 is greedy.", rich_help_panel=_JUDGING)] = 0.0,
    seed: Annotated[int, typer.Option(help="Seed for temperature above 0.", rich_help_panel=_JUDGING)] = 0,
    max_tokens: Annotated[
        int, typer.Option(min=1, help="Room for the score line, in tokens.", rich_help_panel=_JUDGING)
    ] = 24,
    limit: Annotated[int | None, typer.Option(min=0, help="Judge only the first N samples.")] = None,
    retry: Annotated[
        Literal["engine", "failed"], typer.Option(help="Which earlier failures a rerun judges again.")
    ] = "engine",
    overwrite: Annotated[
        bool, typer.Option("--overwrite", metavar="", help="Start over, deleting OUT and its manifest.")
    ] = False,
    max_failure_rate: Annotated[
        float, typer.Option(min=0.0, max=1.0, help="Exit with 2 above this share of failures.")
    ] = 0.05,
    adapter: Annotated[str | None, typer.Option(help="PEFT adapter put on the model.", rich_help_panel=_MODEL)] = None,
    dtype: Annotated[str, typer.Option(help="auto, float32, bfloat16, float16.", rich_help_panel=_MODEL)] = "auto",
    device: Annotated[str, typer.Option(help="auto, cpu, cuda, cuda:0, ...", rich_help_panel=_MODEL)] = "auto",
    quantization: Annotated[
        str | None, typer.Option(help="4bit or 8bit, through bitsandbytes.", rich_help_panel=_MODEL)
    ] = None,
    revision: Annotated[str | None, typer.Option(help="Hub revision.", rich_help_panel=_MODEL)] = None,
    batch_tokens: Annotated[
        int | None, typer.Option(min=1, help="Most tokens in one forward pass.", rich_help_panel=_MODEL)
    ] = None,
    max_sequences: Annotated[
        int, typer.Option(min=1, help="Most replies under way at once.", rich_help_panel=_MODEL)
    ] = 256,
    window_tokens: Annotated[
        int | None, typer.Option(min=1, help="Limit the model's window.", rich_help_panel=_MODEL)
    ] = None,
    trust_remote_code: Annotated[
        bool,
        typer.Option(
            "--trust-remote-code", metavar="", help="Run Python code that comes with the model.", rich_help_panel=_MODEL
        ),
    ] = False,
    quiet: Annotated[bool, typer.Option("--quiet", "-q", metavar="", help="Print errors only.")] = False,
    config: Annotated[
        Path | None, typer.Option(callback=load_config, is_eager=True, help="YAML file of these options.")
    ] = None,
) -> None:
    """Judge pairs of answers with a local judge model."""
    if mode not in MODES:
        raise ConfigError(f"mode {mode!r} does not exist; there are: {', '.join(MODES)}")
    if engine != "auto" and engine not in ENGINES:
        raise ConfigError(f"engine {engine!r} does not exist; there are: auto, {', '.join(ENGINES)}")
    if not model:
        raise ConfigError("--model is missing; give a local folder or a hub id (owner/name)")
    job = BatchJob(
        inputs=tuple(inputs),
        out=_out(inputs, out),
        limit=limit,
        references=references,
        retry=retry,
        overwrite=overwrite,
    )
    _check_places(job)
    if not quiet:
        used = AUTO_ENGINE if engine == "auto" else engine
        console.print(f"loading {model} ({used} engine)", markup=False, highlight=False)
    judge = Judge(
        model,
        engine=engine,
        template=template,
        ignore_card=ignore_card,
        adapter=adapter,
        dtype=dtype,
        device=device,
        quantization=quantization,
        revision=revision,
        batch_tokens=batch_tokens,
        max_sequences=max_sequences,
        window_tokens=window_tokens,
        trust_remote_code=trust_remote_code,
    )
    pair = judge.pairwise(
        both_orders=both_orders,
        order_rule=order_rule,
        accept_one_order=accept_one_order,
        reference=reference,
        temperature=temperature,
        seed=seed,
        max_tokens=max_tokens,
    )
    with judge:
        tally = _run(job, judge, pair, quiet=quiet)
    if tally.failure_rate > max_failure_rate:
        console.print(
            f"[yellow]{tally.failure_rate:.1%} of the samples have no verdict[/] (limit {max_failure_rate:.1%})"
        )
        raise typer.Exit(EXIT_FAILURES)


def main() -> None:
    """Entry point of `judgelm-batch`."""
    run_app(app)


def _out(inputs: list[str], out: str | None) -> str:
    if out is None and inputs == ["-"]:
        return "-"
    if out is None:
        raise ConfigError("-o is missing; name the file for the judgments, such as -o judgments.jsonl")
    if out != "-" and not out.endswith(".jsonl"):
        raise ConfigError(f"-o {out}: the judgments are JSONL; give it the ending .jsonl")
    return out


def _check_places(job: BatchJob) -> None:
    """See what a mistyped path would only show after the model has been loaded."""
    for path in job.inputs:
        if path != "-" and not Path(path).exists():
            SampleStream([path])  # raises with a hint at similar names
    if job.out != "-" and Path(job.out).is_dir():
        raise InputError(f"{job.out}: is a folder; name a file in it")
    if job.out != "-" and not Path(job.out).resolve().parent.is_dir():
        raise InputError(f"{job.out}: no such folder; create {Path(job.out).parent} first")


def _run(job: BatchJob, judge: Judge, mode: Pairwise, *, quiet: bool) -> Tally:
    """Run with progress and a table at the end; Ctrl-C and SIGTERM leave a resumable run."""
    done = 0

    def count(tally: Tally, judgment: Judgment) -> None:
        nonlocal done
        done = tally.judged
        update(tally, judgment)

    with watch(_total(job), quiet=quiet) as update:
        hooks = BatchHooks(
            on_input=lambda stream: None if quiet else _show_input(stream, judge, mode),
            on_resume=(lambda finished, repaired: None) if quiet else _show_resume,
            on_judgment=count,
            on_reject=_RejectPrinter(_SHOWN_REJECTS if job.out != "-" else None),
        )
        try:
            tally = run_batch(job, mode, judge.engine, load_s=judge.load_s, hooks=hooks)
        except KeyboardInterrupt:
            again = "" if job.out == "-" else "; run the same command again to go on"
            console.print(f"\n[yellow]interrupted[/] after {done} judgments{again}")
            raise typer.Exit(EXIT_INTERRUPTED) from None
    if not quiet:
        console.print(summary_table(tally))
        if job.out != "-":
            console.print(f"judgments in {job.out}", markup=False, highlight=False)
    return tally


def _total(job: BatchJob) -> int | None:
    rows = count_rows(job.inputs[0])
    return rows if job.limit is None or rows is None else min(rows, job.limit)


def _show_input(stream: SampleStream, judge: Judge, mode: Pairwise) -> None:
    mapping = ", ".join(f"{target} = {source}" for target, source in stream.format.mapping.items())
    console.print(f"input: {stream.format.name} ({mapping})", markup=False, highlight=False, soft_wrap=True)
    orders = f"both orders, rule {mode.order_rule}" if mode.both_orders else "one order"
    console.print(f"judging: {orders}, template {mode.template} (from the {judge.format.source})", highlight=False)


def _show_resume(finished: int, repaired: int) -> None:
    if repaired:
        console.print(f"mended a torn last line ({repaired} bytes removed)", highlight=False)
    if finished:
        console.print(f"resuming: {finished} samples are already judged", highlight=False)


class _RejectPrinter:
    """Prints the first rejects, as all of them are in the rejects file; all of them where there is no such file."""

    def __init__(self, most: int | None) -> None:
        self._most = most
        self._count = 0

    def __call__(self, reject: Reject) -> None:
        """Print one."""
        self._count += 1
        if self._most is None or self._count <= self._most:
            console.print(f"rejected {reject.message}", markup=False, highlight=False, soft_wrap=True)
        elif self._count == self._most + 1:
            console.print("more rejects follow; all are in the rejects file", highlight=False)


def summary_table(tally: Tally) -> Table:
    """What a session has done, for the end of the run."""
    table = Table(title="judgments", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("judged", str(tally.judged))
    table.add_row("  first / tie / second better", " / ".join(str(tally.winners[name]) for name in ("1", "tie", "2")))
    table.add_row("  failed", _counts(tally))
    if tally.both_orders:
        share = tally.consistent / tally.both_orders
        table.add_row("same winner in both orders", f"{share:.1%} of {tally.both_orders}")
    for name, count in (
        ("failed in earlier sessions (see --retry)", sum(tally.earlier_failures.values())),
        ("rejected input lines", tally.rejected),
        ("judged in an earlier session", tally.skipped),
        ("input cells that were no text, coerced", tally.coerced),
        ("samples with an answer cut to fit", tally.cut),
        ("samples with look-alikes neutralised", tally.neutralised),
    ):
        if count:
            table.add_row(name, str(count))
    table.add_row("prompt / reply tokens", f"{tally.prompt_tokens:,} / {tally.completion_tokens:,}")
    table.add_row("time to load / judge", f"{tally.load_s:.1f} s / {tally.judge_s:.1f} s")
    if tally.judge_s:
        table.add_row("samples/s", f"{tally.judged / tally.judge_s:,.1f}")
    return table


def _counts(tally: Tally) -> str:
    total = sum(tally.failures.values())
    kinds = ", ".join(f"{code} {count}" for code, count in tally.failures.most_common())
    return f"{total} ({kinds})" if total else "0"
