"""Bradley-Terry strengths of many models from soft verdicts on pairs, with an effect of the first position.

P(model i, shown first, beats j) = expit(strength_i - strength_j + position). A verdict is a probability; a tie, 0.5, is
half a win for each. Fits are scikit-learn's logistic regressions without penalty on sums over equal matches, which is
the same likelihood as over single verdicts, so that a resample of questions costs milliseconds.

Source: Bradley and Terry (1952); Chiang et al. (2024), Chatbot Arena, section 4. The scale is Elo's: 400 points are
    odds of 10 to 1.
"""

import warnings
from collections import defaultdict
from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components
from sklearn.linear_model import LogisticRegression

from judgelm.metrics.fractional_logit import FARTHEST
from judgelm.metrics.resampling import Estimate, Resampling, interval

ELO_PER_LOGIT = 400 / np.log(10)
ELO_MEAN = 1000.0
_MOST_FAILED = 0.05


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """One verdict on answers of two models.

    Attributes:
        first: a model's name, of the answer shown first where `ordered`.
        preference: probability that the answer of `first` is better, 0.5 for a tie.
        question: key of the cluster.
        ordered: whether `first` is known to have been shown first; False where the order is unknown or both were
            averaged.
    """

    first: str
    second: str
    preference: float
    question: Hashable
    ordered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating:
    """One model.

    Attributes:
        elo: on Elo's scale, the mean of all rated models at 1000, with a bootstrap interval over questions.
        rank: 1 is the strongest; `best_rank` and `worst_rank` are the bounds of its 95 % interval.
    """

    model: str
    elo: Estimate
    rank: int
    best_rank: int
    worst_rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratings:
    """All models of a fit.

    Attributes:
        rated: the strongest first.
        unrated: models without a finite strength, by reason.
        position: advantage of the first position in Elo points, or why there is none.
        failed_resamples: resamples without a finite solution, which no interval holds.
    """

    rated: tuple[Rating, ...]
    unrated: dict[str, str]
    position: Estimate | str
    failed_resamples: int


def bradley_terry(matches: Sequence[Match], resampling: Resampling) -> Ratings:
    """Rate models; those that never lost or never won against the others have no finite strength and are left out.

    Raises:
        ValueError: fewer than two models are left, or too many resamples have no solution.
    """
    models, unrated = comparable_models([(match.first, match.second, match.preference) for match in matches])
    if len(models) < 2:
        raise ValueError("no two models have beaten each other, directly or through others; judge more pairs")
    comparable = [match for match in matches if match.first in models and match.second in models]
    kinds, sums = _sums(comparable)
    design, position = _design(kinds, models)
    point = _fit(design, sums.sum(axis=0))
    if point is None:
        raise ValueError("the Bradley-Terry model has no finite solution; judge more pairs")
    generator = np.random.default_rng(resampling.seed)
    draws = generator.multinomial(len(sums), np.full(len(sums), 1 / len(sums)), size=resampling.resamples)
    fits = [_fit(design, np.tensordot(draw, sums, axes=1)) for draw in draws]
    samples = np.array([fit for fit in fits if fit is not None])
    failed = len(fits) - len(samples)
    if failed > _MOST_FAILED * len(fits):
        raise ValueError(
            f"{failed} of {len(fits)} resamples have no finite solution: some models win or lose almost always; "
            "judge more pairs of like strength"
        )
    n = len(comparable)
    if position is None:
        advantage = ELO_PER_LOGIT * samples[:, -1]
        low, high = interval(advantage)
        first: Estimate | str = Estimate(value=float(ELO_PER_LOGIT * point[-1]), low=low, high=high, n=n)
    else:
        first = position
    counts = _counts(comparable, models)
    elo, drawn = _elo(point[None], len(models))[0], _elo(samples, len(models))
    return Ratings(rated=_ranked(models, elo, drawn, counts), unrated=unrated, position=first, failed_resamples=failed)


def comparable_models(verdicts: Sequence[tuple[str, str, float]]) -> tuple[list[str], dict[str, str]]:
    """The largest set of models in which each has beaten each other through some chain (Ford's condition).

    Args:
        verdicts: (model, other model, preference for the former); at least one.

    Returns:
        The set by name, and the reason of each model that is left out.
    """
    names = sorted({name for first, second, _ in verdicts for name in (first, second)})
    index = {name: column for column, name in enumerate(names)}
    wins = {(index[first], index[second]) for first, second, preference in verdicts if preference > 0}
    wins |= {(index[second], index[first]) for first, second, preference in verdicts if preference < 1}
    edges = np.array(sorted(wins)).T
    graph = coo_array((np.ones(edges.shape[1]), (edges[0], edges[1])), shape=(len(names), len(names)))
    labels = connected_components(graph, directed=True, connection="strong")[1]
    largest = int(np.argmax(np.bincount(labels)))
    models = [name for name in names if labels[index[name]] == largest]
    reason = "it has no win or no loss, even in part, against the rated models, directly or through others"
    return models, {name: reason for name in names if labels[index[name]] != largest}


