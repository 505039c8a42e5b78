"""Fit a linear head to the states of a frozen model.

For a pair, the head maps the difference between the states of both answers to the log-odds that the first is better, by
logistic regression without an intercept. Prompt, layer, and penalty are chosen by cross-validation over questions. A
model's log-odds of yes versus no can be an additional feature without a penalty: then, an infinite penalty gives the
model's own verdicts.
"""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from judgelm.metrics.resampling import Flags, Floats, Ints

PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, math.inf)
"""Relative to states whose mean squared norm is 1."""
_STEPS = 50
_CONVERGED = 1e-8
_RANK = 1e-12
"""Smaller eigenvalues, relative to the largest, are 0 except for rounding."""


class HeadSetting(NamedTuple):
    """How a head is fitted.

    Attributes:
        layer: number of the layer whose states are used.
        with_log_odds: whether the log-odds of the prompt are a feature.
        with_ties: whether ties are fitted, as half a win for each answer.
    """

    prompt: str
    layer: int
    penalty: float
    with_log_odds: bool
    with_ties: bool


@dataclass(frozen=True, kw_only=True)
class PromptStates:
    """States of n pairs with one prompt.

    Attributes:
        differences: layer -> shape (n, hidden), first minus second; NaN for failed pairs.
        log_odds: shape (n,), first minus second; NaN for failed pairs. They are a feature only if no pair failed.
    """

    differences: Mapping[int, Floats]
    log_odds: Floats
    _bases: dict[tuple[int, bytes], Floats] = field(default_factory=dict, compare=False)

    @cached_property
    def known(self) -> Flags:
        """Pairs with states."""
        return np.asarray(np.isfinite(next(iter(self.differences.values()))).all(1), dtype=np.bool_)

    @property
    def has_log_odds(self) -> bool:
        """Whether the log-odds can be a feature."""
        return bool(np.isfinite(self.log_odds[self.known]).all() and self.log_odds.any())

    def scaled(self, layer: int) -> tuple[Floats, float]:
        """Return the differences of a layer divided by their root mean squared norm, and that divisor."""
        raw = np.where(self.known[:, None], self.differences[layer], 0)
        square = float((raw**2).sum(1).mean())
        norm = math.sqrt(square) if square > 0 else 1.0
        return raw / norm, norm

    @cached_property
    def _products(self) -> dict[int, Floats]:
        products = {}
        for layer in self.differences:
            scaled, _ = self.scaled(layer)
            products[layer] = scaled @ scaled.T
        return products

    def basis(self, layer: int, rows: Flags) -> Floats:
        """Return the weights of the scaled differences of some pairs in each axis that they span, shape (rows, axes).

        A penalised fit to these pairs has no other components.
        """
        key = layer, rows.tobytes()
        if key not in self._bases:
            values, vectors = np.linalg.eigh(self._products[layer][np.ix_(rows, rows)])
            kept = values > _RANK * max(float(values[-1]), _RANK) if len(values) else np.zeros(0, dtype=np.bool_)
            self._bases[key] = vectors[:, kept] / np.sqrt(values[kept])
        return self._bases[key]

    def design(self, setting: HeadSetting, rows: Flags) -> Floats:
        """Return the features of all pairs in the basis of some pairs; the log-odds last, or 0 if they are not used."""
        log_odds = np.where(self.known & setting.with_log_odds, self.log_odds, 0)
        return np.column_stack([self._products[setting.layer][:, rows] @ self.basis(setting.layer, rows), log_odds])


