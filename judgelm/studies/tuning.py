"""Choose a template for an open model from labelled pairs, and fit its calibration temperature and tie threshold.

Both steps are cross-validated over questions. On the pairs used for selection, the best candidate's score is optimistic
(Cawley and Talbot 2010, On Over-fitting in Model Selection).
"""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol, Self

import numpy as np
from scipy.optimize import minimize_scalar
from scipy.special import expit, logit

from judgelm.errors import InputError
from judgelm.metrics.agreement import paired_difference
from judgelm.metrics.calibration import CERTAIN, TEMPERATURES, bin_edges, calibration_error
from judgelm.metrics.resampling import Estimate, Flags, Floats, Ints, Resampling, mean, share
from judgelm.records import HeadKind, Judgment
from judgelm.studies.heads import HeadCandidate, PromptStates, folds_of
from judgelm.studies.sentences import format_points, format_share

MIN_DECIDED = 20


FITTED_LENGTH = "fitted length"
_SAME = 1e-9

_POWER_REACH = 1.96 + 0.84
"""Effect size, in standard errors, that is detected at the 5 % level with 80 % power."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingFit:
    """Parameters for converting a difference in strength to a verdict, as in `judgelm.modes.readings`.

    The difference is divided by `temperature`. P(first better) within `tie_threshold` of 0.5 is a tie. `ties` is the
    probability of a tie word.
    """

    temperature: float = 1.0
    tie_threshold: float = 0.0

    def lead(self, differences: Floats, ties: Floats | float = 0.0) -> Floats:
        """Return P(first better) minus 0.5; NaN for failed pairs."""
        return np.asarray((1 - ties) * (expit(differences / self.temperature) - 0.5), dtype=np.float64)

    def verdicts(self, differences: Floats, ties: Floats | float = 0.0) -> Floats:
        """Return +1 (first better), 0 (tie), -1 (second better), or NaN (failed)."""
        lead = self.lead(differences, ties)
        likeliest = ties > np.abs(lead) + (1 - ties) / 2
        return np.where((np.abs(lead) <= self.tie_threshold + _SAME) | likeliest, 0.0, np.sign(lead))


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingCandidate:
    """Judgments of n pairs with one template.

    Attributes:
        differences: difference in strength, first minus second, at temperature 1; NaN for failed pairs.
        ties: probability of the tie word; None if there is none.
        orders_agree: share of pairs with the same winner in both orders.
    """

    differences: Floats
    ties: Floats | None = None
    orders_agree: float | None = None
    seconds: float | None = None

    def part(self, rows: Flags) -> "ReadingCandidate":
        """Return the candidate for some of the pairs."""
        return replace(self, differences=self.differences[rows], ties=None if self.ties is None else self.ties[rows])

    def applied(self, fitted: "ReadingCandidate") -> tuple[Floats, Floats]:
        """Return the predictions of the candidate `fitted` for all pairs; see `predict`."""
        return self.predict(np.ones(self.differences.shape, dtype=np.bool_))

    def predict(self, train: Flags) -> tuple[Floats, Floats]:
        """Return the differences and the probabilities of a tie for all pairs; they do not depend on the labels."""
        return self.differences, np.zeros(self.differences.shape) if self.ties is None else self.ties


class TuningCandidate(Protocol):
    """A way to judge n pairs, which may be fitted to the labels of some of them."""

    @property
    def orders_agree(self) -> float | None:
        """Share of pairs with the same winner in both orders, if it has orders."""
        ...

    @property
    def seconds(self) -> float | None:
        """Seconds per pair."""
        ...

    def predict(self, train: Flags) -> tuple[Floats, Floats]:
        """Return differences in strength and probabilities of a tie for all pairs; NaN for failed pairs.

        Values in `train` are held-out, too: each is predicted without its label.
        """
        ...

    def part(self, rows: Flags) -> Self:
        """Return the candidate for some of the pairs."""
        ...

    def applied(self, fitted: Self) -> tuple[Floats, Floats]:
        """Return what the candidate `fitted`, fitted to all of its pairs, predicts for the pairs of this one."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningLabels:
    """Labels of n pairs or single answers.

    Attributes:
        truth: +1 (first better), 0 (tie), or -1 (second better); for kind `label`, +1 (yes) or -1 (no); for `grade`,
            the grade.
        questions: items with the same question are in the same fold and are resampled together.
        lengths: shape (n, 2), or (n, 1) for single answers: number of characters of each answer.
        scale: lowest and highest grade.
        criteria: criterion of each item, for labels of a checklist.
    """

    truth: Floats
    questions: Sequence[Hashable]
    lengths: Ints
    kind: HeadKind = "pair"
    scale: tuple[float, float] = (0, 1)
    criteria: Sequence[str] = ()

    def part(self, rows: Flags) -> "TuningLabels":
        """Return the labels of some of the pairs."""
        kept = np.flatnonzero(rows)
        return replace(
            self,
            truth=self.truth[rows],
            questions=[self.questions[place] for place in kept],
            lengths=self.lengths[rows],
            criteria=[self.criteria[place] for place in kept] if self.criteria else (),
        )

    @property
    def longer(self) -> Ints:
        """+1 if the first answer is longer, -1 if it is shorter; 0 for the same length and for single answers."""
        return np.asarray(np.sign(self.lengths[:, 0] - self.lengths[:, -1]), dtype=np.int_)

    @property
    def targets(self) -> Floats:
        """Targets of a head; see `HeadCandidate`."""
        return self.truth if self.kind == "grade" else (self.truth + 1) / 2

    def right(self, verdicts: Floats) -> Floats:
        """Return 1 where verdict and label agree, otherwise 0; for grades, 1 minus the error as a share of the scale.

        Failures are 0.
        """
        if self.kind != "grade":
            return np.asarray(verdicts == self.truth, dtype=np.float64)
        low, high = self.scale
        close = 1 - np.abs(np.clip(verdicts, low, high) - self.truth) / (high - low)
        return np.where(np.isnan(verdicts), 0.0, close)


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningOptions:
    """Options for choosing a candidate; the seed also determines the folds.

    The `default` is kept unless another candidate is significantly better.

    Attributes:
        repeats: number of cross-validations, each with other folds. An item counts with the mean of its outcomes.
    """

    default: str
    folds: int = 5
    repeats: int = 5
    resampling: Resampling = field(default_factory=Resampling)


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateScores:
    """Held-out scores of a candidate, and its fit on all pairs.

    Attributes:
        difference: accuracy minus the default's accuracy on the same pairs.
        log_loss: log loss of P(first better) in nats, over judged pairs whose label has a winner.
        longer: share of verdicts for the longer answer, among pairs with a winner and unequal lengths.
    """

    accuracy: Estimate
    difference: Estimate | None
    log_loss: Estimate | None
    calibration_error: Estimate | None
    orders_agree: float | None
    longer: float | None
    seconds: float | None
    failed: int
    fit: ReadingFit


