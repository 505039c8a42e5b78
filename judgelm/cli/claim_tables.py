"""A win rate's estimates, and a control of style, as tables in a terminal."""

from rich.table import Table

from judgelm.cli.console import PlainConsole
from judgelm.metrics.resampling import Estimate
from judgelm.metrics.win_rate import StyleControl
from judgelm.studies.claim import WinRateClaim, claim_sentences
from judgelm.studies.style_control import ControlledAgreement

_COUNTS = {
    "unnamed": "judgments whose pair is not given or names no models (left out)",
    "other_models": "judgments of other models (left out)",
    "failed": "judgments that failed (left out)",
    "labels_of_failed": "labels of failed judgments (left out)",
    "labels_without_judgment": "labels without a judgment",
}


def print_claim(claim: WinRateClaim) -> None:
    """Print the estimates, the judge's errors, the control and the counts on standard output."""
    out = PlainConsole()
    for sentence in (*claim_sentences(claim), *claim.warnings):
        out.print(sentence, highlight=False, markup=False)
    table = Table(title=f"win rate of {claim.name}, in percent", title_justify="left")
    for column in ("estimate", "win rate", "95 % interval", "n"):
        table.add_column(column, justify="left" if column == "estimate" else "right")
    reasons = []
    for name, estimate in claim.rows():
        if isinstance(estimate, str):
            reasons.append(f"{name}: no estimate: {estimate}")
            table.add_row(name, "-", "-", "-")
        else:
            table.add_row(name, f"{100 * estimate.value:.1f}", _bounds(estimate, 100, ".1f"), f"{estimate.n:,}")
    out.print(table)
    for sentence in (*reasons, *_error_sentences(claim), *_control_sentences(claim.control)):
        out.print(sentence, highlight=False, markup=False)
    out.print(f"judged pairs used: {claim.counts.used:,}; with a label: {claim.counts.labels:,}", highlight=False)
    for name, meaning in _COUNTS.items():
        if count := getattr(claim.counts, name):
            out.print(f"{meaning}: {count:,}", highlight=False)


def print_control(out: PlainConsole, control: ControlledAgreement) -> None:
    """Print the agreement of controlled verdicts, and the coefficients of judge and labels."""
    table = Table(title=f"controlled for {control.control}, with 95 % intervals", title_justify="left")
    for column in ("coefficient, positive: more is preferred", "judge", "labels"):
        table.add_column(column, justify="left" if column.startswith("coef") else "right")
    for term in control.terms:
        table.add_row(term.term, _coefficient(term.judge), _coefficient(term.labels))
    out.print(table)
    out.print(control.sentence(), highlight=False, markup=False)
    if control.labels_reason:
        out.print(f"labels: no coefficients: {control.labels_reason}", highlight=False, markup=False)
    if isinstance(control.controlled, Estimate) and control.difference is not None:
        out.print(
            f"agreement before {_share(control.plain)}, after {_share(control.controlled)}, difference "
            f"{100 * control.difference.value:+.1f} points ({_bounds(control.difference, 100, '+.1f')})",
            highlight=False,
        )


def _error_sentences(claim: WinRateClaim) -> list[str]:
    lines = [
        f"the judge on the outcome {error.outcome}: sensitivity {_share(error.sensitivity)}, "
        f"specificity {_share(error.specificity)}"
        for error in claim.estimates.errors
    ]
    if claim.estimates.weight is not None:
        lines.append(f"weight of the judge in PPI++: {claim.estimates.weight:.2f} (0 ignores it)")
    return lines


def _control_sentences(control: StyleControl | str | None) -> list[str]:
    if isinstance(control, str):
        return [f"not controlled: {control}"]
    terms = {} if control is None else control.terms
    return [f"coefficient of {term}: {_coefficient(estimate)}" for term, estimate in terms.items()]


def _share(estimate: Estimate | None) -> str:
    return "unknown" if estimate is None else f"{100 * estimate.value:.1f} % ({_bounds(estimate, 100, '.1f')})"


def _coefficient(estimate: Estimate | None) -> str:
    return "-" if estimate is None else f"{estimate.value:+.2f} ({_bounds(estimate, 1, '+.2f')})"


def _bounds(estimate: Estimate, times: float, form: str) -> str:
    return f"{times * estimate.low:{form}} to {times * estimate.high:{form}}"