_Kind = tuple[str, str, bool]


def _sums(matches: Sequence[Match]) -> tuple[list[_Kind], NDArray[np.float64]]:
    """Kinds of match, and their wins and counts by question: shape (questions, kinds, 2)."""
    kinds: dict[_Kind, int] = {}
    questions: dict[Hashable, int] = {}
    entries: dict[tuple[int, int], list[float]] = defaultdict(lambda: [0.0, 0.0])
    for match in matches:
        kind = kinds.setdefault((match.first, match.second, match.ordered), len(kinds))
        entry = entries[questions.setdefault(match.question, len(questions)), kind]
        entry[0] += match.preference
        entry[1] += 1
    sums = np.zeros((len(questions), len(kinds), 2))
    for (question, kind), entry in entries.items():
        sums[question, kind] = entry
    return list(kinds), sums


def _design(kinds: Sequence[_Kind], models: Sequence[str]) -> tuple[NDArray[np.float64], str | None]:
    """One row per kind, one column per model but the first, and the position's where it can be told from them."""
    index = {name: column for column, name in enumerate(models)}
    design = np.zeros((len(kinds), len(models) + 1))
    for row, (first, second, ordered) in zip(design, kinds, strict=True):
        row[index[first]] += 1
        row[index[second]] -= 1
        row[-1] = ordered
    if not design[:, -1].any():
        return design[:, 1:-1], "the order shown is unknown, or both orders were averaged"
    if np.linalg.matrix_rank(design[:, 1:]) < len(models):
        return design[:, 1:-1], "some model is always shown at one position, so that its strength and the position mix"
    return design[:, 1:], None


def _fit(design: NDArray[np.float64], sums: NDArray[np.float64]) -> NDArray[np.float64] | None:
    """Coefficients, or None where there is no finite solution."""
    wins, counts = sums.T
    drawn = counts > 0
    if np.linalg.matrix_rank(design[drawn]) < design.shape[1]:
        return None
    model = LogisticRegression(C=np.inf, fit_intercept=False, solver="newton-cholesky", tol=1e-8, max_iter=100)
    rows = np.concatenate([design[drawn], design[drawn]])
    outcomes = np.repeat([1, 0], drawn.sum())
    weights = np.concatenate([wins[drawn], (counts - wins)[drawn]])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            coefficients = np.asarray(model.fit(rows, outcomes, sample_weight=weights).coef_[0], dtype=np.float64)
        except (Warning, np.linalg.LinAlgError, FloatingPointError):
            return None
    finite = np.isfinite(coefficients).all() and np.abs(design[drawn] @ coefficients).max() < FARTHEST
    return coefficients if finite else None


def _elo(coefficients: NDArray[np.float64], models: int) -> NDArray[np.float64]:
    """Elo points of shape (m, models) from coefficients of shape (m, k); the first model's strength is 0."""
    strengths = np.column_stack([np.zeros(len(coefficients)), coefficients[:, : models - 1]])
    return np.asarray(ELO_MEAN + ELO_PER_LOGIT * (strengths - strengths.mean(axis=1, keepdims=True)))


def _counts(matches: Sequence[Match], models: Sequence[str]) -> dict[str, int]:
    counts = dict.fromkeys(models, 0)
    for match in matches:
        counts[match.first] += 1
        counts[match.second] += 1
    return counts


def _ranked(
    models: Sequence[str], elo: NDArray[np.float64], drawn: NDArray[np.float64], counts: dict[str, int]
) -> tuple[Rating, ...]:
    ranks = 1 + (-drawn).argsort(axis=1).argsort(axis=1)
    order = np.argsort(-elo)
    ratings = []
    for rank, index in enumerate(order, start=1):
        low, high = interval(drawn[:, index])
        best, worst = interval(ranks[:, index].astype(np.float64))
        points = Estimate(value=float(elo[index]), low=low, high=high, n=counts[models[index]])
        ratings.append(
            Rating(
                model=models[index],
                elo=points,
                rank=rank,
                best_rank=int(np.floor(best)),
                worst_rank=int(np.ceil(worst)),
            )
        )
    return tuple(ratings)
