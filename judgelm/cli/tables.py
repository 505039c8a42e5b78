"""Print an evaluation or win-rate estimates as tables in the terminal."""

import math

from rich.table import Table

from judgelm.cli.console import PlainConsole, result_table
from judgelm.cli.evaluation import ScoredRun
from judgelm.metrics.resampling import Estimate
from judgelm.metrics.win_rate import StyleControl
from judgelm.records import failure_name
from judgelm.reports.wording import headline
from judgelm.studies.claim import WinRateClaim, claim_sentences
from judgelm.studies.evaluation import Evaluation, GroupRow
from judgelm.studies.pair_labels import RULE_NAMES
from judgelm.studies.pair_metrics import ProbabilityScores
from judgelm.studies.style_control import ControlledAgreement

_ROWS = ("accuracy", "precision", "recall", "f1", "majority", "gain")
_NAMES = {"majority": "always the most frequent label", "gain": "gain over that"}
_POSITION = ("consistency", "toward_first", "toward_second", "delta")
_SHOWN_GROUPS = 12


def print_evaluation(scored: ScoredRun) -> None:
    """Print an evaluation to standard output."""
    out = PlainConsole()
    evaluation = scored.evaluation
    out.lines(headline(evaluation))
    out.print(_metrics_table(evaluation))
    if evaluation.probabilities is not None:
        out.print(_probability_table(evaluation.probabilities))
    if scored.control is not None:
        print_control(out, scored.control)
    for name, rows in evaluation.groups.items():
        columns = (name, "n", "failed", evaluation.agreement_name, "95 % interval", "most frequent label")
        out.print(result_table(f"by {name}", columns, map(_group_row, rows[:_SHOWN_GROUPS])))
        if len(rows) > _SHOWN_GROUPS:
            out.print(f"{len(rows) - _SHOWN_GROUPS} more; see --json or the report")
    out.print(evaluation.protocol)
    _print_counts(out, scored)


def _group_row(row: GroupRow) -> tuple[str, ...]:
    share = "-" if row.majority_share is None else f"{100 * row.majority_share:.1f} %"
    return (row.value, str(row.n), str(row.failed), *_cells(row.accuracy), share)


def _print_counts(out: PlainConsole, scored: ScoredRun) -> None:
    if scored.seen is not None:
        out.print(str(scored.seen))
    counts, half_failed = scored.evaluation.counts, len(scored.evaluation.half_failed)
    if scored.evaluation.mean_thinking_characters is not None:
        mean = f"{scored.evaluation.mean_thinking_characters:,.0f}"
        out.print(f"{counts.thinking} of {counts.joined} judgments with thinking, {mean} characters per prompt")
    codes = ", ".join(f"{failure_name(code)} {count}" for code, count in scored.evaluation.failure_codes.items())
    out.print(f"failures: {codes or 'none'}")
    for count, meaning in (
        (counts.labels_without_judgment, "labels without a judgment"),
        (counts.judgments_without_label, "judgments without a label"),
        (scored.labelled.unlabelled, "rows without a label in the labels file"),
        (scored.labelled.rejected, "unusable rows in the labels file"),
        (half_failed, "judgments with one failed order (they count for agreement, not for consistency)"),
        (counts.repaired, "judgments parsed only after a constrained retry (they count as judged)"),
        (counts.read_anywhere, "judgments parsed only with --parser anywhere (they count as judged)"),
    ):
        if count:
            out.print(f"{meaning}: {count:,}")


def _metrics_table(evaluation: Evaluation) -> Table:
    treatments = (evaluation.excluded, evaluation.as_tie)
    names = _NAMES | {"accuracy": evaluation.agreement_name}
    rows = [("n", *(str(treatment.n) if treatment else "0" for treatment in treatments))]
    for name in _ROWS:
        estimates = [getattr(treatment, name, None) for treatment in treatments]
        rows.append((names.get(name, name), *map(_cell, estimates)))
        if name == "accuracy":
            decided = [None if treatment is None else treatment.decided for treatment in treatments]
            rows.append(("agreement, pairs with a winner", *map(_cell_with_n, decided)))
    for rule, other in evaluation.other_rules.items():
        agreements = (other.excluded, other.as_tie)
        rows.append((f"agreement, {RULE_NAMES[rule]}", *map(_cell_with_n, agreements)))
    if evaluation.as_tie.position is not None:
        for name in _POSITION:
            estimates = [getattr(treatment.position, name, None) if treatment else None for treatment in treatments]
            rows.append((name.replace("_", " "), *map(_cell, estimates)))
    title = "against the labels, in percent, with 95 % intervals"
    return result_table(title, ("metric", "failures excluded", "failures as ties"), rows)


