"""`judgelm data annotate`."""

from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from judgelm.cli import options
from judgelm.cli.console import EXIT_FAILURES, Quiet, console, echo, errors
from judgelm.cli.help import essential
from judgelm.cli.options import ColumnOptions, Config, EngineName, JudgeOptions, RunOptions
from judgelm.cli.run import check_paths, clear_and_mark, judge_watched
from judgelm.engines.catalog import choose_engine
from judgelm.errors import ConfigError
from judgelm.judge import Judge
from judgelm.modes.generation import TeacherMode
from judgelm.prompts.judge_card import find_card
from judgelm.records import Judgment
from judgelm.runs import teacher
from judgelm.runs.batch import BatchHooks, pending_samples, run_dtype
from judgelm.runs.stats import RunStats

_TOKEN_CHARACTERS = 4
Price = Annotated[float | None, typer.Option(min=0.0, help="Price in USD per million tokens.")]


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherOptions(JudgeOptions):
    """Options for the teacher and its engine."""

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
    estimate_only: Annotated[bool, typer.Option("--estimate")] = False,
    *,
    run_options: RunOptions,
    columns: ColumnOptions,
    judge_options: TeacherOptions,
    quiet: Quiet = False,
    config: Config = None,
) -> None:
    """Judge pairs with a teacher model, and write its judgments as training rows.

    PAIRS is a file with two answers per row in any format, such as the output of `judgelm data answers pairs`. The
    default prompts (--template judgelm-paper) are from JudgeLM's Figures 3 and 4; the template judgelm-chat adds chat
    roles. The command prints the estimated cost before the run and the actual cost after it. The teacher's replies are
    saved to OUT.judgments.jsonl. Run the same command again to resume; only replies in progress are requested again.
    OUT contains JudgeLM rows for all successful replies.

    Options:
        pairs: File with two answers per row.
        out: Output file of JudgeLM rows, written at the end.
        model: The teacher: a folder, hub id, or name on a server.
        reference: Judge without a reference, with a reference, or both.
        drop_disagreeing: With --both-orders, drop pairs for which the two orders have different winners.
        reason_tokens: Maximum number of tokens in a reply (scores and reason).
        max_cost: Total budget in USD for all sessions of OUT.
        tokenizer: Tokenizer for the estimate (folder or hub id). Default: assume 4 characters per token.
        estimate_only: Print the cost estimate and exit.

    Examples:
        judgelm data annotate pairs.jsonl -o rows.jsonl --model gpt-4o --estimate
        judgelm data annotate pairs.jsonl -o rows.jsonl --model gpt-4o

    For prices and more options, see configs/data/annotate.yaml. Exit codes: 0 done, 1 usage or input error, 2 too many
    failures (--max-failure-rate) or budget exhausted, 130 interrupted.
    """
    if drop_disagreeing and not both_orders:
        raise ConfigError("--drop-disagreeing requires two orders; add --both-orders")
    if pairs == "-" or out.suffix != ".jsonl":
        raise ConfigError("PAIRS must be a file, not standard input, and OUT must end in .jsonl")
    if judge_options.prompt is not None:
        finding = "--prompt is not supported, because training rows need scores and a reason in JudgeLM's form"
        raise ConfigError(f"{finding}; to label pairs with your prompt, use judgelm-batch {pairs} --prompt")
    engine = choose_engine()[0] if judge_options.engine == "auto" else judge_options.engine
    card = find_card(judge_options.adapter or model) if engine in ("transformers", "vllm") else None
    template = judge_options.template or (card.template if card and card.prompt is None else "judgelm-paper")
    mode = TeacherMode(template=template, reason_tokens=reason_tokens, temperature=temperature, seed=seed)
    prompts = teacher.TeacherPrompts(reference=reference, both_orders=both_orders)
    run = out.with_name(f"{out.stem}.judgments.jsonl")
    job = run_options.job([pairs], str(run), references=references, reading=columns.reading, parts=prompts)
    check_paths(job)
    loading = judge_options.judge_arguments()
    arguments = loading["engine_args"]
    arguments |= {name: usd for name, usd in (("price_in", price_in), ("price_out", price_out)) if usd is not None}
    prices = teacher.prices_of(arguments)
    spent = teacher.spent_usd(run, prices) if prices and not run_options.overwrite else 0.0
    before = RunStats()
    requests = (mode.request(sample) for sample in pending_samples(job, before))
    tokens_of, reply_tokens = teacher.token_counter(tokenizer, _TOKEN_CHARACTERS), teacher.GPT4_REVIEW_TOKENS
    expected = teacher.estimate(requests, tokens_of, expected_reply=reply_tokens, max_reply=reason_tokens)
    _show_estimate(expected, tokenizer or f"{_TOKEN_CHARACTERS} characters per token", prices, spent, max_cost)
    if estimate_only:
        return
    if engine != "openai":  # only the openai engine costs money
        arguments = {name: value for name, value in arguments.items() if not name.startswith("price_")}
    if max_cost is not None:
        arguments["max_cost_usd"] = _budget(engine, prices, spent, max_cost)
    clear_and_mark(job.out)
    over_budget = False

    def see(stats: RunStats, judgment: Judgment) -> None:
        nonlocal over_budget
        failure = judgment.failure
        over_budget |= failure is not None and failure.code == "engine" and "max_cost_usd" in failure.text

    loading |= {"template": template, "dtype": run_dtype(job, judge_options.dtype, engine), "engine_args": arguments}
    with Judge(model, engine=engine, **loading) as judge:
        total = expected.requests + before.skipped
        hooks = BatchHooks(on_judgment=see, stop=lambda: over_budget)
        tally = judge_watched(job, replace(mode, scale=judge.format.scale), judge, total, hooks)
        stats = judge.engine.stats()
    _show_result(tally, teacher.write_rows(job, prompts, out, drop_disagreeing=drop_disagreeing), stats)
    if prices is not None and engine == "openai":
        echo(f"spent in all sessions: at most {teacher.spent_usd(run, prices):,.4f} USD")
    if over_budget:
        finding = f"stopped because the next reply might exceed --max-cost {max_cost:g}"
        errors.print(f"{finding}; to continue, increase it and run the same command again", style="yellow")
    if over_budget or tally.failure_rate > run_options.max_failure_rate:
        raise typer.Exit(EXIT_FAILURES)


