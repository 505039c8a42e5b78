"""The table at the end of a batch run."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from judgelm.modes import BatchMode
from judgelm.records import failure_name
from judgelm.runs.stats import RunStats

_SHOWN_STATS = (
    "retries", "not_taken_by_server", "out_of_memory", "workers", "lost_workers", "requests_sent_again",
)  # fmt: skip


def summary_table(stats: RunStats, mode: BatchMode, engine_stats: Mapping[str, Any]) -> Table:
    """The counts of a session; `engine_stats` are the engine's own."""
    table = Table(title="judgments", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("judged", str(stats.judged))
    for name, value in _verdicts(stats):
        table.add_row(f"  {name}", value)
    failures = {failure_name(code): count for code, count in stats.failures.items()}
    table.add_row("  failed", _counts(failures))
    if stats.both_orders:
        share = stats.consistent / stats.both_orders
        table.add_row(
            "same ranking in all orders" if stats.rankings else "same winner in both orders",
            f"{share:.1%} of {stats.both_orders}",
        )
    for name, value in (*_requested(stats, mode), *_noticed(stats)):
        table.add_row(name, value)
    table.add_row("prompt / reply tokens", f"{stats.prompt_tokens:,} / {stats.completion_tokens:,}")
    for name in _SHOWN_STATS:
        if engine_stats.get(name):
            table.add_row(f"engine: {name.replace('_', ' ')}", _stat(engine_stats[name]))
    if engine_stats.get("cost_usd") is not None:
        table.add_row("cost", f"{engine_stats['cost_usd']:,.4f} USD")
    if unknown := engine_stats.get("replies_of_unknown_cost"):
        at_most = f", {engine_stats['cost_usd_at_most']:,.4f} USD at most" if "cost_usd_at_most" in engine_stats else ""
        table.add_row("replies of unknown cost", f"{unknown}{at_most}")
    table.add_row("time to load / judge", f"{stats.load_s:.1f} s / {stats.judge_s:.1f} s")
    if stats.judge_s:
        table.add_row("samples/s", f"{stats.judged / stats.judge_s:,.1f}")
    return table


def _verdicts(stats: RunStats) -> Iterator[tuple[str, str]]:
    """Verdicts by kind; those of pairs where there is no other kind."""
    for label, count in stats.labels.most_common():
        yield label, str(count)
    if stats.rankings:
        yield "ranked", str(stats.rankings)
    if stats.grades:
        yield "graded, mean", f"{stats.grades}, {stats.grade_sum / stats.grades:.2f}"
    if stats.winners or not (stats.labels or stats.rankings or stats.grades):
        yield "first / tie / second better", " / ".join(str(stats.winners[name]) for name in ("1", "tie", "2"))


def _requested(stats: RunStats, mode: BatchMode) -> Iterator[tuple[str, str]]:
    """Retries, reasons and probabilities where they were requested, counts of 0 included."""
    if getattr(mode, "retry_unparseable", False):
        yield "replies parsed only after a constrained retry", str(stats.repaired)
    if getattr(mode, "reasons", "none") != "none":
        incomplete = f" ({stats.reasons_incomplete} incomplete)" if stats.reasons_incomplete else ""
        yield "reasons written / failed", f"{stats.reasons}{incomplete} / {stats.reasons_failed}"
    if getattr(mode, "distribution", False):
        if stats.grade_distributions:
            yield "with the probability of every grade", f"{stats.grade_distributions} prompts"
        else:
            yield f"with {_probability(stats)}", f"{stats.probabilities} of {stats.judged}"
        if stats.mean_unassigned is not None:
            yield "mean probability on no score line", f"{stats.mean_unassigned:.3f} (n = {stats.distributions})"
        if stats.mostly_unassigned:
            yield "without: score lines have less than half of the probability", str(stats.mostly_unassigned)
        if stats.judged and not (stats.distributions or stats.grade_distributions or stats.probabilities):
            yield "without: the engine gave no probabilities", str(stats.judged)
    for wording, count in stats.approximations.most_common():
        yield f"approximation: {wording}", f"{count} of {stats.distributions}"


def _probability(stats: RunStats) -> str:
    """The event whose probability a judgment has: the first of two labels, or the first answer of a pair."""
    return f"P({'correct' if stats.labels else 'first better'})"


def _noticed(stats: RunStats) -> Iterator[tuple[str, str]]:
    """Counts that have a line only above 0."""
    if stats.thinking:
        mean = stats.thinking_characters / stats.thinking
        yield "replies with thinking", f"{stats.thinking} of {stats.shown}, {mean:,.0f} characters on average"
    for name, count in (
        ("failed in earlier sessions (see --retry)", sum(stats.earlier_failures.values())),
        ("rejected input lines", stats.rejected),
        ("judged in an earlier session", stats.skipped),
        ("further votes on a pair (judged once)", stats.repeated),
        ("input cells coerced to text", stats.coerced),
        ("unparseable replies in judgments that have a verdict", stats.parts_failed),
        ("samples with a truncated answer", stats.cut),
        ("samples with sanitized confusables", stats.neutralised),
    ):
        if count:
            yield name, str(count)


def _stat(value: object) -> str:
    """A count, counts by kind, or names."""
    if isinstance(value, Mapping):
        return _counts(value)
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _counts(kinds: Mapping[str, int]) -> str:
    """`3 (unparseable 2, engine 1)`, the most frequent first."""
    named = ", ".join(f"{name} {count}" for name, count in sorted(kinds.items(), key=lambda item: -item[1]))
    return f"{sum(kinds.values())} ({named})" if named else "0"
