"""Fit a linear head to the states of a frozen model.

For a pair, the head maps the difference between the states of both answers to the log-odds that the first is better, by
logistic regression without an intercept. For a label or a criterion of a checklist, it maps the state of one answer to
the log-odds of yes, and for a grade, by ridge regression, to the grade. Prompt, layer, and penalty are chosen by
cross-validation over questions. A model's log-odds of yes versus no can be an additional feature without a penalty:
then, an infinite penalty leaves only the model's own verdicts.
"""

import math
from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
from scipy.special import expit

from judgelm.metrics.resampling import Flags, Floats, Ints
from judgelm.records import HeadKind, HeadTerms

PENALTIES = (0.03, 0.1, 0.3, 1.0, 3.0, 10.0, math.inf)
"""Relative to states whose mean squared norm is 1."""
_STEPS = 50
_CONVERGED = 1e-8
_FREE = 1e-6
"""Penalty of the other features, so that separable labels have a finite fit."""
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
    """States of n items (pairs, or single answers) with one prompt.

    Attributes:
        states: layer -> shape (n, hidden): the state of an answer, or for pairs, first minus second; NaN for failures.
        log_odds: shape (n,), alike. They are a feature only if no item failed.
        centered: whether to subtract the mean state. False for pairs, which have no intercept.
    """

    states: Mapping[int, Floats]
    log_odds: Floats
    centered: bool = False
    _bases: dict[tuple[int, bytes], Floats] = field(default_factory=dict, compare=False)

    @cached_property
    def known(self) -> Flags:
        """Items with states."""
        return np.asarray(np.isfinite(next(iter(self.states.values()))).all(1), dtype=np.bool_)

    @property
    def has_log_odds(self) -> bool:
        """Whether the log-odds can be a feature."""
        return bool(np.isfinite(self.log_odds[self.known]).all() and self.log_odds.any())

    def part(self, rows: Flags) -> "PromptStates":
        """Return the states of some items."""
        states = {layer: each[rows] for layer, each in self.states.items()}
        return PromptStates(states=states, log_odds=self.log_odds[rows], centered=self.centered)

    def center(self, layer: int) -> Floats:
        """Return what is subtracted from the states, shape (hidden,)."""
        states = self.states[layer]
        return states[self.known].mean(0) if self.centered and self.known.any() else np.zeros(states.shape[1])

    def scaled(self, layer: int) -> tuple[Floats, float]:
        """Return the centered states divided by their root mean squared norm, and that divisor."""
        raw = np.where(self.known[:, None], self.states[layer] - self.center(layer), 0)
        square = float((raw**2).sum(1).mean())
        norm = math.sqrt(square) if square > 0 else 1.0
        return raw / norm, norm

    @cached_property
    def _products(self) -> dict[int, Floats]:
        products = {}
        for layer in self.states:
            scaled, _ = self.scaled(layer)
            products[layer] = scaled @ scaled.T
        return products

    def basis(self, layer: int, rows: Flags) -> Floats:
        """Return the weights of the scaled states of some items in each axis that they span, shape (rows, axes).

        A penalised fit to these items has no other components.
        """
        key = layer, rows.tobytes()
        if key not in self._bases:
            values, vectors = np.linalg.eigh(self._products[layer][np.ix_(rows, rows)])
            kept = values > _RANK * max(float(values[-1]), _RANK) if len(values) else np.zeros(0, dtype=np.bool_)
            self._bases[key] = vectors[:, kept] / np.sqrt(values[kept])
        return self._bases[key]

    def design(self, layer: int, rows: Flags) -> Floats:
        """Return the features of all items: in the basis of some items, then the log-odds, then 1."""
        log_odds = np.where(self.known & self.has_log_odds, self.log_odds, 0)
        own = self._products[layer][:, rows] @ self.basis(layer, rows)
        return np.column_stack([own, log_odds, np.ones(len(log_odds))])