@dataclass(frozen=True, slots=True, kw_only=True)
class TuningResult:
    """The chosen candidate, with the evidence for it.

    Attributes:
        candidates: scores by name, best first.
        chosen: `best` if it is significantly better than the default, else the default.
        kind: kind of the labels. For grades, the accuracy is 1 minus the mean absolute error as a share of the scale.
        nested: accuracy if each fold uses the candidate that is best on the other folds.
        gain: `nested` minus the accuracy of the default.
        baselines: accuracy of verdicts that read no answer.
        leads: held-out P(first better) minus 0.5 of the chosen candidate, shape (n,); NaN for failed pairs.
        over_length: `nested` minus the accuracy of the baseline that is fitted to the lengths.
        pairs_needed: approximate number of pairs for `gain` (or for 5 points, if it is not positive) to be significant.
    """

    candidates: Mapping[str, CandidateScores]
    default: str
    best: str
    chosen: str
    nested: Estimate
    nested_right: Floats
    kind: HeadKind
    gain: Estimate
    selected: tuple[str, ...]
    baselines: Mapping[str, Estimate]
    over_length: Estimate
    leads: Floats
    pairs_needed: int | None
    n: int
    decided: int
    questions: int

    def sentences(self) -> list[str]:
        """Summarise the choice; warn if the temperature reached its limit."""
        return [self._choice(), self._honest(), *self._length(), *self._limit()]

    def _choice(self) -> str:
        if len(self.candidates) == 1:
            return f"{self.chosen} was the only candidate."
        if self.chosen != self.default:
            return (
                f"{self.chosen} is chosen. On held-out questions, using the labels to choose gains "
                f"{format_points(self.gain)} over {self.default}."
            )
        items = "pairs" if self.kind == "pair" else "answers"
        reason = f"{self.default} is the best candidate on these {self.n} {items}"
        if self.best != self.default:
            reason = f"On these {self.n} {items}, {self.best} is not significantly better than {self.default}"
        gain = f"using the labels to choose gains {format_points(self.gain)} on held-out questions"
        needed = "The choice makes no difference on held-out questions."
        if self.pairs_needed is not None:
            size = "this size" if self.gain.value > 0 else "5 points"
            needed = f"To detect a difference of {size}, you would need about {self.pairs_needed:,} labelled {items}."
        return f"{reason}: {gain}. {self.default} is kept. {needed}"

    def _honest(self) -> str:
        figure = "accuracy" if self.kind != "grade" else "closeness (1 - error / range of the scale)"
        if self.chosen == self.default:
            kept = self.candidates[self.default].accuracy
            return f"The {figure} of {self.default} on held-out questions is {format_share(kept)}."
        return (
            f"The {figure} of this choice on held-out questions is {format_share(self.nested)}, from nested "
            "cross-validation; the best in the table is optimistic."
        )

    def _length(self) -> list[str]:
        if self.chosen == self.default or self.over_length.low > 0:
            return []
        gain = format_points(self.over_length)
        return [
            f"Warning: this is not significantly better than the lengths of the answers, fitted to the labels: {gain}."
        ]

    def _limit(self) -> list[str]:
        most = TEMPERATURES[1]
        if self.candidates[self.chosen].fit.temperature < 0.99 * most:
            return []
        return [f"{self.chosen} is no better than chance on these labels; its temperature is at the limit of {most:g}."]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {
            "chosen": self.chosen,
            "best": self.best,
            "default": self.default,
            "n": self.n,
            "decided": self.decided,
            "questions": self.questions,
            "nested": _numbers(self.nested),
            "gain_over_default": _numbers(self.gain),
            "selected_in_folds": list(self.selected),
            "baselines": {name: _numbers(accuracy) for name, accuracy in self.baselines.items()},
            "gain_over_fitted_length": _numbers(self.over_length),
            "pairs_needed": self.pairs_needed,
            "candidates": {name: _row(scores) for name, scores in self.candidates.items()},
        }


