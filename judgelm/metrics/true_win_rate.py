"""Estimate a model's true win rate from many judged pairs and few labels.

Intervals use the delta method, with questions as clusters. `ppi-python` uses neither clusters nor Student quantiles, so
its intervals are too narrow for 20 labels.

Source: Rogan and Gladen (1978), Estimating prevalence from the results of a screening test; Angelopoulos, Duchi and
Zrnic (2023), PPI++, section 6 (power tuning).
"""

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from itertools import compress

import numpy as np
from scipy.stats import t, ttest_ind
from statsmodels.regression.linear_model import OLS

from judgelm.metrics.resampling import LEVEL, Estimate, Flags, Floats, normal_estimate, widened

MIN_STRATUM_LABELS = 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Stratum:
    """Scores of the completions in one stratum.

    Attributes:
        labels: human scores of the labelled completions, shape (n,).
        rated: the judge's scores of the same completions, shape (n,).
        rated_only: the judge's scores of unlabelled completions, shape (m,); can be empty.
    """

    name: str
    labels: Floats
    rated: Floats
    rated_only: Floats

    @property
    def size(self) -> int:
        """Number of completions, labelled or not."""
        return len(self.labels) + len(self.rated_only)


class TooFewLabels(ValueError):  # noqa: N818 - a finding that callers report, not an error
    """A stratum has too few labels to estimate a variance."""


def stratified_mean(strata: list[Stratum], level: float, *, powered: bool = True) -> Estimate:
    """Estimate the mean human score of all completions; n is the number of labels.

    Labels must be drawn randomly within each stratum. If `powered` is False, only the labels are used.

    Raises:
        TooFewLabels: a stratum has fewer than two labels.

    Source: Fisch et al., Stratified Prediction-Powered Inference (2024), equation 6, with Angelopoulos et al., PPI++
    (2023) within strata; Play Favorites, section 7.
    """
    total = sum(stratum.size for stratum in strata)
    estimates = [_within(stratum, powered) for stratum in strata]
    shares = np.array([stratum.size / total for stratum in strata])
    value = float(shares @ np.array([mean for mean, _ in estimates]))
    error = float(np.sqrt(shares**2 @ np.array([error**2 for _, error in estimates])))
    return normal_estimate(value, error, sum(len(stratum.labels) for stratum in strata), level)


def _within(stratum: Stratum, powered: bool) -> tuple[float, float]:
    if len(stratum.labels) < MIN_STRATUM_LABELS:
        raise TooFewLabels(
            f"stratum {stratum.name}: expected at least {MIN_STRATUM_LABELS} labels, got {len(stratum.labels)}"
        )
    useful = powered and len(stratum.rated_only) > 0 and np.ptp(np.r_[stratum.rated, stratum.rated_only]) > 0
    if not useful:
        n = len(stratum.labels)
        return float(stratum.labels.mean()), float(stratum.labels.std() / np.sqrt(n))
    weight = _power_tuned_weight(stratum.labels, stratum.rated, stratum.rated_only)
    rectified, imputed = stratum.labels - weight * stratum.rated, weight * stratum.rated_only
    error = np.sqrt(rectified.var() / len(rectified) + imputed.var() / len(imputed))
    return float(rectified.mean() + imputed.mean()), float(error)


def _power_tuned_weight(labels: Floats, rated: Floats, rated_only: Floats) -> float:
    # minimises the variance (PPI++, section 6), as in `ppi-python` 0.2.3
    n, m = len(labels), len(rated_only)
    spread = np.var(np.concatenate([rated, rated_only]), ddof=1)
    covariance = np.cov(labels, rated, ddof=0)[0, 1]
    return float(np.clip(covariance / ((1 + n / m) * spread), 0, 1))