@dataclass(frozen=True, kw_only=True)
class HeadCandidate:
    """A head as a candidate of `judgelm.studies.tuning.tune`.

    Attributes:
        prompts: states by prompt.
        targets: shape (n,): for pairs, 1 if the first answer is better, 0.5 for a tie, otherwise 0; for labels, 1 for
            yes and 0 for no; for grades, the grade.
        groups: criteria, each with its own weights; all have the same setting.
        folds: number of folds of the inner cross-validation.
    """

    prompts: Mapping[str, PromptStates]
    targets: Floats
    questions: Sequence[Hashable]
    kind: HeadKind = "pair"
    groups: Sequence[str] = ()
    folds: int = 5
    seed: int = 0
    penalties: Sequence[float] = PENALTIES
    seconds: float | None = None
    orders_agree: float | None = None
    _chosen: dict[bytes, tuple[HeadSetting, Floats]] = field(default_factory=dict, compare=False)

    @property
    def settings(self) -> Iterator[HeadSetting]:
        """All settings. An infinite penalty needs the log-odds, and does not depend on the layer."""
        ties = (True, False) if self.kind == "pair" and (self.targets == 0.5).any() else (True,)
        for name, states in self.prompts.items():
            for layer in states.states:
                for with_ties in ties:
                    for penalty in self.penalties:
                        if math.isfinite(penalty):
                            yield HeadSetting(name, layer, penalty, with_log_odds=False, with_ties=with_ties)
                        if states.has_log_odds and (math.isfinite(penalty) or layer == min(states.states)):
                            yield HeadSetting(name, layer, penalty, with_log_odds=True, with_ties=with_ties)

    @property
    def members(self) -> dict[str, Flags]:
        """Criterion -> its items; without criteria, all items."""
        names = self.groups or [""] * len(self.targets)
        return {name: np.array([each == name for each in names]) for name in dict.fromkeys(names)}

    def choose(self, train: Flags) -> tuple[HeadSetting, Floats]:
        """Return the setting with the lowest loss in the inner cross-validation, and its held-out predictions."""
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
        """Return log-odds or grades; see `judgelm.studies.tuning.TuningCandidate`."""
        setting, predicted = self.choose(train)
        return np.where(train, predicted, self.fitted(setting, train)), np.zeros(len(train))

    def fitted(self, setting: HeadSetting, train: Flags) -> Floats:
        """Fit on some items, and return log-odds or grades of all; NaN for failures."""
        states = self.prompts[setting.prompt]
        predicted = np.full(len(self.targets), np.nan)
        for own in self.members.values():
            used = self._used(setting, train & own)
            design = states.design(setting.layer, used)
            shown = own & states.known
            predicted[shown] = design[shown] @ self._coefficients(setting, design, used)
        return predicted

    def _used(self, setting: HeadSetting, train: Flags) -> Flags:
        known = self.prompts[setting.prompt].known
        return train & known if setting.with_ties else train & known & (self.targets != 0.5)

    def _coefficients(self, setting: HeadSetting, design: Floats, used: Flags) -> Floats:
        ridge = np.full(design.shape[1], setting.penalty)
        ridge[-2] = _FREE if setting.with_log_odds else math.inf
        ridge[-1] = math.inf if self.kind == "pair" else _FREE
        fit = least_squares if self.kind == "grade" else logistic
        return fit(design[used], self.targets[used], ridge)

    def part(self, rows: Flags) -> "HeadCandidate":
        """Return the candidate for some of the items."""
        kept = np.flatnonzero(rows)
        return replace(
            self,
            prompts={name: states.part(rows) for name, states in self.prompts.items()},
            targets=self.targets[rows],
            questions=[self.questions[place] for place in kept],
            groups=[self.groups[place] for place in kept] if self.groups else (),
            _chosen={},
        )

    def applied(self, fitted: "HeadCandidate") -> tuple[Floats, Floats]:
        """Return the predictions of the candidate `fitted`, which is fitted to all of its items, for all items here."""
        everything = np.ones(len(fitted.targets), dtype=np.bool_)
        setting, _ = fitted.choose(everything)
        states = self.prompts[setting.prompt]
        predicted = np.full(len(self.targets), np.nan)
        found = fitted.weights(setting, everything)
        for name, own in self.members.items():
            weights, terms = found[name]
            value = states.states[setting.layer] @ weights + terms.intercept
            if terms.log_odds:
                value = value + terms.log_odds * states.log_odds
            predicted[own] = value[own]
        return predicted, np.zeros(len(self.targets))

    def weights(self, setting: HeadSetting, train: Flags) -> dict[str, tuple[Floats, HeadTerms]]:
        """Criterion -> weight of each component of a state, shape (hidden,), and the other terms of the fit."""
        states, found = self.prompts[setting.prompt], {}
        scaled, norm = states.scaled(setting.layer)
        for row, (name, own) in enumerate(self.members.items()):
            used = self._used(setting, train & own)
            coefficients = self._coefficients(setting, states.design(setting.layer, used), used)
            weights = scaled[used].T @ (states.basis(setting.layer, used) @ coefficients[:-2]) / norm
            intercept = float(coefficients[-1] - weights @ states.center(setting.layer))
            found[name] = (
                weights,
                HeadTerms(kind=self.kind, intercept=intercept, log_odds=float(coefficients[-2]), row=row),
            )
        return found

    def _loss(self, predicted: Floats, targets: Floats) -> float:
        known = np.isfinite(predicted)
        if not known.any():
            return math.inf
        shown, target = predicted[known], targets[known]
        if self.kind == "grade":
            return float(((shown - target) ** 2).mean())
        return float((np.logaddexp(0, shown) - target * shown).mean())