def tune(candidates: Mapping[str, TuningCandidate], labels: TuningLabels, options: TuningOptions) -> TuningResult:
    """Choose a candidate and evaluate the choice.

    Raises:
        InputError: fewer than `MIN_DECIDED` labels have a winner, or there are fewer questions than folds.
    """
    check_labels(labels, options.folds)
    truth, questions, resampling = labels.truth, labels.questions, options.resampling
    rounds = [
        _held_out(candidates, labels, folds_of(questions, options.folds, resampling.seed + repeat), options.default)
        for repeat in range(options.repeats)
    ]
    right = {
        name: np.mean([labels.right(each.verdicts[name]) for each in rounds], axis=0) for name in rounds[0].verdicts
    }
    nested = np.mean([labels.right(each.nested) for each in rounds], axis=0)
    everything = np.ones(truth.size, dtype=np.bool_)
    predicted = {name: each.predict(everything) for name, each in candidates.items()}
    fits = {name: _fit(labels, *each, everything) for name, each in predicted.items()}
    best = _best(predicted, fits, labels, everything, options.default)
    gain = paired_difference(nested, right[options.default], questions, resampling)
    scores = {
        name: _scores(candidates[name], labels, right[name], rounds[0], name, fit, resampling)
        for name, fit in fits.items()
    }
    for name in scores.keys() - {options.default}:
        difference = paired_difference(right[name], right[options.default], questions, resampling)
        scores[name] = replace(scores[name], difference=difference)
    chosen = best if gain.low > 0 else options.default
    ranked = sorted(scores, key=lambda name: (-scores[name].accuracy.value, name != options.default, name))
    return TuningResult(
        candidates={name: scores[name] for name in ranked},
        default=options.default,
        best=best,
        chosen=chosen,
        kind=labels.kind,
        nested=share(nested, questions, resampling),
        nested_right=nested,
        gain=gain,
        selected=tuple(name for each in rounds for name in each.selected),
        baselines={name: share(right[name], questions, resampling) for name in right if name not in candidates},
        over_length=paired_difference(nested, right[FITTED_LENGTH], questions, resampling),
        leads=rounds[0].leads[chosen],
        pairs_needed=_pairs_needed(gain, nested, right[options.default]),
        n=int(truth.size),
        decided=int((truth != 0).sum()) if labels.kind == "pair" else int(truth.size),
        questions=len(set(questions)),
    )


