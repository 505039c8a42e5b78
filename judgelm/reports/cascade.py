"""Savings and changes by a cascade, as rows for the terminal and the report."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from judgelm.errors import InputError
from judgelm.metrics.resampling import Estimate
from judgelm.reports.wording import bounds, percent, points
from judgelm.runs.stats import CascadeStats
from judgelm.studies.evaluation import CascadeAgreement


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeReport:
    """A cascade as a report shows it; `agreement` is None where the two judges' own runs are not there."""

    models: tuple[str, str]
    band: tuple[float, float]
    counts: CascadeStats
    agreement: CascadeAgreement | None = None

    def rows(self) -> list[tuple[str, str]]:
        """Counts, then agreement."""
        return [*cascade_rows(self.counts), *(agreement_rows(self.agreement) if self.agreement else ())]


def read_counts(recorded: dict[str, Any]) -> CascadeReport:
    """The counts that `judgelm.runs.cascade.join_runs` wrote into a manifest.

    Raises:
        InputError: it is no such entry.
    """
    try:
        (small, large), (low, high) = recorded["models"], recorded["band"]
        counts = CascadeStats(**recorded["counts"])
    except (KeyError, TypeError, ValueError) as error:
        raise InputError(f"the manifest's entry of the cascade cannot be read ({error!r}); run it again") from error
    return CascadeReport(models=(str(small), str(large)), band=(float(low), float(high)), counts=counts)


def cascade_rows(counts: CascadeStats) -> Iterator[tuple[str, str]]:
    """The large judge's savings, and the verdicts that it changed."""
    yield "pairs that the large judge was not shown", _share(counts.pairs_spared, f"of {counts.pairs:,}")
    yield (
        "prompt tokens that it was not shown, in the small judge's tokens",
        _share(counts.tokens_spared, f"of {counts.small_tokens:,}"),
    )
    if counts.operations_saved is None:
        yield "operations saved against the large judge alone", "not known"
    else:
        sizes = f"{_millions(counts.small_parameters)} and {_millions(counts.large_parameters)} parameters"
        yield "operations saved against the large judge alone", f"{percent(counts.operations_saved)} ({sizes})"
    if counts.passed_on_failed:
        yield (
            "passed on since the small judge failed; then judged",
            f"{counts.passed_on_failed:,}; {counts.mended:,}",
        )
    share = counts.changed / counts.compared if counts.compared else None
    yield "verdicts that the large judge changed", _share(share, f"of {counts.compared:,} that both gave")
    if counts.waiting:
        yield "passed on and not yet judged by the large judge", f"{counts.waiting:,}"


def agreement_rows(agreement: CascadeAgreement) -> Iterator[tuple[str, str]]:
    """Agreement with the labels, each with its n and interval."""
    yield "agreement of the small judge alone", _estimate(agreement.small)
    yield "agreement of the cascade", _estimate(agreement.cascade)
    if agreement.gain is not None:
        gain = f"{points(agreement.gain.value)} ({bounds(agreement.gain)}, n = {agreement.gain.n:,})"
        yield "cascade minus small judge, where both gave a verdict", gain
    yield "on what was passed on: the small judge", _estimate(agreement.small_on_passed)
    yield "on what was passed on: the large judge", _estimate(agreement.large_on_passed)


def _share(value: float | None, of: str) -> str:
    return f"none {of}" if value is None else f"{percent(value)} {of}"


def _estimate(estimate: Estimate | None) -> str:
    return "no labels" if estimate is None else f"{percent(estimate.value)} ({bounds(estimate)}, n = {estimate.n:,})"


def _millions(parameters: int | None) -> str:
    return "?" if parameters is None else f"{parameters / 1e6:,.1f} M"