MIN_LABELS = 10
_STEP = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedPairs:
    """Judged pairs, some of them labelled, from the perspective of one model; arrays have shape (n,).

    Attributes:
        verdicts: the judge's verdicts: 1 (win), 0.5 (tie), or 0 (loss).
        proxy: the judge's verdicts or P(win), which predict the labels.
        labels: human labels; NaN if missing.
        clusters: n cluster keys, such as questions.
    """

    verdicts: Floats
    proxy: Floats
    labels: Floats
    clusters: Sequence[Hashable]

    def __post_init__(self) -> None:
        sizes = {len(self.verdicts), len(self.proxy), len(self.labels), len(self.clusters)}
        if len(sizes) > 1 or 0 in sizes:
            raise ValueError(f"judged pairs: expected non-empty columns of equal length, got lengths {sorted(sizes)}")

    @property
    def labelled(self) -> Flags:
        """True for pairs with a label."""
        return ~np.isnan(self.labels)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeError:
    """The judge's sensitivity and specificity for `win` or `loss` on the labelled pairs."""

    outcome: str
    sensitivity: Estimate | None
    specificity: Estimate | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrueWinRate:
    """Estimates of a win rate with 95 % intervals, or the reason why an estimate is not possible.

    Attributes:
        judge: mean of `proxy`, which may be biased.
        labels: win rate from the labels alone.
        weight: weight of the judge's values in PPI++.
        drift: p-value for a difference in the judge's values between labelled and unlabelled pairs.
    """

    verdicts: Estimate | str
    judge: Estimate | str
    labels: Estimate | str
    rogan_gladen: Estimate | str
    ppi: Estimate | str
    errors: tuple[JudgeError, ...] = ()
    weight: float | None = None
    drift: float | None = None


def true_win_rate(pairs: JudgedPairs) -> TrueWinRate:
    """Estimate the model's true win rate; a tie counts as half a win.

    The labels must be a random sample of the judged pairs.
    """
    known = pairs.labelled
    n = int(known.sum())
    verdicts, judge = (_estimate(values, pairs.clusters) for values in (pairs.verdicts, pairs.proxy))
    if n < MIN_LABELS:
        reason = f"{n} labels are too few (minimum: {MIN_LABELS})"
        return TrueWinRate(verdicts=verdicts, judge=judge, labels=reason, rogan_gladen=reason, ppi=reason)
    own = list(compress(pairs.clusters, known))
    ppi, weight = _ppi(pairs)
    return TrueWinRate(
        verdicts=verdicts,
        judge=judge,
        labels=_estimate(pairs.labels[known], own),
        rogan_gladen=_rogan_gladen(pairs),
        ppi=ppi,
        errors=tuple(_judge_error(pairs, own, *outcome) for outcome in (("win", 1.0), ("loss", 0.0))),
        weight=weight,
        drift=_drift(pairs.proxy[known], pairs.proxy[~known]),
    )


def labels_needed(pairs: JudgedPairs, width: float) -> int | None:
    """Estimate how many labels reduce the PPI++ interval to `width`; None if labelling all pairs is not enough."""
    known = pairs.labelled
    if known.sum() < MIN_LABELS or width <= 0:
        raise ValueError(f"labels needed: expected at least {MIN_LABELS} labels and a width above 0")
    spread = np.cov(pairs.labels[known], pairs.proxy[known])
    effect = _design_effect(pairs)
    counts = np.arange(MIN_LABELS, len(known) + 1)
    rest = len(known) - counts
    variance = float(np.var(pairs.proxy, ddof=1))
    weights = np.clip(spread[0, 1] * rest / ((counts + rest) * variance), 0, 1) if variance > 0 else 0 * counts
    own = (spread[0, 0] - 2 * weights * spread[0, 1] + weights**2 * spread[1, 1]) / counts
    others = np.where(rest > 0, weights**2 * variance / np.maximum(rest, 1), 0)
    reach = t.ppf((1 + LEVEL) / 2, counts - 2) * np.sqrt(effect * np.maximum(own + others, 0))
    enough = np.flatnonzero(2 * reach <= width)
    return int(counts[enough[0]]) if len(enough) else None


def _estimate(values: Floats, clusters: Sequence[Hashable]) -> Estimate | str:
    value = float(values.mean())
    if value in (0.0, 1.0):
        return widened(Estimate(value=value, low=value, high=value, n=len(values)), clusters)
    return _interval(value, values - value, clusters, np.ones(len(values), dtype=np.bool_), lost=1)


def _ppi(pairs: JudgedPairs) -> tuple[Estimate | str, float | None]:
    known = pairs.labelled
    labels, on_labelled, others = pairs.labels[known], pairs.proxy[known], pairs.proxy[~known]
    if not len(others) or np.ptp(pairs.proxy) == 0:
        return ("every pair has a label" if not len(others) else "the judge gives every pair the same value"), None
    n, m = len(labels), len(others)
    weight = _power_tuned_weight(labels, on_labelled, others)
    rectified = labels - weight * on_labelled
    value = float(rectified.mean() + weight * others.mean())
    linear = np.zeros(n + m)
    linear[known] = (rectified - rectified.mean()) * (n + m) / n
    linear[~known] = weight * (others - others.mean()) * (n + m) / m
    return _interval(value, linear, pairs.clusters, known, lost=2), weight