def _probability_table(scores: ProbabilityScores) -> Table:
    rows = []
    for name, estimate, baseline in (("Brier score", scores.brier, 0.25), ("log loss", scores.log_loss, math.log(2))):
        shown = "-" if estimate is None else f"{estimate.value:.4f} ({estimate.low:.3f} to {estimate.high:.3f})"
        rows.append((name, shown, f"{baseline:.4f}"))
    title = "P(first better) against the labels, with 95 % intervals"
    table = result_table(title, ("score, lower is better", f"n = {scores.n}", "always 0.5"), rows)
    table.caption = f"excluded: {scores.tied_labels} tied labels, {scores.without} pairs without a probability"
    return table


def _cell(estimate: Estimate | None) -> str:
    return "-" if estimate is None else "{} ({})".format(*_cells(estimate))


def _cell_with_n(estimate: Estimate | None) -> str:
    return "-" if estimate is None else f"{_cell(estimate)}, n = {estimate.n}"


def _cells(estimate: Estimate | None) -> tuple[str, str]:
    if estimate is None:
        return "-", "-"
    if estimate.low == estimate.high:
        return f"{100 * estimate.value:.2f}", "no interval"
    return f"{100 * estimate.value:.2f}", f"{100 * estimate.low:.1f} to {100 * estimate.high:.1f}"


_COUNTS = {
    "unnamed": "judgments without a pair or model names (excluded)",
    "other_models": "judgments of other models (excluded)",
    "failed": "failed judgments (excluded)",
    "labels_of_failed": "labels of failed judgments (excluded)",
    "labels_without_judgment": "labels without a judgment",
}


def print_claim(claim: WinRateClaim) -> None:
    """Print a win rate to standard output."""
    out = PlainConsole()
    out.lines([*claim_sentences(claim), *claim.warnings])
    rows, reasons = [], []
    for name, estimate in claim.rows():
        if isinstance(estimate, str):
            reasons.append(f"{name}: no estimate ({estimate})")
            rows.append((name, "-", "-", "-"))
        else:
            rows.append((name, f"{100 * estimate.value:.1f}", _bounds(estimate, 100, ".1f"), f"{estimate.n:,}"))
    columns = ("estimate", "win rate", "95 % interval", "n")
    out.print(result_table(f"win rate of {claim.name}, in percent", columns, rows))
    out.lines([*reasons, *_error_sentences(claim), *_control_sentences(claim.control)])
    out.print(f"judged pairs used: {claim.counts.used:,}, of which {claim.counts.labels:,} have a label")
    for name, meaning in _COUNTS.items():
        if count := getattr(claim.counts, name):
            out.print(f"{meaning}: {count:,}")


def print_control(out: PlainConsole, control: ControlledAgreement) -> None:
    """Print the coefficients, and the agreement before and after the control."""
    columns = ("coefficient (positive: more is preferred)", "judge", "labels")
    terms = ((term.term, _coefficient(term.judge), _coefficient(term.labels)) for term in control.terms)
    out.print(result_table(f"controlled for {control.control}, with 95 % intervals", columns, terms))
    out.print(control.sentence())
    if control.labels_reason:
        out.print(f"no coefficients for the labels: {control.labels_reason}")
    if isinstance(control.controlled, Estimate) and control.difference is not None:
        agreement = f"agreement before {_share(control.plain)}, after {_share(control.controlled)}"
        interval = _bounds(control.difference, 100, "+.1f")
        out.print(f"{agreement}, difference {100 * control.difference.value:+.1f} points ({interval})")


def _error_sentences(claim: WinRateClaim) -> list[str]:
    lines = [
        f"for the outcome {error.outcome}, the judge has sensitivity {_share(error.sensitivity)} and "
        f"specificity {_share(error.specificity)}"
        for error in claim.estimates.errors
    ]
    if claim.estimates.weight is not None:
        lines.append(f"weight of the judge in PPI++: {claim.estimates.weight:.2f} (at 0, the judge is ignored)")
    return lines


def _control_sentences(control: StyleControl | str | None) -> list[str]:
    if isinstance(control, str):
        return [f"the win rate was not controlled: {control}"]
    terms = {} if control is None else control.terms
    return [f"coefficient of {term}: {_coefficient(estimate)}" for term, estimate in terms.items()]


def _share(estimate: Estimate | None) -> str:
    return "unknown" if estimate is None else f"{100 * estimate.value:.1f} % ({_bounds(estimate, 100, '.1f')})"


def _coefficient(estimate: Estimate | None) -> str:
    return "-" if estimate is None else f"{estimate.value:+.2f} ({_bounds(estimate, 1, '+.2f')})"


def _bounds(estimate: Estimate, times: float, form: str) -> str:
    return f"{times * estimate.low:{form}} to {times * estimate.high:{form}}"