def folds_of(questions: Sequence[Hashable], folds: int, seed: int) -> Ints:
    """Assign each question to a fold, of almost equal numbers of questions."""
    unique = list(dict.fromkeys(questions))
    order = np.random.default_rng(seed).permutation(len(unique))
    fold_of = {unique[index]: place % folds for place, index in enumerate(order)}
    return np.array([fold_of[question] for question in questions])


def least_squares(features: Floats, targets: Floats, ridge: Floats) -> Floats:
    """Fit a ridge regression, with unbounded targets; see `logistic` for the other arguments."""
    coefficients = np.zeros(features.shape[1])
    free = np.flatnonzero(np.isfinite(ridge))
    if free.size and len(features):
        chosen = features[:, free]
        coefficients[free] = np.linalg.solve(chosen.T @ chosen + np.diag(ridge[free]), chosen.T @ targets)
    return coefficients


def logistic(features: Floats, targets: Floats, ridge: Floats) -> Floats:
    """Fit a logistic regression by Newton's method.

    Args:
        features: shape (n, k).
        targets: shape (n,), in [0, 1].
        ridge: shape (k,), above 0: half of it times the squared coefficient is added to the loss; infinity sets the
            coefficient to 0.
    """
    coefficients = np.zeros(features.shape[1])
    free = np.flatnonzero(np.isfinite(ridge))
    if not free.size or not len(features):
        return coefficients
    chosen, penalty = features[:, free], ridge[free]
    for _ in range(_STEPS):
        own = coefficients[free]
        probabilities = expit(chosen @ own)
        gradient = chosen.T @ (probabilities - targets) + penalty * own
        weights = np.maximum(probabilities * (1 - probabilities), 1e-9)
        step = np.linalg.solve((chosen.T * weights) @ chosen + np.diag(penalty), gradient)
        step *= min(1.0, 10 / max(float(np.abs(chosen @ step).max()), 1e-12))
        coefficients[free] = own - step
        if float(np.abs(step).max()) < _CONVERGED:
            break
    return coefficients