def check_labels(labels: TuningLabels, folds: int) -> None:
    """Check the labels; raise the same errors as `tune`."""
    questions = len(set(labels.questions))
    for criterion in dict.fromkeys(labels.criteria or [""]):
        own = [not labels.criteria or each == criterion for each in labels.criteria or labels.truth]
        truth, where = labels.truth[own], f" for the criterion {criterion!r}" if criterion else ""
        usable = int((truth != 0).sum()) if labels.kind == "pair" else truth.size
        if usable < MIN_DECIDED:
            what = "pairs with a winner" if labels.kind == "pair" else "labelled answers"
            raise InputError(
                f"labels: expected at least {MIN_DECIDED} {what}{where}, got {usable}; label more (typically 50 to 200)"
            )
        if labels.kind != "pair" and np.ptp(truth) == 0:
            raise InputError(f"labels: all labels{where} are the same, so nothing can be learned; add other labels")
    if questions < folds:
        raise InputError(
            f"labels: expected at least {folds} questions (one per fold), got {questions}; label pairs for more "
            "questions, or use a smaller --folds"
        )


def fit_reading(differences: Floats, ties: Floats, truth: Floats) -> ReadingFit:
    """Fit the temperature by maximum likelihood on pairs with a winner, then the tie threshold by accuracy.

    The threshold is 0 if no label is a tie. Among equally good thresholds, the smallest is used.
    """
    read = ~np.isnan(differences)
    decided = read & (truth != 0)
    temperature = _temperature(differences[decided] * truth[decided]) if decided.any() else 1.0
    fit = ReadingFit(temperature=temperature)
    if not ((truth == 0) & read).any():
        return fit
    lead = np.abs(fit.lead(differences[read], ties[read]))
    levels = np.unique(np.concatenate([[0.0], lead]))
    # thresholds halfway between neighbouring pairs; with the last one, every pair is a tie
    thresholds = [0.0, *((levels[:-1] + levels[1:]) / 2), float(levels[-1])]
    fits = [ReadingFit(temperature=temperature, tie_threshold=float(threshold)) for threshold in thresholds]
    right = [int((each.verdicts(differences, ties) == truth).sum()) for each in fits]
    return fits[int(np.argmax(right))]


