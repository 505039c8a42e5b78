"""`judgelm-batch`: pairs in, judgments out."""

from functools import partial
from typing import TYPE_CHECKING

import typer

from judgelm.cli.batch import options
from judgelm.cli.console import EXIT_FAILURES, console, run_app
from judgelm.cli.output import write_json

if TYPE_CHECKING:
    from judgelm.judge import Judge

app = typer.Typer(pretty_exceptions_enable=False)

EPILOG = """
Examples:

  judgelm-batch pairs.jsonl -o judgments.jsonl --model my-judge --both-orders

  judgelm-batch model.json reference.json -o out.jsonl --model my-judge

  judgelm-batch - --model my-judge < pairs.jsonl > judgments.jsonl

  judgelm-batch pairs.jsonl -o try.jsonl --engine scripted --model "8 6"

The second judges two AlpacaEval output files, the last needs no model. The same command again resumes a run. \
Exit codes: 0 all judged, 1 usage or input error, 2 finished with failures above --max-failure-rate, 130 interrupted \
(resumable).
"""


@app.command(epilog=EPILOG, no_args_is_help=True)
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
    thinking: options.ThinkingAsked = None,
    thinking_tokens: options.ThinkingTokens = 4096,
    trust_remote_code: options.TrustRemoteCode = False,
    gpus: options.Gpus = None,
    ray: options.Ray = None,
    workers: options.Workers = None,
    worker_cores: options.WorkerCores = None,
    json_out: options.JsonOut = None,
    quiet: options.Quiet = False,
    config: options.Config = None,
) -> None:
    """Judge answers with a local judge model: pairs, or as --mode says."""
    from judgelm.cli.batch import run as running
    from judgelm.cli.batch.cascade import cascade_of, judge_in_cascade
    from judgelm.judge import Judge
    from judgelm.modes.factory import make_mode
    from judgelm.runs.batch import BatchJob, run_dtype  # these load a judge's parts, for which help does not wait

    running.check_names(engine, model or cascade)
    job = BatchJob(
        inputs=tuple(inputs),
        out=running.place_of(inputs, out, json_out),
        limit=limit,
        references=references,
        self_answers=solves,
        retry=retry,
        overwrite=overwrite,
    )
    said = options.mode_options(context, mode_arg or ())
    make_mode(mode, said)  # what does not fit together is said before the model is loaded
    engine_args = options.parse_pairs(engine_arg or (), "--engine-arg")
    cluster = options.cluster_of(ray, gpus, workers, worker_cores)
    running.check_places(job)
    both = cascade_of(job, cascade, cascade_band, mode=mode, model=model, adapter=adapter)

    def load(name: str, job: BatchJob) -> "Judge":
        return Judge(
            name,
            engine=running.announced(name, engine, cluster, quiet=quiet),
            cluster=cluster,
            template=template,
            ignore_card=ignore_card,
            adapter=adapter,
            dtype=run_dtype(job, dtype, engine),
            device=device,
            quantization=quantization,
            revision=revision,
            max_num_batched_tokens=batch_tokens,
            max_num_seqs=max_sequences,
            max_model_len=window_tokens,
            thinking=thinking,
            thinking_tokens=thinking_tokens,
            trust_remote_code=trust_remote_code,
            engine_args=engine_args,
        )

    begin, run = partial(running.clear_and_mark, quiet=quiet), partial(running.run, quiet=quiet)
    if both is not None:
        stats = judge_in_cascade(both, load, said, run, begin=begin, quiet=quiet)
    else:
        begin(job)
        with load(model, job) as judge:
            stats = run(job, judge, judge.mode(mode, **said))
    write_json(json_out, {"failure_rate": stats.failure_rate} | stats.row())
    if stats.failure_rate > max_failure_rate:
        console.print(
            f"[yellow]{stats.failure_rate:.1%} of the samples have no verdict[/] (limit {max_failure_rate:.1%})"
        )
        raise typer.Exit(EXIT_FAILURES)


def main() -> None:
    """Entry point of `judgelm-batch`."""
    run_app(app)
