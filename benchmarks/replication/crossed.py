"""Intervals where the same pairs are judged by several judges of one kind, each trained with a seed of its own.

Two things were drawn: the questions, and the seeds. A bootstrap that draws only questions says what these very judges
would do on other questions; drawing seeds too says what judges trained again would do. The two are crossed, since every
judge saw every question. Numbers of two kinds of judges are compared on the same draws, so what they share cancels.
"""

from collections.abc import Callable, Hashable, Sequence

import numpy as np
from numpy.typing import NDArray

from judgelm.metrics.resampling import Estimate, Resampling, interval

Statistic = Callable[[NDArray[np.float64]], NDArray[np.float64]]
"""Takes column sums, shape (m, k), and returns numbers, shape (m, s)."""


def crossed_sums(
    values: NDArray[np.float64], clusters: Sequence[Hashable], resampling: Resampling
) -> NDArray[np.float64]:
    """Column sums over bootstrap samples of questions and of seeds, drawn independently and crossed.

    The draws depend on `resampling`, the number of seeds and the clusters alone: where these are equal so are the
    draws, which is what pairs two kinds of judges. Kinds with fewer seeds than others draw their own.

    Args:
        values: shape (seeds, pairs, k); pair i is the same for every seed.
        clusters: one key a pair; pairs of one key (one question) are drawn together.
        resampling: seed and number of resamples.

    Returns:
        shape (resamples, k).

    Raises:
        ValueError: no seed, no pair, or another number of keys.

    Source: Owen, The pigeonhole bootstrap, Annals of Applied Statistics 1, 2007 (rows and columns drawn apart).
    """
    seeds, pairs, _ = values.shape
    if not seeds or not pairs or len(clusters) != pairs:
        raise ValueError(f"crossed bootstrap: {seeds} seeds, {pairs} pairs, {len(clusters)} cluster keys")
    index_of = {key: i for i, key in enumerate(dict.fromkeys(clusters))}
    sums = np.zeros((len(index_of), seeds, values.shape[2]))
    np.add.at(sums, [index_of[key] for key in clusters], values.transpose(1, 0, 2))
    questions = np.random.default_rng([resampling.seed, 0]).multinomial(
        len(index_of), np.full(len(index_of), 1 / len(index_of)), size=resampling.resamples
    )
    drawn = np.random.default_rng([resampling.seed, seeds]).multinomial(
        seeds, np.full(seeds, 1 / seeds), size=resampling.resamples
    )
    per_seed = np.einsum("rq,qsk->rsk", questions.astype(np.float64), sums, optimize=True)
    return np.asarray(np.einsum("rs,rsk->rk", drawn.astype(np.float64), per_seed), dtype=np.float64)


def crossed_estimate(
    values: NDArray[np.float64], statistic: Statistic, clusters: Sequence[Hashable], resampling: Resampling
) -> list[Estimate]:
    """Numbers of one kind of judges, pooled over seeds, with intervals; `n` is the pairs.

    Args:
        values: as in `crossed_sums`.
        statistic: the numbers, of column sums.
        clusters: as in `crossed_sums`.
        resampling: seed and number of resamples.
    """
    observed = statistic(values.sum(axis=(0, 1))[np.newaxis])[0]
    samples = statistic(crossed_sums(values, clusters, resampling))
    return _estimates(observed, samples, values.shape[1])


def crossed_difference(
    first: NDArray[np.float64],
    second: NDArray[np.float64],
    statistic: Statistic,
    clusters: Sequence[Hashable],
    resampling: Resampling,
) -> list[Estimate]:
    """Differences, `first` minus `second`, on the same questions and the same seeds.

    Args:
        first: shape (seeds, pairs, k).
        second: shape (seeds of its own, pairs, k).
        statistic: the numbers, of column sums.
        clusters: as in `crossed_sums`.
        resampling: seed and number of resamples.
    """
    observed = [statistic(values.sum(axis=(0, 1))[np.newaxis])[0] for values in (first, second)]
    samples = [statistic(crossed_sums(values, clusters, resampling)) for values in (first, second)]
    return _estimates(observed[0] - observed[1], samples[0] - samples[1], first.shape[1])


def _estimates(observed: NDArray[np.float64], samples: NDArray[np.float64], n: int) -> list[Estimate]:
    bounds = [interval(column) for column in samples.T]
    return [
        Estimate(value=float(value), low=low, high=high, n=n)
        for value, (low, high) in zip(observed, bounds, strict=True)
    ]
