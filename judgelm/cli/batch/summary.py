"""What a batch run has done, as the table at its end."""

from collections.abc import Iterator, Mapping
from typing import Any

from rich.table import Table

from judgelm.modes import BatchMode
from judgelm.runs.stats import Tally

_SHOWN_STATS = (
    "retries", "not_taken_by_server", "out_of_memory", "workers", "lost_workers", "requests_sent_again",
)  # fmt: skip


def summary_table(tally: Tally, mode: BatchMode, stats: Mapping[str, Any]) -> Table:
    """What a session has done, for the end of the run; `stats` are the engine's own counts."""
    table = Table(title="judgments", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    table.add_row("judged", str(tally.judged))
    for name, value in _verdicts(tally):
        table.add_row(f"  {name}", value)
    table.add_row("  failed", _counts(tally.failures))
    if tally.both_orders:
        share = tally.consistent / tally.both_orders
        table.add_row(
            "same ranking in all orders" if tally.rankings else "same winner in both orders",
            f"{share:.1%} of {tally.both_orders}",
        )
    for name, value in (*_asked(tally, mode), *_noticed(tally)):
        table.add_row(name, value)
    table.add_row("prompt / reply tokens", f"{tally.prompt_tokens:,} / {tally.completion_tokens:,}")
    for name in _SHOWN_STATS:
        if stats.get(name):
            table.add_row(f"engine: {name.replace('_', ' ')}", _stat(stats[name]))
    if stats.get("cost_usd") is not None:
        table.add_row("cost", f"{stats['cost_usd']:,.4f} USD")
    if unknown := stats.get("replies_of_unknown_cost"):
        at_most = f", {stats['cost_usd_at_most']:,.4f} USD at most" if "cost_usd_at_most" in stats else ""
        table.add_row("replies of unknown cost", f"{unknown}{at_most}")
    table.add_row("time to load / judge", f"{tally.load_s:.1f} s / {tally.judge_s:.1f} s")
    if tally.judge_s:
        table.add_row("samples/s", f"{tally.judged / tally.judge_s:,.1f}")
    return table


def _verdicts(tally: Tally) -> Iterator[tuple[str, str]]:
    """What was concluded; of pairs where there is nothing else to say."""
    for label, count in tally.labels.most_common():
        yield label, str(count)
    if tally.rankings:
        yield "ranked", str(tally.rankings)
    if tally.grades:
        yield "graded, mean", f"{tally.grades}, {tally.grade_sum / tally.grades:.2f}"
    if tally.winners or not (tally.labels or tally.rankings or tally.grades):
        yield "first / tie / second better", " / ".join(str(tally.winners[name]) for name in ("1", "tie", "2"))


def _asked(tally: Tally, mode: BatchMode) -> Iterator[tuple[str, str]]:
    """Repairs, reasons and probabilities where they were asked for, a count of 0 as well."""
    if getattr(mode, "repair", False):
        yield "replies readable only after a retry held to the grammar", str(tally.repaired)
    if getattr(mode, "reasons", "none") != "none":
        incomplete = f" ({tally.reasons_incomplete} incomplete)" if tally.reasons_incomplete else ""
        yield "reasons written / failed", f"{tally.reasons}{incomplete} / {tally.reasons_failed}"
    if getattr(mode, "distribution", False):
        if tally.grade_distributions:
            yield "with the probability of every grade", f"{tally.grade_distributions} prompts"
        else:
            yield f"with {_probability(tally)}", f"{tally.probabilities} of {tally.judged}"
        if tally.mean_unassigned is not None:
            yield "mean probability on no score line", f"{tally.mean_unassigned:.3f} (n = {tally.distributions})"
        if tally.little_mass:
            yield "without: score lines have less than half of the probability", str(tally.little_mass)
        if tally.judged and not (tally.distributions or tally.grade_distributions or tally.probabilities):
            yield "without: the engine gave no probabilities", str(tally.judged)
    for wording, count in tally.approximations.most_common():
        yield f"approximation: {wording}", f"{count} of {tally.distributions}"


def _probability(tally: Tally) -> str:
    """Of what a judgment's probability is: the first word of two, or the first answer of a pair."""
    return f"P({'correct' if tally.labels else 'first better'})"


def _noticed(tally: Tally) -> Iterator[tuple[str, str]]:
    """What is worth a line only where it happened."""
    if tally.thinking:
        mean = tally.thinking_characters / tally.thinking
        yield "replies with thinking", f"{tally.thinking} of {tally.shown}, {mean:,.0f} characters on average"
    for name, count in (
        ("failed in earlier sessions (see --retry)", sum(tally.earlier_failures.values())),
        ("rejected input lines", tally.rejected),
        ("judged in an earlier session", tally.skipped),
        ("input cells that were no text, coerced", tally.coerced),
        ("unreadable replies of judgments that stand without them", tally.parts_failed),
        ("samples with an answer cut to fit", tally.cut),
        ("samples with look-alikes neutralised", tally.neutralised),
    ):
        if count:
            yield name, str(count)


def _stat(value: object) -> str:
    """A count, counts by kind, or names."""
    if isinstance(value, Mapping):
        return _counts(value)
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)


def _counts(kinds: Mapping[str, int]) -> str:
    """`3 (off_grammar 2, engine 1)`, the most frequent first."""
    named = ", ".join(f"{name} {count}" for name, count in sorted(kinds.items(), key=lambda item: -item[1]))
    return f"{sum(kinds.values())} ({named})" if named else "0"