def _rogan_gladen(pairs: JudgedPairs) -> Estimate | str:
    known = pairs.labelled
    columns = [np.ones(len(known)), known.astype(np.float64)]
    for outcome in (1.0, 0.0):
        truth, judged = known & (pairs.labels == outcome), pairs.verdicts == outcome
        columns += [judged, truth, truth & judged, known & ~truth & judged]
    table = np.column_stack(columns).astype(np.float64)
    means = table.mean(axis=0)
    for name, (true, hit, alarm) in (("win", means[3:6]), ("loss", means[7:10])):
        if true in (0.0, means[1]):
            rest = "no labelled pair has" if true == 0 else "all labelled pairs have"
            return f"{rest} the outcome {name}, so the judge's error rates for it are unknown"
        if hit / true - alarm / (means[1] - true) <= 0:
            return f"for the outcome {name}, the judge is no better than chance (sensitivity + specificity <= 1)"
    value = _corrected(means)
    return _interval(value, (table - means) @ _gradient(_corrected, means), pairs.clusters, known, lost=2)


def _corrected(means: Floats) -> float:
    def prevalence(judged: float, true: float, hit: float, alarm: float) -> float:
        sensitivity, false_alarms = hit / true, alarm / (means[1] - true)
        return float((judged - false_alarms) / (sensitivity - false_alarms))

    return (prevalence(*means[2:6]) + 1 - prevalence(*means[6:10])) / 2


def _gradient(function: Callable[[Floats], float], at: Floats) -> Floats:
    steps = _STEP * np.eye(len(at))
    return np.array([(function(at + step) - function(at - step)) / (2 * _STEP) for step in steps])


def _judge_error(pairs: JudgedPairs, clusters: Sequence[Hashable], name: str, outcome: float) -> JudgeError:
    known = pairs.labelled
    truth, judged = pairs.labels[known] == outcome, pairs.verdicts[known] == outcome
    shares = []
    for mask, hits in ((truth, judged), (~truth, ~judged)):
        keys = list(compress(clusters, mask))
        share = _estimate(hits[mask].astype(np.float64), keys) if mask.sum() > 1 else None
        shares.append(share if isinstance(share, Estimate) else None)
    return JudgeError(outcome=name, sensitivity=shares[0], specificity=shares[1])


def _interval(
    value: float, linear: Floats, clusters: Sequence[Hashable], counted: Flags, *, lost: int
) -> Estimate | str:
    """Estimate the interval; the degrees of freedom are the number of clusters among `counted` pairs minus `lost`."""
    if not linear.any():
        return "all values are equal, so their variance is unknown"
    groups = np.unique([str(cluster) for cluster in clusters], return_inverse=True)[1]
    if groups.max() == 0:
        return "all pairs have the same question, so the variance between questions is unknown"
    fit = OLS(linear, np.ones(len(linear))).fit(cov_type="cluster", cov_kwds={"groups": groups})
    units = len(np.unique(groups[counted]))
    reach = float(t.ppf((1 + LEVEL) / 2, max(units - lost, 1)) * fit.bse[0])
    shown, low, high = np.clip([value, value - reach, value + reach], 0, 1)
    return Estimate(value=float(shown), low=float(low), high=float(high), n=int(counted.sum()))


def _design_effect(pairs: JudgedPairs) -> float:
    clustered = _estimate(pairs.proxy, pairs.clusters)
    single = _estimate(pairs.proxy, range(len(pairs.proxy)))
    if isinstance(clustered, str) or isinstance(single, str):
        return 1.0
    return max(((clustered.high - clustered.low) / (single.high - single.low)) ** 2, 1.0)


def _drift(labelled: Floats, others: Floats) -> float | None:
    if min(len(labelled), len(others)) < 2:
        return None
    if np.ptp(labelled) + np.ptp(others) == 0:
        return float(labelled[0] == others[0])
    return float(ttest_ind(labelled, others, equal_var=False).pvalue)
