"""Choose below which confidence a judge abstains, so that the share of wrong verdicts stays below a level.

Thresholds are fixed before the labels of the calibration pairs are seen, and tested from the strictest to the most
lenient: each test is an exact binomial test, and the first that fails ends the sequence. With probability
`confidence`, the verdicts at the last threshold that passed are wrong at most at the given level (fixed-sequence
testing: Angelopoulos et al. 2021, Learn then Test; for judges: Jung et al. 2024, Trust or Escalate). The pairs must be
independent: one per question.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.stats import binom

from judgelm.errors import InputError
from judgelm.metrics.resampling import Flags, Floats, Ints
from judgelm.studies.tuning import TuningCandidate, TuningLabels, TuningResult

_GRID = 20
_SPARE = 1.5
"""The strictest threshold is expected to leave this many times the smallest number of pairs that can pass."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A threshold with a promise.

    Attributes:
        threshold: minimum distance of P(first better) from 0.5 for a verdict, in [0, 0.5].
        level: promised maximum share of wrong verdicts.
        confidence: probability of keeping the promise.
        pairs: calibration pairs; pairs without a verdict due to a failure are not decided.
        decided: calibration pairs above the threshold, and `wrong` of them disagree with the label. A label of a tie
            disagrees with every winner.
    """

    threshold: float
    level: float
    confidence: float
    pairs: int
    decided: int
    wrong: int


CONFIDENCE = 0.9


@dataclass(frozen=True, slots=True, kw_only=True)
class RiskSplit:
    """Pairs for choosing and fitting a judge, and pairs for calibration, without a common question.

    Attributes:
        train: shape (n,).
        calibration: shape (n,): one pair per question; other pairs of these questions are not used.
    """

    level: float
    train: Flags
    calibration: Flags

    def needs(self) -> str:
        """Say how many pairs the promise needs at least."""
        none, two, five = (pairs_needed(self.level, CONFIDENCE, wrong) for wrong in (0, 2, 5))
        return (
            f"--risk {self.level:g}: of {int(self.calibration.sum())} pairs for calibration, the judge must decide at "
            f"least {none} without an error, {two} with at most two, or {five} with at most five"
        )

    def sentence(self, promised: Promise | None) -> str:
        """Say what is promised."""
        share = f"{100 * self.level:g} %"
        if promised is None:
            return (
                f"No threshold can promise that at most {share} of the verdicts disagree with the labels, so the judge "
                "never abstains. Use more labels or a higher --risk."
            )
        below = f"if the probability of the likelier answer is below {0.5 + promised.threshold:.3g}"
        return (
            f"The judge {f'abstains {below}' if promised.threshold > 0 else 'never needs to abstain'}. "
            f"With probability {promised.confidence:g}, at most {share} of its verdicts then disagree with such "
            f"labels. On {promised.pairs} calibration pairs it gave {promised.decided} verdicts, "
            f"{promised.wrong} of them wrong."
        )


def split_by_question(questions: Sequence[Hashable], level: float, seed: int) -> RiskSplit:
    """Put half of the questions, at random, aside for calibration.

    Raises:
        InputError: there are too few questions for any promise.
    """
    unique = list(dict.fromkeys(questions))
    least = pairs_needed(level, CONFIDENCE)
    if len(unique) // 2 < least:
        raise InputError(
            f"labels: --risk {level:g} requires at least {least} questions for calibration, and as many others, but "
            f"there are {len(unique)} questions; label more, use a higher --risk, or remove it"
        )
    order = np.random.default_rng(seed).permutation(len(unique))
    aside = {unique[place] for place in order[: len(unique) // 2]}
    train = np.array([question not in aside for question in questions])
    calibration = np.zeros(len(questions), dtype=np.bool_)
    calibration[one_per_question(questions, seed)] = True
    return RiskSplit(level=level, train=train, calibration=calibration & ~train)


def promise_of(
    tuned: TuningResult, fitted: TuningCandidate, whole: TuningCandidate, labels: TuningLabels, split: RiskSplit
) -> Promise | None:
    """Choose a threshold for a tuned judge on the calibration pairs, which had no part in the tuning.

    Args:
        tuned: result on the training pairs.
        fitted: the chosen candidate with the training pairs.
        whole: the same candidate with all pairs.
        labels: labels of all pairs.
        split: the training and calibration pairs.
    """
    fit = tuned.candidates[tuned.chosen].fit
    lead = fit.lead(*whole.applied(fitted))[split.calibration]
    grid = thresholds(np.abs(tuned.leads), len(lead), split.level, CONFIDENCE)
    wrong = np.sign(lead) != labels.truth[split.calibration]
    return promise(np.abs(lead), wrong, grid, split.level, CONFIDENCE)


def pairs_needed(level: float, confidence: float, wrong: int = 0) -> int:
    """Return the smallest number of decided pairs, `wrong` of them wrong, that can pass.

    Example:
        >>> [pairs_needed(0.1, 0.9, wrong) for wrong in (0, 2, 5)]
        [22, 52, 91]
    """
    count = wrong + 1
    while binom.cdf(wrong, count, level) > 1 - confidence:
        count += 1
    return count


def passes(wrong: int, decided: int, level: float, confidence: float) -> bool:
    """Return whether a share of wrong verdicts above the level is rejected."""
    return decided > 0 and float(binom.cdf(wrong, decided, level)) <= 1 - confidence


def thresholds(leads: Floats, pairs: int, level: float, confidence: float) -> Floats:
    """Return thresholds to test, from the strictest to 0.

    Args:
        leads: distance of P(first better) from 0.5 of pairs that are not used for calibration; NaN for failed pairs.
        pairs: number of calibration pairs.
        level: maximum share of wrong verdicts.
        confidence: probability of keeping the promise.
    """
    known = np.sort(leads[np.isfinite(leads)])[::-1]
    if not known.size or not pairs:
        return np.zeros(0)
    smallest = min(1.0, _SPARE * pairs_needed(level, confidence) / pairs)
    shares = np.linspace(smallest, 1, _GRID)
    places = np.minimum(np.ceil(shares * len(known)).astype(int), len(known)) - 1
    return np.unique(np.append(known[places], 0.0))[::-1]


def promise(leads: Floats, wrong: Flags, grid: Floats, level: float, confidence: float) -> Promise | None:
    """Return the most lenient threshold before the first that fails, or None if the strictest one fails.

    Args:
        leads: distance of P(first better) from 0.5 for each calibration pair; NaN for failed pairs.
        wrong: whether the winner by P(first better) disagrees with the label.
        grid: see `thresholds`.
        level: maximum share of wrong verdicts.
        confidence: probability of keeping the promise.
    """
    best = None
    for threshold in grid:
        decided = np.isfinite(leads) & (leads >= threshold)
        errors, count = int((wrong & decided).sum()), int(decided.sum())
        if not passes(errors, count, level, confidence):
            break
        best = Promise(
            threshold=float(threshold),
            level=level,
            confidence=confidence,
            pairs=len(leads),
            decided=count,
            wrong=errors,
        )
    return best


def one_per_question(questions: Sequence[Hashable], seed: int) -> Ints:
    """Return the index of a random pair for each question, in order."""
    by_question: dict[Hashable, list[int]] = {}
    for index, question in enumerate(questions):
        by_question.setdefault(question, []).append(index)
    draw = np.random.default_rng(seed)
    return np.sort([places[draw.integers(len(places))] for places in by_question.values()])