def _budget(engine: str, prices: teacher.Prices | None, spent: float, max_cost: float) -> float:
    if engine != "openai" or prices is None:
        raise ConfigError("--max-cost requires the openai engine, --price-in, and --price-out")
    if spent >= max_cost:
        raise ConfigError(f"--max-cost {max_cost:g}: {spent:.4f} USD is already spent; increase the budget to continue")
    return max_cost - spent


def _show_estimate(
    expected: teacher.CostEstimate, measure: str, prices: teacher.Prices | None, spent: float, max_cost: float | None
) -> None:
    lines = [f"prompts: {expected.requests:,}, with about {expected.prompt_tokens:,} tokens ({measure})"]
    lines += [f"replies: {expected.expected_reply} tokens each (estimated), at most {expected.max_reply}"]
    if prices is not None:
        likely, worst = expected.usd(prices)
        lines += [f"cost: about {likely:,.4f} USD, at most {worst:,.4f} USD if all replies reach the maximum length"]
        lines += [f"spent in earlier sessions: {spent:,.4f} USD"] if spent else []
        if max_cost is not None and spent + likely > max_cost:
            lines += [f"this will probably exceed --max-cost {max_cost:g}; the run stops there and can be resumed"]
    console.print("\n".join(lines), soft_wrap=True)


def _show_result(tally: RunStats, counts: Counter[str], stats: dict[str, Any]) -> None:
    echo(f"{tally.judged:>8}  replies in this session, of which {sum(tally.failures.values())} failed")
    echo(f"{tally.rejected:>8}  unusable input lines")
    for outcome, count in sorted(counts.items(), key=lambda item: (item[0] != "rows", item[0])):
        echo(f"{count:>8}  {outcome}")
    if "completion_tokens" in stats:
        billed = f"{stats['prompt_tokens']:,} + {stats['completion_tokens']:,} tokens"
        if "cost_usd" in stats:
            billed += f", {stats['cost_usd']:,.4f} USD (at most {stats['cost_usd_at_most']:,.4f})"
        echo(f"billed in this session: {billed}")
