"""Bradley-Terry ratings from soft verdicts on pairs, with a first-position effect.

P(i, shown first, beats j) = expit(strength_i - strength_j + position). A tie (0.5) counts as half a win for each model.

If the likelihood has no finite maximum (a model never lost, or the first answer always won), virtual ties are added as
a prior. Each model ties with a player of strength 0, and two equal players tie to bound the position effect. If a
rating is bounded only by this prior, its interval is unbounded.

Source: Bradley and Terry (1952); Ford (1957) for the condition that makes strengths finite; Chiang et al. (2024),
Chatbot Arena, section 4. For a single proportion, this is Jeffreys' prior (Firth, 1993).
"""

import warnings
from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Literal

import numpy as np
from scipy.optimize import brentq, linprog
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components, shortest_path
from scipy.special import log_expit
from sklearn.linear_model import LogisticRegression

from judgelm.metrics.resampling import LEVEL, Estimate, Flags, Floats, Ints, Resampling, interval

ELO_PER_LOGIT = 400 / np.log(10)
ELO_MEAN = 1000.0
_MAX_SHIFT = 60.0
_TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class Match:
    """A verdict on the answers of two models.

    Attributes:
        preference: P(the first model's answer is better).
        question: cluster key.
        ordered: False if the display order is unknown or both orders were averaged.
    """

    first: str
    second: str
    preference: float
    question: Hashable
    ordered: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Rating:
    """The rating of a model; unbeaten models rank first.

    Attributes:
        elo: Elo rating; an interval bound is infinite if the matches do not determine it.
        best_rank: with `worst_rank`, the 95 % interval of the rank.
        record: `unbeaten` if every preference is 1, `winless` if every preference is 0.
    """

    model: str
    elo: Estimate
    rank: int
    best_rank: int
    worst_rank: int
    record: Literal["unbeaten", "winless", "mixed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Ratings:
    """Ratings of all models, strongest first.

    Attributes:
        unrated: reason for each model that is not connected to the rated models.
        position: first-position advantage in Elo points, or the reason why it is unknown.
        regularised: True if the likelihood has no finite maximum, in which case all fits are regularised.
        separable_resamples: number of regularised resamples.
    """

    rated: tuple[Rating, ...]
    unrated: dict[str, str]
    position: Estimate | str
    regularised: bool
    separable_resamples: int


def bradley_terry(matches: Sequence[Match], resampling: Resampling) -> Ratings:
    """Rate the largest set of models that are connected by matches.

    Raises:
        ValueError: there are no matches.
    """
    if not matches:
        raise ValueError("expected at least one match")
    models, unrated = _connected_models(matches)
    rated = [match for match in matches if match.first in models and match.second in models]
    data, no_position = _data(rated, models)
    point = _fit(data.design, data.sums.sum(axis=0))
    regularised = point is None
    if point is None:
        point = _regularised_fit(data.design, data.sums.sum(axis=0))
    generator = np.random.default_rng(resampling.seed)
    n = len(data.sums)
    draws = generator.multinomial(n, np.full(n, 1 / n), size=resampling.resamples)
    samples, separable = np.empty((len(draws), data.design.shape[1])), 0
    for index, draw in enumerate(draws):
        drawn = np.tensordot(draw, data.sums, axes=1)
        fit = None if regularised else _fit(data.design, drawn)
        separable += fit is None and not regularised
        samples[index] = _regularised_fit(data.design, drawn) if fit is None else fit
    elo, drawn_elo = _elo(point[None], len(models))[0], _elo(samples, len(models))
    bounds = np.array([interval(column) for column in drawn_elo.T])
    wins = _wins_over([(match.first, match.second, match.preference) for match in rated], models)
    if regularised:
        bounds = _open_bounds(elo, bounds, wins, data, point)
    counts = Counter(chain.from_iterable((match.first, match.second) for match in rated))
    return Ratings(
        rated=_ranked(models, elo, drawn_elo, bounds, wins, counts),
        unrated=unrated,
        position=no_position or _advantage(data, point, samples, len(rated)),
        regularised=regularised,
        separable_resamples=separable,
    )


def comparable_models(verdicts: Sequence[tuple[str, str, float]]) -> tuple[list[str], dict[str, str]]:
    """Return the largest set of models that satisfies Ford's condition, and a reason for each excluded model.

    Verdicts are (model, opponent, preference for the model).
    """
    names = sorted({name for first, second, _ in verdicts for name in (first, second)})
    labels = connected_components(coo_array(_wins_over(verdicts, names)), directed=True, connection="strong")[1]
    reason = "it only won or only lost against the rated models, directly or through others"
    return _largest(names, labels, reason)


def _connected_models(matches: Sequence[Match]) -> tuple[list[str], dict[str, str]]:
    names = sorted({name for match in matches for name in (match.first, match.second)})
    met = _wins_over([(match.first, match.second, 0.5) for match in matches], names)
    labels = connected_components(coo_array(met), directed=False)[1]
    return _largest(names, labels, "it has no matches with the rated models, directly or through others")


def _largest(names: list[str], labels: Ints, reason: str) -> tuple[list[str], dict[str, str]]:
    largest = int(np.argmax(np.bincount(labels)))
    models = [name for name, label in zip(names, labels, strict=True) if label == largest]
    return models, {name: reason for name, label in zip(names, labels, strict=True) if label != largest}


def _wins_over(verdicts: Iterable[tuple[str, str, float]], names: Sequence[str]) -> Flags:
    index = {name: column for column, name in enumerate(names)}
    wins = np.zeros((len(names), len(names)), dtype=np.bool_)
    for first, second, preference in verdicts:
        wins[index[first], index[second]] |= preference > 0
        wins[index[second], index[first]] |= preference < 1
    return wins


@dataclass(frozen=True, slots=True, kw_only=True)
class _Data:
    """Shapes: `design` (kinds, models + optional position); `sums` of wins and matches (questions, kinds, 2)."""

    models: Sequence[str]
    design: Floats
    sums: Floats


_Kind = tuple[str, str, bool]


def _data(matches: Sequence[Match], models: Sequence[str]) -> tuple[_Data, str | None]:
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
    design, no_position = _design(list(kinds), models)
    return _Data(models=models, design=design, sums=sums), no_position


def _design(kinds: Sequence[_Kind], models: Sequence[str]) -> tuple[Floats, str | None]:
    index = {name: column for column, name in enumerate(models)}
    design = np.zeros((len(kinds), len(models) + 1))
    shown: dict[frozenset[str], set[int]] = defaultdict(set)
    for row, (first, second, ordered) in zip(design, kinds, strict=True):
        row[index[first]] += 1
        row[index[second]] -= 1
        row[-1] = ordered
        shown[frozenset((first, second))].add(ordered * (1 if first < second else -1))
    if not design[:, -1].any():
        return design[:, :-1], "the order shown is unknown, orders were averaged, or each answer was judged by itself"
    if all(len(orders) == 1 for orders in shown.values()):
        reason = "each pair of models was always shown in the same order, so the position effect is unknown"
        return design[:, :-1], reason
    return design, None


def _fit(design: Floats, sums: Floats) -> Floats | None:
    drawn = sums[:, 1] > 0
    rows = design[drawn, 1:]
    if np.linalg.matrix_rank(rows) < rows.shape[1]:
        return None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try:
            coefficients = _maximum(rows, sums[drawn])
        except (Warning, np.linalg.LinAlgError, FloatingPointError):
            return None
    finite = np.isfinite(coefficients).all() and np.abs(rows @ coefficients).max() < MAX_LOGIT
    return np.concatenate([[0.0], coefficients]) if finite else None


def _regularised_fit(design: Floats, sums: Floats) -> Floats:
    ties = np.broadcast_to([0.5, 1.0], (design.shape[1], 2))
    rows, drawn = np.concatenate([design, np.eye(design.shape[1])]), np.concatenate([sums, ties])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # scikit-learn warns when it switches solvers
        return _maximum(rows[drawn[:, 1] > 0], drawn[drawn[:, 1] > 0])


def _maximum(rows: Floats, sums: Floats) -> Floats:
    wins, counts = sums.T
    model = LogisticRegression(C=np.inf, fit_intercept=False, solver="newton-cholesky", tol=1e-8, max_iter=100)
    outcomes, weights = np.repeat([1, 0], len(rows)), np.concatenate([wins, counts - wins])
    fitted = model.fit(np.concatenate([rows, rows]), outcomes, sample_weight=weights)
    return np.asarray(fitted.coef_[0], dtype=np.float64)


def _elo(coefficients: Floats, models: int) -> Floats:
    strengths = coefficients[:, :models]
    return np.asarray(ELO_MEAN + ELO_PER_LOGIT * (strengths - strengths.mean(axis=1, keepdims=True)))


def _advantage(data: _Data, point: Floats, samples: Floats, n: int) -> Estimate:
    low, high = interval(ELO_PER_LOGIT * samples[:, -1])
    wins, counts = data.sums.sum(axis=0).T
    mixed = (wins > 0) & (wins < counts)
    signs = np.where(wins == counts, 1.0, -1.0)[:, None]
    limits = {
        "A_ub": (-signs * data.design)[~mixed], "b_ub": np.zeros((~mixed).sum()),
        "A_eq": data.design[mixed], "b_eq": np.zeros(mixed.sum()),
    }  # fmt: skip
    cost = np.zeros(data.design.shape[1])
    cost[-1] = 1
    # test whether the position effect is unbounded (Albert and Anderson, 1984)
    falls, rises = (linprog(sign * cost, **limits, bounds=(-1, 1)).fun < -_TOLERANCE for sign in (1, -1))
    return Estimate(
        value=float(ELO_PER_LOGIT * point[-1]), low=-np.inf if falls else low, high=np.inf if rises else high, n=n
    )


def _open_bounds(elo: Floats, bounds: Floats, wins: Flags, data: _Data, point: Floats) -> Floats:
    """Remove interval bounds that the matches do not determine relative to the largest connected group.

    At the remaining bound, the probability of winning (or losing) all matches against other groups is at most 2.5 %.
    """
    reaches = np.isfinite(shortest_path(wins.astype(float), unweighted=True))
    together = reaches & reaches.T
    sizes = together.sum(axis=1)
    largest = sizes == sizes.max()
    core = largest if largest.sum() == sizes.max() > 1 else None
    result = bounds.copy()
    for index in range(len(data.models)):
        others = ~together[index] if core is None else core & ~together[index]
        above, below = bool((reaches[index] & others).any()), bool((reaches[:, index] & others).any())
        alone = bool(others.any()) and not (above or below)  # connected to the group only through other models
        if (above and below) or alone:
            result[index] = (-np.inf, np.inf)
        elif above:
            shift = _improbable_shift(data, data.design @ point, index, ~together[index], won=True)
            result[index] = (min(bounds[index, 0], elo[index] + shift), np.inf)
        elif below:
            shift = _improbable_shift(data, data.design @ point, index, ~together[index], won=False)
            result[index] = (-np.inf, max(bounds[index, 1], elo[index] - shift))
    return result


def _improbable_shift(data: _Data, margins: Floats, index: int, outside: Flags, *, won: bool) -> float:
    wins, counts = data.sums.sum(axis=0).T
    side = np.where(data.design[:, index] > 0, 1, -1)
    opponents = (data.design[:, : len(data.models)] * -side[:, None]) @ outside > 0
    all_alike = (wins == counts) == ((side > 0) == won)
    chosen = (data.design[:, index] != 0) & opponents & all_alike & ((wins == 0) | (wins == counts))
    played = data.sums[:, chosen, 1]
    played = played[played.any(axis=1)]
    if not len(played):
        return 0.0
    shares = played / played.sum(axis=1, keepdims=True)
    towards = margins[chosen] * side[chosen] * (1 if won else -1)

    def excess(shift: float) -> float:
        return float((shares @ log_expit(towards + shift)).sum() - np.log((1 - LEVEL) / 2))

    return float(ELO_PER_LOGIT * brentq(excess, -_MAX_SHIFT - towards.max(), _MAX_SHIFT))


def _ranked(
    models: Sequence[str], elo: Floats, drawn: Floats, bounds: Floats, wins: Flags, counts: Mapping[str, int]
) -> tuple[Rating, ...]:
    beaten, winning = np.asarray(wins.any(axis=0)), np.asarray(wins.any(axis=1))
    ranks = 1 + (-drawn).argsort(axis=1).argsort(axis=1)
    ratings = []
    for rank, index in enumerate(np.lexsort((-elo, ~winning, beaten)), start=1):
        low, high = bounds[index]
        best, worst = interval(ranks[:, index].astype(np.float64))
        ratings.append(
            Rating(
                model=models[index],
                elo=Estimate(value=float(elo[index]), low=float(low), high=float(high), n=counts[models[index]]),
                rank=rank,
                best_rank=min(int(np.floor(best)), rank),
                worst_rank=max(int(np.ceil(worst)), rank),
                record="unbeaten" if not beaten[index] else "mixed" if winning[index] else "winless",
            )
        )
    return tuple(ratings)


MAX_LOGIT = 15.0
"""Above this, a fit counts as divergent (odds of three million to one)."""
