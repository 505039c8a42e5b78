"""An evaluation as tables in a terminal."""

import math
from collections.abc import Iterable

from rich.table import Table

from judgelm.cli.claim_tables import print_control
from judgelm.cli.console import PlainConsole
from judgelm.cli.evaluation import Scored
from judgelm.metrics.resampling import Estimate
from judgelm.records import failure_name
from judgelm.reports.wording import headline
from judgelm.studies.evaluation import Evaluation
from judgelm.studies.pair_labels import RULE_NAMES
from judgelm.studies.pair_metrics import ProbabilityScores

_ROWS = ("accuracy", "precision", "recall", "f1", "majority", "gain")
_NAMES = {"majority": "always the most frequent label", "gain": "gain over that"}
_POSITION = ("consistency", "toward_first", "toward_second", "delta")
_SHOWN_GROUPS = 12


def print_evaluation(scored: Scored) -> None:
    """Print the evaluation as tables on standard output."""
    out = PlainConsole()
    evaluation = scored.evaluation
    for sentence in headline(evaluation):
        out.print(sentence, highlight=False)
    out.print(_metrics_table(evaluation))
    if evaluation.probabilities is not None:
        out.print(_probability_table(evaluation.probabilities))
    if scored.control is not None:
        print_control(out, scored.control)
    if scored.cascade is not None:
        out.print(cascade_table(scored.cascade.rows()))
    for name, rows in evaluation.groups.items():
        table = Table(title=f"by {name}", title_justify="left")
        for column in (name, "n", "failed", evaluation.agreement_name, "95 % interval", "most frequent label"):
            table.add_column(column, justify="left" if column == name else "right")
        for row in rows[:_SHOWN_GROUPS]:
            accuracy = _cells(row.accuracy)
            share = "-" if row.majority_share is None else f"{100 * row.majority_share:.1f} %"
            table.add_row(row.value, str(row.n), str(row.failed), *accuracy, share)
        out.print(table)
        if len(rows) > _SHOWN_GROUPS:
            out.print(f"{len(rows) - _SHOWN_GROUPS} more in --json and in the report", highlight=False)
    out.print(evaluation.protocol, highlight=False)
    _print_counts(out, scored)


def cascade_table(rows: Iterable[tuple[str, str]]) -> Table:
    """A cascade's savings and changes."""
    table = Table(title="cascade", title_justify="left", show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for row in rows:
        table.add_row(*row)
    return table


def _print_counts(out: PlainConsole, scored: Scored) -> None:
    """Print the check of training questions, and what was left out, by reason."""
    if scored.seen is not None:
        out.print(str(scored.seen), highlight=False)
    counts, half_failed = scored.evaluation.counts, len(scored.evaluation.half_failed)
    if scored.evaluation.mean_thinking_characters is not None:
        mean = scored.evaluation.mean_thinking_characters
        sentence = f"{counts.thinking} of {counts.joined} judgments with thinking, {mean:,.0f} characters a prompt"
        out.print(sentence, highlight=False)
    codes = (
        ", ".join(f"{failure_name(code)} {count}" for code, count in scored.evaluation.failure_codes.items()) or "none"
    )
    out.print(f"failures: {codes}", highlight=False)
    for count, meaning in (
        (counts.labels_without_judgment, "labels without a judgment"),
        (counts.judgments_without_label, "judgments without a label"),
        (scored.labelled.unlabelled, "rows of the labels file without a label"),
        (scored.labelled.rejected, "unusable rows of the labels file"),
        (half_failed, "judgments with one failed order (they count for agreement, not for consistency)"),
        (counts.repaired, "judgments parsed only after a constrained retry (they count as judged)"),
        (counts.read_anywhere, "judgments parsed only with --parser anywhere (they count as judged)"),
    ):
        if count:
            out.print(f"{meaning}: {count:,}", highlight=False)


def _metrics_table(evaluation: Evaluation) -> Table:
    table = Table(title="against the labels, in percent, with 95 % intervals", title_justify="left")
    table.add_column("metric")
    table.add_column("failures excluded", justify="right")
    table.add_column("failures as ties", justify="right")
    treatments = (evaluation.excluded, evaluation.as_tie)
    names = _NAMES | {"accuracy": evaluation.agreement_name}
    table.add_row("n", *(str(treatment.n) if treatment else "0" for treatment in treatments))
    for name in _ROWS:
        estimates = [getattr(treatment, name, None) for treatment in treatments]
        table.add_row(names.get(name, name), *(_cell(estimate) for estimate in estimates))
    for rule, other in evaluation.other_rules.items():
        agreements = (other.excluded, other.as_tie)
        shown = [_cell(treatment) + ("" if treatment is None else f", n = {treatment.n}") for treatment in agreements]
        table.add_row(f"agreement, {RULE_NAMES[rule]}", *shown)
    if evaluation.as_tie.position is not None:
        for name in _POSITION:
            estimates = [getattr(treatment.position, name, None) if treatment else None for treatment in treatments]
            table.add_row(name.replace("_", " "), *(_cell(estimate) for estimate in estimates))
    return table


def _probability_table(scores: ProbabilityScores) -> Table:
    table = Table(title="P(first better) against the labels, with 95 % intervals", title_justify="left")
    for column in ("score, lower is better", f"n = {scores.n}", "always 0.5"):
        table.add_column(column, justify="left" if column.startswith("score") else "right")
    for name, estimate, baseline in (("Brier score", scores.brier, 0.25), ("log loss", scores.log_loss, math.log(2))):
        shown = "-" if estimate is None else f"{estimate.value:.4f} ({estimate.low:.3f} to {estimate.high:.3f})"
        table.add_row(name, shown, f"{baseline:.4f}")
    table.caption = f"excluded: {scores.tied_labels} labels that are ties, {scores.without} pairs without a probability"
    return table


def _cell(estimate: Estimate | None) -> str:
    return "-" if estimate is None else "{} ({})".format(*_cells(estimate))


def _cells(estimate: Estimate | None) -> tuple[str, str]:
    """An estimate and its interval, both in percent; where every resample repeats one value there is no interval."""
    if estimate is None:
        return "-", "-"
    if estimate.low == estimate.high:
        return f"{100 * estimate.value:.2f}", "no interval"
    return f"{100 * estimate.value:.2f}", f"{100 * estimate.low:.1f} to {100 * estimate.high:.1f}"