def _temperature(lead: Floats) -> float:
    """Keep probabilities away from 0 and 1, because the likelihood may have no maximum."""
    coldest = float(np.abs(lead).max()) / float(logit(1 - CERTAIN))
    low, high = np.log(max(coldest, TEMPERATURES[0])), np.log(TEMPERATURES[1])
    loss = minimize_scalar(
        lambda log: float(np.logaddexp(0, -lead * np.exp(-log)).sum()), bounds=(low, high), method="bounded"
    )
    return float(np.exp(loss.x))


def strength_difference(judgment: Judgment | None) -> float:
    """Return the difference in strength, first minus second, at temperature 1; NaN if there is no verdict.

    The difference is computed from log-odds or grades, because P(first better) is rounded to 1 for a confident judge.
    """
    if judgment is None or judgment.failure is not None:
        return math.nan
    values = []
    for shown in judgment.shown:
        strength = shown.log_odds
        if strength is None and shown.scores is not None and len(shown.order) == 1:
            strength = shown.scores[0]
        if strength is None:
            return math.nan
        values.append(strength if shown.order[0] == 0 else -strength)
    if len(judgment.shown[0].order) == 2:
        return math.fsum(values) / len(values)
    return math.fsum(values)


def tie_probability(judgment: Judgment | None) -> float:
    """Return the mean probability of the tie word over the orders; 0 if there is none."""
    drawn = [] if judgment is None else [each.distribution for each in judgment.shown if each.distribution is not None]
    return math.fsum(each.tie for each in drawn) / len(drawn) if drawn else 0.0


def length_candidate(labels: TuningLabels) -> HeadCandidate:
    """Return a head that reads only the lengths of the answers."""
    features = np.stack([labels.lengths / 1000, np.log1p(labels.lengths)], axis=2)
    alone = labels.kind != "pair"
    features = features[:, 0] if alone else features[:, 0] - features[:, 1]
    states = PromptStates(states={0: features}, log_odds=np.zeros(labels.truth.size), centered=alone)
    return HeadCandidate(
        prompts={"length": states},
        targets=labels.targets,
        questions=labels.questions,
        kind=labels.kind,
        groups=labels.criteria,
    )


