"""Agreement of binary labels with people's: Pearson's correlation, which is undefined on constants.

Of two binary variables it is the phi coefficient. A judge that calls everything correct, or exact match where no
answer matches, is a constant: its correlation is not 0 but undefined (NaN in the paper), and None here.

Source: QA-Judge, sections 5.1 and 6.3, Tables 2, 4, 7 and 10.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.stats import pearsonr

from judgelm.metrics.resampling import Estimate, Resampling, bootstrap_sums, interval

F1_THRESHOLDS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)
"""From which F1 on an answer counts as correct; 0.5 in the paper's Table 2, all of them in its Table 10."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rated:
    """The same answers as people and somebody else label them.

    Attributes:
        human: shape (n,), whether people call each correct.
        judged: shape (n,), whether the judge does, or a metric.
        questions: n keys; answers to one question are resampled together.
    """

    human: NDArray[np.bool_]
    judged: NDArray[np.bool_]
    questions: Sequence[Hashable]

    def __post_init__(self) -> None:
        if self.human.ndim != 1 or not len(self.human) == len(self.judged) == len(self.questions):
            sizes = f"{len(self.human)}, {len(self.judged)} and {len(self.questions)}"
            raise ValueError(f"rated answers: human, judged and questions have {sizes} entries; they must be alike")


@dataclass(frozen=True, slots=True, kw_only=True)
class MeanCorrelation:
    """The mean over several correlations.

    Attributes:
        mean: None where all of them are undefined.
        defined: how many are in the mean.
        undefined: names of those that are not.
    """

    mean: Estimate | None
    defined: int
    undefined: tuple[str, ...]


def pearson(first: ArrayLike, second: ArrayLike) -> float | None:
    """Pearson's correlation, in [-1, 1]; None where it is undefined: fewer than two values, or a constant side.

    Args:
        first: shape (n,), finite.
        second: shape (n,), finite.

    Raises:
        ValueError: shapes differ.
    """
    x, y = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1:
        raise ValueError(f"correlation: expected two arrays of one shape (n,), got {x.shape} and {y.shape}")
    if x.size < 2 or np.ptp(x) == 0 or np.ptp(y) == 0:
        return None
    return float(pearsonr(x, y).statistic)


def correlation(rated: Rated, resampling: Resampling) -> Estimate | None:
    """Pearson's correlation with its percentile interval; None where it is undefined.

    Resamples in which a side is constant have no correlation and are left out of the interval.
    """
    observed = pearson(rated.human, rated.judged)
    if observed is None:
        return None
    low, high = interval(_defined(_correlations(bootstrap_sums(_sums(rated), rated.questions, resampling))))
    return Estimate(value=observed, low=low, high=high, n=len(rated.human))


def mean_correlation(groups: Mapping[str, Rated], resampling: Resampling) -> MeanCorrelation:
    """The mean of several groups' correlations, each group (an answering model) of equal weight, as in Table 7.

    Undefined ones are left out of the mean, as in the paper's Table 2. Questions are resampled, each with all groups'
    answers to it, since the groups answer the same ones.

    Args:
        groups: by name.
        resampling: seed and number of resamples.
    """
    observed = {name: pearson(rated.human, rated.judged) for name, rated in groups.items()}
    defined = {name: value for name, value in observed.items() if value is not None}
    undefined = tuple(name for name, value in observed.items() if value is None)
    if not defined:
        return MeanCorrelation(mean=None, defined=0, undefined=undefined)
    blocks, questions = [], list[Hashable]()
    for index, name in enumerate(defined):
        block = np.zeros((len(groups[name].human), 6 * len(defined)))
        block[:, 6 * index : 6 * index + 6] = _sums(groups[name])
        blocks.append(block)
        questions += groups[name].questions
    sums = bootstrap_sums(np.concatenate(blocks), questions, resampling)
    means = np.mean([_correlations(part) for part in np.split(sums, len(defined), axis=1)], axis=0)
    low, high = interval(_defined(means))
    value = float(np.mean(list(defined.values())))
    mean = Estimate(value=value, low=low, high=high, n=len(questions))
    return MeanCorrelation(mean=mean, defined=len(defined), undefined=undefined)


def _sums(rated: Rated) -> NDArray[np.float64]:
    """One row per answer whose column sums say all: n, x, y, xy, xx, yy. Shape (n, 6)."""
    x, y = rated.human.astype(np.float64), rated.judged.astype(np.float64)
    return np.stack([np.ones_like(x), x, y, x * y, x * x, y * y], axis=1)


def _correlations(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    """Correlations of many samples from their sums, shape (m, 6); NaN where one is undefined. Shape (m,)."""
    n, x, y, xy, xx, yy = sums.T
    spread = (n * xx - x**2) * (n * yy - y**2)
    out = np.full(len(sums), np.nan)
    np.divide(n * xy - x * y, np.sqrt(spread), out=out, where=spread > 0.5)
    return out


def _defined(samples: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(samples[~np.isnan(samples)], dtype=np.float64)
