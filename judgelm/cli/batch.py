"""`judgelm-batch`: pairs in, judgments out."""

from collections.abc import Callable
from functools import partial
from pathlib import Path

import typer

from judgelm.batch import BatchHooks, BatchJob, count_rows, run_batch
from judgelm.cli import batch_options as options
from judgelm.cli.batch_showing import RejectPrinter, show_input, show_resume
from judgelm.cli.batch_summary import summary_table
from judgelm.cli.cascade import cascade_of, judge_in_cascade
from judgelm.cli.console import EXIT_FAILURES, EXIT_INTERRUPTED, console, run_app, watch
from judgelm.cluster.plan import Cluster
from judgelm.data.samples import SampleStream
from judgelm.engines.catalog import ENGINES, choose_engine
from judgelm.errors import ConfigError, InputError
from judgelm.judge import Judge
from judgelm.modes import BatchMode
from judgelm.modes.making import make_mode
from judgelm.orphans import end_orphans, mark_children
from judgelm.records import Judgment
from judgelm.tally import Tally

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


@app.command(epilog=_EPILOG, no_args_is_help=True)
def batch(
    context: typer.Context,
    inputs: options.Inputs,
    out: options.Out = None,
    model: options.Model = "",
    mode: options.ModeName = "pair",
    mode_arg: options.ModeArgs = None,
    engine: options.EngineName = "auto",
    both_orders: options.BothOrders = False,
    order_rule: options.Rule = "mean",
    tie_band: options.TieBand = 0.05,
    accept_one_order: options.AcceptOneOrder = False,
    reference: options.Reference = "auto",
    references: options.References = None,
    solves: options.Solves = None,
    template: options.Template = None,
    ignore_card: options.IgnoreCard = False,
    temperature: options.Temperature = 0.0,
    seed: options.Seed = 0,
    max_tokens: options.MaxTokens = 24,
    distribution: options.Distribution = False,
    reasons: options.Reasons = "none",
    close_band: options.CloseBand = 0.1,
    reason_tokens: options.ReasonTokens = 512,
    repair: options.Repair = False,
    cascade: options.Cascade = None,
    cascade_band: options.CascadeBand = None,
    limit: options.Limit = None,
    retry: options.Retries = "engine",
    overwrite: options.Overwrite = False,
    max_failure_rate: options.MaxFailureRate = 0.05,
    engine_arg: options.EngineArgs = None,
    adapter: options.Adapter = None,
    dtype: options.Dtype = "auto",
    device: options.Device = "auto",
    quantization: options.Quantization = None,
    revision: options.Revision = None,
    batch_tokens: options.BatchTokens = None,
    max_sequences: options.MaxSequences = 256,
    window_tokens: options.WindowTokens = None,
    trust_remote_code: options.TrustRemoteCode = False,
    gpus: options.Gpus = None,
    ray: options.Ray = None,
    workers: options.Workers = None,
    worker_cores: options.WorkerCores = None,
    quiet: options.Quiet = False,
    config: options.Config = None,
) -> None:
    """Judge answers with a local judge model: pairs, or as --mode says."""
    _check_names(engine, model or cascade)
    job = BatchJob(
        inputs=tuple(inputs),
        out=_out(inputs, out),
        limit=limit,
        references=references,
        solves=solves,
        retry=retry,
        overwrite=overwrite,
    )
    said = options.mode_options(context, mode_arg or ())
    make_mode(mode, said)  # what does not fit together is said before the model is loaded
    engine_args = options.parse_pairs(engine_arg or (), "--engine-arg")
    cluster = options.cluster_of(ray, gpus, workers, worker_cores)
    _check_places(job)
    both = cascade_of(job, cascade, cascade_band, mode=mode, model=model, adapter=adapter)

    def load(name: str) -> Judge:
        return Judge(
            name,
            engine=_announced(name, engine, cluster, quiet=quiet),
            cluster=cluster,
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
            engine_args=engine_args,
        )

    begin, run = partial(_clear_and_mark, quiet=quiet), partial(_run, quiet=quiet)
    if both is not None:
        tally = judge_in_cascade(both, load, said, run, begin=begin, quiet=quiet)
    else:
        begin(job)
        with load(model) as judge:
            tally = run(job, judge, judge.mode(mode, **said))
    if tally.failure_rate > max_failure_rate:
        console.print(
            f"[yellow]{tally.failure_rate:.1%} of the samples have no verdict[/] (limit {max_failure_rate:.1%})"
        )
        raise typer.Exit(EXIT_FAILURES)


def main() -> None:
    """Entry point of `judgelm-batch`."""
    run_app(app)


def _check_names(engine: str, model: str | None) -> None:
    if engine != "auto" and engine not in ENGINES:
        raise ConfigError(f"engine {engine!r} does not exist; there are: auto, {', '.join(ENGINES)}")
    if not model:
        raise ConfigError("--model is missing; give a local folder or a hub id (owner/name)")


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


def _clear_and_mark(job: BatchJob, *, quiet: bool) -> None:
    """End the engine processes of a killed run of the same file, and mark those that this one is about to start."""
    if job.out == "-":
        return
    if (ended := end_orphans(job.out)) and not quiet:
        processes = "1 process" if len(ended) == 1 else f"{len(ended)} processes"
        console.print(f"ended {processes} that a killed run left behind", highlight=False)
    mark_children(job.out)


def _announced(model: str, engine: str, cluster: Cluster | None, *, quiet: bool) -> str:
    """The engine's name, said together with the reason where it was judgelm's choice; workers choose for themselves."""
    name, why = choose_engine() if engine == "auto" and cluster is None else (engine, "")
    if cluster is not None:
        why = f"on workers, Ray address {cluster.address}"
    if not quiet:
        console.print(f"loading {model} ({name} engine{why and f': {why}'})", markup=False, highlight=False)
    return name


def _run(
    job: BatchJob,
    judge: Judge,
    mode: BatchMode,
    *,
    quiet: bool,
    total: int | None = None,
    look: Callable[[Judgment], None] = lambda judgment: None,
) -> Tally:
    """Run with progress and a table at the end; Ctrl-C and SIGTERM leave a resumable run.

    `total` is how many there are to judge, where that is not the input's rows; `look` sees each judgment.
    """
    done = 0

    def count(tally: Tally, judgment: Judgment) -> None:
        nonlocal done
        done = tally.judged
        update(tally, judgment)
        look(judgment)

    with watch(_total(job) if total is None else total, quiet=quiet) as update:
        hooks = BatchHooks(
            on_input=lambda stream: None if quiet else show_input(stream, judge, mode),
            on_resume=(lambda finished, repaired: None) if quiet else show_resume,
            on_judgment=count,
            on_reject=RejectPrinter(_SHOWN_REJECTS if job.out != "-" else None),
        )
        try:
            tally = run_batch(job, mode, judge.engine, load_s=judge.load_s, hooks=hooks)
        except KeyboardInterrupt:
            again = "" if job.out == "-" else "; run the same command again to go on"
            console.print(f"\n[yellow]interrupted[/] after {done} judgments{again}")
            raise typer.Exit(EXIT_INTERRUPTED) from None
    if not quiet:
        console.print(summary_table(tally, mode, judge.engine.stats()))
        if job.out != "-":
            console.print(f"judgments in {job.out}", markup=False, highlight=False)
    return tally


def _total(job: BatchJob) -> int | None:
    rows = count_rows(job.inputs[0])
    return rows if job.limit is None or rows is None else min(rows, job.limit)