@dataclass(frozen=True, kw_only=True)
class HeadCandidate:
    """A head as a candidate of `judgelm.studies.tuning.tune`.

    Attributes:
        prompts: states by prompt.
        targets: shape (n,): 1 if the first answer is better, 0.5 for a tie, otherwise 0.
        folds: number of folds of the inner cross-validation.
    """

    prompts: Mapping[str, PromptStates]
    targets: Floats
    questions: Sequence[Hashable]
    folds: int = 5
    seed: int = 0
    penalties: Sequence[float] = PENALTIES
    seconds: float | None = None
    orders_agree: float | None = None
    _chosen: dict[bytes, tuple[HeadSetting, Floats]] = field(default_factory=dict, compare=False)

    @property
    def settings(self) -> Iterator[HeadSetting]:
        """All settings. An infinite penalty needs the log-odds, and does not depend on the layer."""
        ties = (True, False) if (self.targets == 0.5).any() else (True,)
        for name, states in self.prompts.items():
            for layer in states.differences:
                for with_ties in ties:
                    for penalty in self.penalties:
                        if math.isfinite(penalty):
                            yield HeadSetting(name, layer, penalty, with_log_odds=False, with_ties=with_ties)
                        if states.has_log_odds and (math.isfinite(penalty) or layer == min(states.differences)):
                            yield HeadSetting(name, layer, penalty, with_log_odds=True, with_ties=with_ties)

    def choose(self, train: Flags) -> tuple[HeadSetting, Floats]:
        """Return the setting with the lowest log loss in the inner cross-validation, and its held-out log-odds."""
        key = train.tobytes()
        if key not in self._chosen:
            self._chosen[key] = self._choose(train)
        return self._chosen[key]

    def _choose(self, train: Flags) -> tuple[HeadSetting, Floats]:
        folds = folds_of(
            [question for question, own in zip(self.questions, train, strict=True) if own], self.folds, self.seed
        )
        places = np.flatnonzero(train)
        best: tuple[float, HeadSetting, Floats] | None = None
        for setting in self.settings:
            predicted = np.full(len(self.targets), np.nan)
            for fold in range(folds.max() + 1):
                held = np.zeros(len(self.targets), dtype=np.bool_)
                held[places[folds == fold]] = True
                predicted[held] = self.fitted(setting, train & ~held)[held]
            loss = self._loss(predicted[train], self.targets[train])
            if best is None or loss < best[0]:
                best = loss, setting, predicted
        assert best is not None, "there is at least one setting"
        return best[1], best[2]

    def predict(self, train: Flags) -> tuple[Floats, Floats]:
        """Return log-odds that the first answer is better; see `judgelm.studies.tuning.TuningCandidate`."""
        setting, predicted = self.choose(train)
        return np.where(train, predicted, self.fitted(setting, train)), np.zeros(len(train))

    def fitted(self, setting: HeadSetting, train: Flags) -> Floats:
        """Fit on some pairs, and return the log-odds of all; NaN for failed pairs."""
        states = self.prompts[setting.prompt]
        used = self._used(setting, train)
        design = states.design(setting, used)
        return np.where(states.known, design @ self._coefficients(setting, design, used), np.nan)

    def _used(self, setting: HeadSetting, train: Flags) -> Flags:
        known = self.prompts[setting.prompt].known
        return train & known if setting.with_ties else train & known & (self.targets != 0.5)

    def _coefficients(self, setting: HeadSetting, design: Floats, used: Flags) -> Floats:
        return logistic(design[used], self.targets[used], setting.penalty, free_last=setting.with_log_odds)

    def part(self, rows: Flags) -> "HeadCandidate":
        """Return the candidate for some of the pairs."""
        prompts = {
            name: PromptStates(
                differences={layer: each[rows] for layer, each in states.differences.items()},
                log_odds=states.log_odds[rows],
            )
            for name, states in self.prompts.items()
        }
        questions = [question for question, own in zip(self.questions, rows, strict=True) if own]
        return replace(self, prompts=prompts, targets=self.targets[rows], questions=questions, _chosen={})

    def applied(self, fitted: "HeadCandidate") -> tuple[Floats, Floats]:
        """Return the predictions of the candidate `fitted`, which is fitted to all of its pairs, for all pairs here."""
        everything = np.ones(len(fitted.targets), dtype=np.bool_)
        setting, _ = fitted.choose(everything)
        weights, log_odds = fitted.weights(setting, everything)
        states = self.prompts[setting.prompt]
        own = states.log_odds if setting.with_log_odds else np.zeros(len(self.targets))
        return states.differences[setting.layer] @ weights + log_odds * own, np.zeros(len(self.targets))

    def weights(self, setting: HeadSetting, train: Flags) -> tuple[Floats, float]:
        """Return the weight of each component of a state, shape (hidden,), and the weight of the log-odds."""
        states, used = self.prompts[setting.prompt], self._used(setting, train)
        coefficients = self._coefficients(setting, states.design(setting, used), used)
        scaled, norm = states.scaled(setting.layer)
        return scaled[used].T @ (states.basis(setting.layer, used) @ coefficients[:-1]) / norm, float(coefficients[-1])

    @staticmethod
    def _loss(predicted: Floats, targets: Floats) -> float:
        known = np.isfinite(predicted)
        if not known.any():
            return math.inf
        return float((np.logaddexp(0, predicted[known]) - targets[known] * predicted[known]).mean())


def folds_of(questions: Sequence[Hashable], folds: int, seed: int) -> Ints:
    """Assign each question to a fold, of almost equal numbers of questions."""
    unique = list(dict.fromkeys(questions))
    order = np.random.default_rng(seed).permutation(len(unique))
    fold_of = {unique[index]: place % folds for place, index in enumerate(order)}
    return np.array([fold_of[question] for question in questions])


def logistic(features: Floats, targets: Floats, penalty: float, *, free_last: bool) -> Floats:
    """Fit a logistic regression without an intercept by Newton's method.

    Args:
        features: shape (n, k).
        targets: shape (n,), in [0, 1].
        penalty: half of it times the squared norm is added to the loss; infinity sets the coefficients to 0.
        free_last: whether the last feature has a coefficient, which is not penalised.
    """
    coefficients = np.zeros(features.shape[1])
    last = features.shape[1] - 1
    free = np.arange(features.shape[1]) if free_last else np.arange(last)
    if math.isinf(penalty):
        free = free[free == last]
    if not free.size or not len(features):
        return coefficients
    chosen = features[:, free]
    ridge = np.where(free == last, 1e-6, 0 if math.isinf(penalty) else penalty)  # 1e-6: separable labels stay finite
    for _ in range(_STEPS):
        own = coefficients[free]
        probabilities = expit(chosen @ own)
        gradient = chosen.T @ (probabilities - targets) + ridge * own
        weights = np.maximum(probabilities * (1 - probabilities), 1e-9)
        step = np.linalg.solve((chosen.T * weights) @ chosen + np.diag(ridge), gradient)
        step *= min(1.0, 10 / max(float(np.abs(chosen @ step).max()), 1e-12))
        coefficients[free] = own - step
        if float(np.abs(step).max()) < _CONVERGED:
            break
    return coefficients
