"""`judgelm data annotate`."""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from judgelm.cli import options
from judgelm.cli.console import EXIT_FAILURES, EXIT_INTERRUPTED, Quiet, console, echo, watch
from judgelm.cli.help import essential
from judgelm.cli.options import ColumnOptions, Config, EngineName, JudgeOptions
from judgelm.engines.catalog import choose_engine
from judgelm.errors import ConfigError
from judgelm.judge import Judge
from judgelm.modes.generation import TeacherMode
from judgelm.prompts.judge_card import find_card
from judgelm.records import Judgment
from judgelm.runs.batch import BatchHooks, BatchJob, pending_samples, run_batch, run_dtype
from judgelm.runs.process_cleanup import end_orphans, mark_children
from judgelm.runs.stats import RunStats
from judgelm.runs.teacher import (
    GPT4_REVIEW_TOKENS,
    CostEstimate,
    Prices,
    TeacherPrompts,
    estimate,
    prices_of,
    spent_usd,
    token_counter,
    write_rows,
)

Price = Annotated[float | None, typer.Option(min=0.0, help="USD per million tokens.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherOptions(JudgeOptions):
    """The options of the teacher and its engine."""

    engine: EngineName = "openai"


@essential(
    "out model references both_orders engine price_in price_out max_cost estimate_only limit "
    "overwrite column quiet config"
)
def annotate_command(
    pairs: Annotated[str, typer.Argument(metavar="PAIRS")],
    out: Annotated[Path, typer.Option(metavar="OUT.jsonl")],
    model: Annotated[str, typer.Option("--model", "-m")],
    reference: Literal["without", "with", "both"] = "without",
    references: options.References = None,
    both_orders: options.BothOrders = False,
    drop_disagreeing: Annotated[bool, typer.Option("--drop-disagreeing/--keep-disagreeing")] = False,
    reason_tokens: Annotated[int, typer.Option(min=1)] = 1024,
    temperature: options.Temperature = 0.0,
    seed: options.Seed = 0,
    price_in: Price = None,
    price_out: Price = None,
    max_cost: Annotated[float | None, typer.Option(min=0.0)] = None,
    tokenizer: str | None = None,
    chars_per_token: Annotated[float, typer.Option(min=0.1)] = 4.0,
    expected_reply_tokens: Annotated[int, typer.Option(min=1)] = GPT4_REVIEW_TOKENS,
    estimate_only: Annotated[bool, typer.Option("--estimate")] = False,
    limit: options.Limit = None,
    retry: options.Retries = "engine",
    overwrite: options.Overwrite = False,
    max_failure_rate: options.MaxFailureRate = 0.05,
    *,
    columns: ColumnOptions,
    teacher: TeacherOptions,
    quiet: Quiet = False,
    config: Config = None,
) -> None:
    """Let a teacher judge pairs, and write its judgments as training rows.

    PAIRS is any format with two answers a row, such as the output of `judgelm data answers pairs`. The prompts are
    those of Figures 3 and 4 of JudgeLM (--template judgelm-paper; judgelm-chat with roles). The cost is shown before
    the run starts (--estimate stops there) and at its end. The teacher's replies are kept in OUT.judgments.jsonl, with
    their manifest beside it; the same command again continues an interrupted run and pays only for replies that were
    in progress. OUT holds JudgeLM rows; a failed reply is counted and makes no row.

    Options:
        pairs: A file with two answers a row, of any known format.
        out: JudgeLM rows, written at the end.
        model: Local folder or hub id of the teacher, or its name on a server.
        reference: Judge without the reference, with, both.
        drop_disagreeing: With --both-orders: pairs whose winners differ.
        reason_tokens: Most tokens of a reply, scores and reason together.
        max_cost: USD that all sessions of OUT may cost together.
        tokenizer: Folder or hub id of a tokenizer, to measure prompts with.
        chars_per_token: Assumed for the estimate where there is no tokenizer.
        expected_reply_tokens: Tokens of a reply, assumed for the estimate.
        estimate_only: Print the cost estimate and exit.

    Examples:
        judgelm data annotate pairs.jsonl -o rows.jsonl --model gpt-4o --estimate
        judgelm data annotate pairs.jsonl -o rows.jsonl --model gpt-4o

    Prices and further options: configs/data/annotate.yaml. Exit codes: 0 done, 1 usage or input error, 2 more failures
    than --max-failure-rate or the budget used up, 130 interrupted.
    """
    _check_options(pairs, out, references, compares=drop_disagreeing, both_orders=both_orders)
    engine = choose_engine()[0] if teacher.engine == "auto" else teacher.engine
    card = find_card(teacher.adapter or model) if engine in ("transformers", "vllm") else None
    template = teacher.template or (card.template if card else "judgelm-paper")
    mode = TeacherMode(template=template, reason_tokens=reason_tokens, temperature=temperature, seed=seed)
    prompts = TeacherPrompts(reference=reference, both_orders=both_orders)
    run = out.with_name(f"{out.stem}.judgments.jsonl")
    job = BatchJob(
        inputs=(pairs,),
        out=str(run),
        limit=limit,
        references=references,
        retry=retry,
        overwrite=overwrite,
        reading=columns.reading,
        parts=prompts,
    )
    loading = teacher.judge_arguments()
    arguments = loading["engine_args"]
    arguments |= {name: usd for name, usd in (("price_in", price_in), ("price_out", price_out)) if usd is not None}
    prices = prices_of(arguments)
    spent = spent_usd(run, prices) if prices and not overwrite else 0.0
    tokens_of = token_counter(tokenizer, chars_per_token)
    before = RunStats()
    requests = (mode.request(sample) for sample in pending_samples(job, before))
    expected = estimate(requests, tokens_of, expected_reply=expected_reply_tokens, max_reply=reason_tokens)
    _show_estimate(expected, tokenizer or f"{chars_per_token:g} characters a token", prices, spent, max_cost)
    if estimate_only:
        return
    if engine != "openai":  # the others bill nothing; the prices were for the estimate
        arguments = {name: value for name, value in arguments.items() if not name.startswith("price_")}
    if max_cost is not None:
        arguments["max_cost_usd"] = _budget(engine, prices, spent, max_cost)
    end_orphans(str(run))
    mark_children(str(run))
    loading |= {"template": template, "dtype": run_dtype(job, teacher.dtype, engine), "engine_args": arguments}
    with Judge(model, engine=engine, **loading) as judge:
        total = expected.requests + before.skipped
        tally, over_budget = _ask(job, replace(mode, scale=judge.format.scale), judge, total, quiet=quiet)
        stats = judge.engine.stats()
    _show_result(tally, write_rows(job, prompts, out, drop_disagreeing=drop_disagreeing), stats)
    if prices is not None and engine == "openai":
        echo(f"spent in all sessions, at most: {spent_usd(run, prices):,.4f} USD")
    if over_budget:
        finding = f"stopped by --max-cost {max_cost:g}, since the next reply might have cost more than is left"
        console.print(f"{finding}; raise it and run the same command again to continue", style="yellow")
    if over_budget or tally.failure_rate > max_failure_rate:
        raise typer.Exit(EXIT_FAILURES)


def _check_options(pairs: str, out: Path, references: str | None, *, compares: bool, both_orders: bool) -> None:
    """Refuse, before anything is paid for, options that would fail at the end."""
    if compares and not both_orders:
        raise ConfigError("--drop-disagreeing compares two orders; add --both-orders")
    if pairs == "-" or out.suffix != ".jsonl":
        raise ConfigError("PAIRS must be a file, since it is read more than once, and OUT must end in .jsonl")
    if not out.resolve().parent.is_dir():
        raise ConfigError(f"-o {out}: no such folder; create {out.parent} first")


def _budget(engine: str, prices: Prices | None, spent: float, max_cost: float) -> float:
    """The USD that this session may spend."""
    if engine != "openai" or prices is None:
        raise ConfigError("--max-cost needs the openai engine, --price-in and --price-out")
    if spent >= max_cost:
        raise ConfigError(f"--max-cost {max_cost:g}: {spent:.4f} USD are spent already; raise it to continue")
    return max_cost - spent


def _ask(job: BatchJob, mode: TeacherMode, judge: Judge, total: int, *, quiet: bool) -> tuple[RunStats, bool]:
    """Run, and tell whether the budget is used up; finished replies are on disk at any time."""
    over_budget = False

    def follow(tally: RunStats, judgment: Judgment) -> None:
        nonlocal over_budget
        failure = judgment.failure
        over_budget |= failure is not None and failure.code == "engine" and "max_cost_usd" in failure.text
        update(tally, judgment)

    with watch(total, quiet=quiet) as update:
        hooks = BatchHooks(on_judgment=follow, stop=lambda: over_budget)
        try:
            return run_batch(job, mode, judge.engine, load_s=judge.load_s, hooks=hooks), over_budget
        except KeyboardInterrupt:
            console.print("\ninterrupted; run the same command again to continue", style="yellow")
            raise typer.Exit(EXIT_INTERRUPTED) from None


def _show_estimate(
    expected: CostEstimate, measure: str, prices: Prices | None, spent: float, max_cost: float | None
) -> None:
    """Print the number of prompts and their cost."""
    lines = [f"to ask: {expected.requests:,} prompts, about {expected.prompt_tokens:,} tokens by {measure}"]
    lines += [f"replies: assumed to have {expected.expected_reply} tokens each, {expected.max_reply} at most"]
    if prices is not None:
        likely, worst = expected.usd(prices)
        lines += [f"cost: about {likely:,.4f} USD, {worst:,.4f} USD if every reply is as long as it may be"]
        lines += [f"spent in earlier sessions: {spent:,.4f} USD"] if spent else []
        if max_cost is not None and spent + likely > max_cost:
            lines += [
                f"--max-cost {max_cost:g} will probably not suffice; the run will stop there and can continue later"
            ]
    console.print("\n".join(lines), soft_wrap=True)


def _show_result(tally: RunStats, counts: Counter[str], stats: dict[str, Any]) -> None:
    """Print the counts of replies and rows on standard output."""
    echo(f"{tally.judged:>8}  replies in this session, {sum(tally.failures.values())} of them failed")
    echo(f"{tally.rejected:>8}  input lines that cannot be used")
    for outcome, count in sorted(counts.items(), key=lambda item: (item[0] != "rows", item[0])):
        echo(f"{count:>8}  {outcome}")
    if "completion_tokens" in stats:
        cost = (
            f", {stats['cost_usd']:,.4f} USD (at most {stats['cost_usd_at_most']:,.4f})" if "cost_usd" in stats else ""
        )
        echo(f"billed in this session: {stats['prompt_tokens']:,} + {stats['completion_tokens']:,} tokens{cost}")
