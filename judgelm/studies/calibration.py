"""Calibration of a judge's probabilities, before and after temperature scaling.

The temperature is fitted on part of the questions and evaluated on the rest. Pairs labelled as ties are excluded.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from sklearn.model_selection import GroupShuffleSplit

from judgelm.data.labelled_set import LabelledSet, match_labels
from judgelm.errors import ConfigError, InputError
from judgelm.metrics import calibration
from judgelm.metrics.calibration import TEMPERATURES, Bin, CalibrationError, bin_edges, error_cells, fit_temperature
from judgelm.metrics.resampling import Estimate, Resampling, estimate
from judgelm.parsing.scores import kind_of_approximation
from judgelm.records import Judgment
from judgelm.studies.pair_labels import TIE_THRESHOLD, JoinedPair, join, questions_of
from judgelm.studies.pair_metrics import proper_losses
from judgelm.studies.result import Layouts, Lines, Row, Series, StudyResult, Table
from judgelm.studies.sentences import by_sign, few_pairs_sentence, format_number, format_points

LAYOUTS = Layouts(Path(__file__).with_suffix(".yaml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationOptions:
    """Options for the study; the seed also determines how the questions are split.

    Attributes:
        bins: number of bins for the reliability curve and the calibration error.
        fit_share: share of questions used to fit the temperature, in [0, 1); 0 disables the fit.
    """

    bins: int = 10
    fit_share: float = 0.5
    resampling: Resampling = field(default_factory=Resampling)

    def __post_init__(self) -> None:
        if not 0 <= self.fit_share < 1:
            raise ConfigError(f"fit share: expected a number of at least 0 and less than 1, got {self.fit_share}")
        if self.bins < 2:
            raise ConfigError(f"bins: expected at least 2, got {self.bins}")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Slice:
    outcome: NDArray[np.bool_]
    probability: NDArray[np.float64]
    clusters: Sequence[Hashable]

    def part(self, indices: NDArray[np.int_]) -> "_Slice":
        return _Slice(
            outcome=self.outcome[indices],
            probability=self.probability[indices],
            clusters=[self.clusters[index] for index in indices],
        )

    def scaled(self, temperature: float) -> "_Slice":
        scaled = calibration.scale(self.probability, temperature)
        return _Slice(outcome=self.outcome, probability=scaled, clusters=self.clusters)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CalibrationScores:
    name: str
    brier: Estimate
    log_loss: Estimate
    error: CalibrationError
    overconfidence: Estimate
    bins: tuple[Bin, ...]


class _Gain(NamedTuple):
    temperature: Estimate
    brier: Estimate
    log_loss: Estimate
    error: Estimate


def calibration_study(
    judgments: Mapping[str, Judgment], labelled: LabelledSet, options: CalibrationOptions | None = None
) -> StudyResult:
    """Measure reliability, calibration error, proper scores, and the effect of temperature scaling.

    Raises:
        InputError: no ids match, the same id has different texts, or no pair has both a probability and a label with a
            winner.
    """
    options = options or CalibrationOptions()
    labelled, texts = match_labels(judgments, labelled, name="the labels")
    questions = questions_of(labelled)
    rows = join(judgments, labelled.labels, {}, questions, "as_judged", TIE_THRESHOLD)
    used = [row for row in rows if row.judgment.probability is not None and row.truth != 0]
    if not used:
        raise _nothing_to_measure(rows)
    everything = _slice_of(used)
    fitted, rest = _split(everything, options)
    before = _quality("as judged, all pairs", everything, options)
    after, change = [], None
    if fitted is not None:
        after.append(_quality("as judged, rest", rest, options))
        temperature = fit_temperature(fitted.outcome, fitted.probability, fitted.clusters, options.resampling)
        if temperature is not None:
            scaled = rest.scaled(temperature.value)
            after.append(_quality("temperature, rest", scaled, options))
            change = _gain(temperature, rest, scaled, options)
    sides = {} if fitted is None else {"fitted_on": fitted.outcome.size, "rest": rest.outcome.size}
    return StudyResult(
        study="calibration",
        title="Calibration of the judge's probabilities",
        protocol=_protocol(options),
        findings=tuple(_findings(before, change)),
        counts=_counts(judgments, labelled, rows, used) | sides,
        tables=(
            LAYOUTS.table("scores", map(_score_row, [before, *after])),
            *([] if change is None else [LAYOUTS.table("gains", [(*change,)])]),
            _reliability_table([before, *after]),
        ),
        figures=(_curve("reliability-all", [before]), *([_curve("reliability-rest", after)] if len(after) > 1 else [])),
        warnings=(*_warnings(before, rows), *_unfitted(fitted, change, options), *labelled.notes(), *texts.notes()),
    )


def _quality(name: str, pairs: _Slice, options: CalibrationOptions) -> _CalibrationScores:
    resampling = options.resampling
    edges = bin_edges(options.bins)
    brier, log_loss, overconfidence = estimate(values(pairs), _means, pairs.clusters, resampling)
    return _CalibrationScores(
        name=name,
        brier=brier,
        log_loss=log_loss,
        error=calibration.calibration_error(pairs.outcome, pairs.probability, edges, pairs.clusters, resampling),
        overconfidence=overconfidence,
        bins=calibration.reliability(pairs.outcome, pairs.probability, edges, pairs.clusters, resampling),
    )


def values(pairs: _Slice) -> NDArray[np.float64]:
    """Return the squared error, log loss, winner's probability minus correctness, and 1 for each pair; shape (n, 4).

    A probability of exactly 0.5 counts as half correct.
    """
    sure = np.maximum(pairs.probability, 1 - pairs.probability)
    right = np.where(pairs.probability == 0.5, 0.5, (pairs.probability > 0.5) == pairs.outcome)
    losses = proper_losses(pairs.outcome, pairs.probability)
    return np.column_stack([losses, sure - right, np.ones(pairs.outcome.size)])


def _means(sums: NDArray[np.float64]) -> NDArray[np.float64]:
    return sums[:, :-1] / sums[:, -1:]


def _gain(temperature: Estimate, before: _Slice, after: _Slice, options: CalibrationOptions) -> _Gain:
    resampling = options.resampling
    losses = proper_losses(after.outcome, after.probability) - proper_losses(before.outcome, before.probability)
    counted = np.column_stack([losses, np.ones(before.outcome.size)])
    brier, log_loss = estimate(counted, _means, before.clusters, resampling)
    cells = [error_cells(side.outcome, side.probability, bin_edges(options.bins)) for side in (before, after)]
    width = cells[0].shape[1]

    def difference(sums: NDArray[np.float64]) -> NDArray[np.float64]:
        return (calibration.errors_of_sums(sums[:, width:]) - calibration.errors_of_sums(sums[:, :width]))[:, None]

    [error] = estimate(np.hstack(cells), difference, before.clusters, resampling)
    return _Gain(temperature, brier, log_loss, error)


def _slice_of(rows: Sequence[JoinedPair]) -> _Slice:
    return _Slice(
        outcome=np.array([row.truth > 0 for row in rows]),
        probability=np.array([row.judgment.probability for row in rows], dtype=np.float64),
        clusters=[row.cluster for row in rows],
    )


FEW_PAIRS = 200
"""With fewer pairs, each bin has about 20 or fewer, and its share of hits is uncertain by about 20 points."""


def _split(pairs: _Slice, options: CalibrationOptions) -> tuple[_Slice | None, _Slice]:
    if int(options.fit_share * len(set(pairs.clusters))) < 1:
        return None, pairs
    split = GroupShuffleSplit(n_splits=1, train_size=options.fit_share, random_state=options.resampling.seed)
    [(fit, rest)] = split.split(pairs.probability, groups=np.array([str(key) for key in pairs.clusters]))
    return pairs.part(fit), pairs.part(rest)


def _nothing_to_measure(rows: Sequence[JoinedPair]) -> InputError:
    tied = sum(row.judgment.probability is not None for row in rows)
    if tied:
        return InputError(f"calibration: all {tied} pairs with a probability are labelled as ties; label more pairs")
    return InputError(
        f"calibration: none of the {len(rows)} labelled judgments has a probability; judge again with --distribution, "
        "on an engine that returns logprobs"
    )


def _counts(
    judgments: Mapping[str, Judgment], labelled: LabelledSet, rows: Sequence[JoinedPair], used: Sequence[JoinedPair]
) -> dict[str, int]:
    without = [row for row in rows if row.judgment.probability is None]
    failed = sum(row.judgment.failure is not None for row in without)
    return {
        "judgments": len(judgments),
        "labels": len(labelled.labels),
        "joined": len(rows),
        "failed": failed,
        "without_probability": len(without) - failed,
        "labels_that_are_ties": len(rows) - len(without) - len(used),
        "measured": len(used),
    }


def _protocol(options: CalibrationOptions) -> str:
    fitted = "no temperature is fitted"
    if options.fit_share:
        fitted = f"a temperature is fitted on {100 * options.fit_share:g} % of the questions and evaluated on the rest"
    return (
        f"P(first better) is compared with labels that have a winner, in {options.bins} bins of equal width; {fitted} "
        f"(seed {options.resampling.seed}). Failures and pairs labelled as ties are excluded and counted. "
        f"Intervals are 95 % from {options.resampling.resamples} resamples of questions."
    )


def _findings(before: _CalibrationScores, change: _Gain | None) -> list[str]:
    more = before.overconfidence
    side = by_sign(more, "overconfident", "underconfident", "not significantly over- or underconfident")
    lines = [
        f"The judge is {side}: the mean probability of its winners minus its accuracy is {format_points(more)}.",
        f"Its expected calibration error is {format_number(before.error.error)}; a perfectly calibrated judge with the "
        f"same probabilities would have {before.error.by_chance:.3f} by chance. Its Brier score is "
        f"{format_number(before.brier)}; always predicting 0.5 would give 0.250.",
    ]
    if change is not None:
        verdict = by_sign(change.log_loss, "raises", "lowers", "does not significantly change")
        lines.append(
            f"The fitted temperature is {format_number(change.temperature, '.2f')}; a value above 1 indicates "
            f"overconfidence. On held-out pairs, it {verdict} the log loss; the change is "
            f"{format_number(change.log_loss, '+.3f')}."
        )
    return lines


def _unfitted(fitted: _Slice | None, change: _Gain | None, options: CalibrationOptions) -> list[str]:
    if fitted is None:
        few = "No temperature is fitted because there are too few questions to split."
        return [few] if options.fit_share > 0 else []
    low, high = TEMPERATURES
    none = f"No temperature is used because the fit has no optimum between {low:g} and {high:g}."
    return [none] if change is None else []


def _warnings(before: _CalibrationScores, rows: Sequence[JoinedPair]) -> list[str]:
    lines = [few_pairs_sentence(before.brier.n)] if before.brier.n < FEW_PAIRS else []
    rough = {shown.distribution.approximation for row in rows for shown in row.judgment.shown if shown.distribution}
    ways = sorted({kind_of_approximation(why) for why in rough - {""}})
    lines += [f"Some probabilities are approximate: {way}." for way in ways]
    return lines


def _score_row(scores: _CalibrationScores) -> Row:
    return (scores.name, scores.brier, scores.log_loss, *scores.error, scores.overconfidence)


def _reliability_table(qualities: Sequence[_CalibrationScores]) -> Table:
    rows = [(quality.name, bin.low, bin.high, bin.mean, bin.hits) for quality in qualities for bin in quality.bins]
    return LAYOUTS.table("reliability", rows)


def _curve(name: str, qualities: Sequence[_CalibrationScores]) -> Lines:
    return Lines(
        **LAYOUTS.figure(name),
        diagonal=True,
        series=tuple(
            Series(name=curve.name, x=tuple(bin.mean for bin in curve.bins), y=tuple(bin.hits for bin in curve.bins))
            for curve in qualities
        ),
    )