_Predicted = tuple[Floats, Floats]
"""See `TuningCandidate.predict`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _HeldOut:
    """What n items get while they are held out: verdicts and leads by candidate or baseline.

    Attributes:
        nested: verdicts of the candidates that are best on the other folds, which are `selected`.
    """

    verdicts: Mapping[str, Floats]
    leads: Mapping[str, Floats]
    nested: Floats
    selected: Sequence[str]


def _held_out(candidates: Mapping[str, TuningCandidate], labels: TuningLabels, folds: Ints, default: str) -> _HeldOut:
    fitted = {**candidates, FITTED_LENGTH: length_candidate(labels)}
    verdicts = {name: np.full(labels.truth.size, np.nan) for name in fitted}
    leads = {name: np.full(labels.truth.size, np.nan) for name in fitted}
    nested, selected = np.full(labels.truth.size, np.nan), []
    for fold in range(folds.max() + 1):
        train, held = folds != fold, folds == fold
        predicted = {name: each.predict(train) for name, each in fitted.items()}
        fits = {name: _fit(labels, *_part(each, train), train) for name, each in predicted.items()}
        for name, fit in fits.items():
            shown = _part(predicted[name], held)
            verdicts[name][held], leads[name][held] = _verdicts(labels, fit, shown), fit.lead(*shown)
        selected.append(_best({name: predicted[name] for name in candidates}, fits, labels, train, default))
        nested[held] = verdicts[selected[-1]][held]
    if labels.kind == "grade":
        verdicts["mean grade"] = np.full(labels.truth.size, labels.truth.mean())
    else:
        values, counts = np.unique(labels.truth, return_counts=True)
        verdicts["most frequent label"] = np.full(labels.truth.size, values[np.argmax(counts)])
    if labels.kind == "pair":
        verdicts["longer answer"] = labels.longer.astype(np.float64)
    return _HeldOut(verdicts=verdicts, leads=leads, nested=nested, selected=selected)


def _part(predicted: _Predicted, rows: Flags) -> _Predicted:
    return predicted[0][rows], predicted[1][rows]


def _fit(labels: TuningLabels, differences: Floats, ties: Floats, rows: Flags) -> ReadingFit:
    return ReadingFit() if labels.kind == "grade" else fit_reading(differences, ties, labels.truth[rows])


def _verdicts(labels: TuningLabels, fit: ReadingFit, predicted: _Predicted) -> Floats:
    return predicted[0] if labels.kind == "grade" else fit.verdicts(*predicted)


def _best(
    predicted: Mapping[str, _Predicted], fits: Mapping[str, ReadingFit], labels: TuningLabels, rows: Flags, default: str
) -> str:
    part = labels.part(rows)

    def rank(name: str) -> tuple[float, float, bool, str]:
        shown = _part(predicted[name], rows)
        accuracy = float(part.right(_verdicts(labels, fits[name], shown)).mean())
        losses = np.zeros(0) if labels.kind == "grade" else _losses(fits[name].lead(*shown), part.truth)
        return -accuracy, float(losses.mean()) if losses.size else math.inf, name != default, name

    return min(predicted, key=rank)


def _losses(lead: Floats, truth: Floats) -> Floats:
    used = ~np.isnan(lead) & (truth != 0)
    return np.asarray(-np.log(np.maximum(0.5 + truth[used] * lead[used], 1e-12)), dtype=np.float64)


def _scores(
    candidate: TuningCandidate,
    labels: TuningLabels,
    right: Floats,
    held_out: _HeldOut,
    name: str,
    fit: ReadingFit,
    resampling: Resampling,
) -> CandidateScores:
    truth, questions = labels.truth, labels.questions
    verdicts, lead = held_out.verdicts[name], held_out.leads[name]
    used = ~np.isnan(lead) & (truth != 0) & (labels.kind != "grade")
    clusters = [questions[index] for index in np.flatnonzero(used)]
    probability = np.clip(lead[used] + 0.5, 0, 1)
    sided = np.isin(verdicts, (-1, 1)) & (labels.longer != 0)
    error = None
    if used.any():
        error = calibration_error(truth[used] > 0, probability, bin_edges(10), clusters, resampling).error
    return CandidateScores(
        accuracy=share(right, questions, resampling),
        difference=None,
        log_loss=mean(_losses(lead, truth), clusters, resampling) if used.any() else None,
        calibration_error=error,
        orders_agree=candidate.orders_agree,
        longer=float((verdicts == labels.longer)[sided].mean()) if sided.any() else None,
        seconds=candidate.seconds,
        failed=int(np.isnan(verdicts).sum()),
        fit=fit,
    )


def _pairs_needed(gain: Estimate, nested: Floats, default: Floats) -> int | None:
    """Assume that the interval's width is inversely proportional to the square root of the number of pairs."""
    if not (nested != default).any():
        return None
    error = (gain.high - gain.low) / (2 * 1.96)
    size = gain.value if gain.value > 0 else 0.05
    return math.ceil(gain.n * (_POWER_REACH * error / size) ** 2)


def _numbers(estimate: Estimate) -> dict[str, float]:
    return {"value": estimate.value, "low": estimate.low, "high": estimate.high, "n": estimate.n}


def _row(scores: CandidateScores) -> dict[str, Any]:
    estimates = ("accuracy", "difference", "log_loss", "calibration_error")
    values = {name: getattr(scores, name) for name in estimates}
    return {name: None if value is None else _numbers(value) for name, value in values.items()} | {
        "orders_agree": scores.orders_agree,
        "longer_answer": scores.longer,
        "seconds_per_pair": scores.seconds,
        "failed": scores.failed,
        "temperature": scores.fit.temperature,
        "tie_threshold": scores.fit.tie_threshold,
    }
