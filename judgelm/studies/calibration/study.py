"""Calibration of a judge's probabilities, as they are and with a fitted temperature or Platt scaling.

The scalings are fitted on some of the questions and measured on the others, so that no number is of pairs that helped
to make it. A label that is a tie takes no part: neither answer is the better one (see `judgelm.studies.probability`).
"""

from collections.abc import Mapping, Sequence

import numpy as np
from sklearn.model_selection import GroupShuffleSplit

from judgelm.data.labelled_set import LabelledSet, match_labels
from judgelm.errors import InputError
from judgelm.metrics.calibration import Scaling, fit_platt, fit_temperature
from judgelm.records import Judgment
from judgelm.studies.calibration import tables
from judgelm.studies.calibration.measures import CalibrationOptions, Gain, Quality, Slice, gain, quality, slice_of
from judgelm.studies.join import JoinedPair, join
from judgelm.studies.pair_labels import TIE_THRESHOLD
from judgelm.studies.result import StudyResult
from judgelm.studies.sentences import few_pairs_sentence, format_number, format_points

FEW_PAIRS = 200
"""Below this many pairs a bin holds some twenty, and its share is known to twenty points to either side."""


def calibration_study(
    judgments: Mapping[str, Judgment], labelled: LabelledSet, options: CalibrationOptions | None = None
) -> StudyResult:
    """Reliability, calibration error, proper scores, and what a temperature and a Platt scaling do to them.

    Args:
        judgments: by sample id, with `probability`.
        labelled: labels of pairs; pairs of one question are resampled, and split, together.
        options: the defaults when None.

    Raises:
        InputError: nothing joins, judgments are of other texts than the labels, or no joined
            judgment has a probability and a label that is no tie.
    """
    options = options or CalibrationOptions()
    labelled, texts = match_labels(judgments, labelled, name="the labels")
    questions = {sample.id: sample.question for sample in labelled.samples.values()}
    rows = join(judgments, labelled.labels, {}, questions or None, "as_judged", TIE_THRESHOLD)
    used = [row for row in rows if row.judgment.probability is not None and row.truth != 0]
    if not used:
        raise _nothing_to_measure(rows)
    everything = slice_of(used)
    resampling = options.resampling
    fitted, rest = _split(everything, options)
    scalings: dict[str, Scaling | None] = {}
    if fitted is not None:
        data = (fitted.outcome, fitted.probability, fitted.clusters, resampling)
        scalings = {"temperature": fit_temperature(*data), "Platt scaling": fit_platt(*data)}
    before = quality("as judged, all pairs", everything, options)
    after = [quality("as judged, rest", rest, options)] if fitted is not None else []
    gains = []
    for name, scaling in scalings.items():
        if scaling is not None:
            after.append(quality(f"{name}, rest", rest.scaled(scaling), options))
            gains.append(gain(name, rest, rest.scaled(scaling), options))
    sides = {} if fitted is None else {"fitted_on": fitted.outcome.size, "rest": rest.outcome.size}
    groups = tables.group_numbers(used, labelled.groups, resampling)
    return StudyResult(
        study="calibration",
        title="Calibration of the judge's probabilities",
        protocol=_protocol(options),
        findings=tuple(_findings(before, scalings, gains)),
        counts=_counts(judgments, labelled, rows, used) | sides,
        tables=(
            tables.score_table([before, *after]),
            *((tables.gain_table(gains), tables.scaling_table(scalings)) if fitted is not None else ()),
            tables.reliability_table([before, *after]),
            *tables.group_tables(groups),
            tables.mistake_table(used, questions),
        ),
        figures=tuple(tables.figures(before, after, groups)),
        warnings=(
            *_warnings(before, scalings, rows, unfitted=fitted is None and options.fit_share > 0),
            *labelled.notes(),
            *texts.notes(),
        ),
    )


def _split(pairs: Slice, options: CalibrationOptions) -> tuple[Slice | None, Slice]:
    """The pairs to fit on and the rest, by question; None and all of them where nothing is to be fitted."""
    if int(options.fit_share * len(set(pairs.clusters))) < 1:
        return None, pairs
    split = GroupShuffleSplit(n_splits=1, train_size=options.fit_share, random_state=options.resampling.seed)
    [(fit, rest)] = split.split(pairs.probability, groups=np.array([str(key) for key in pairs.clusters]))
    return pairs.part(fit), pairs.part(rest)


def _nothing_to_measure(rows: Sequence[JoinedPair]) -> InputError:
    tied = sum(row.judgment.probability is not None for row in rows)
    if tied:
        return InputError(f"calibration: the labels of all {tied} judgments with a probability are ties; others needed")
    return InputError(
        f"calibration: none of {len(rows)} labelled judgments has a probability; judge again with --distribution, on "
        "an engine that gives probabilities"
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
    kind = "of equal width" if options.binning == "uniform" else "with as many pairs in each"
    fitted = "no scaling is fitted"
    if options.fit_share:
        fitted = f"scalings are fitted on {100 * options.fit_share:g} % of the questions and measured on the rest"
    return (
        f"P(first better) against labels that name a winner, in {options.bins} bins {kind}; {fitted} (seed "
        f"{options.resampling.seed}); failures and labels that are ties are left out and counted; intervals are 95 % "
        f"from {options.resampling.resamples} resamples of questions."
    )


def _findings(before: Quality, scalings: Mapping[str, Scaling | None], gains: Sequence[Gain]) -> list[str]:
    overconfidence = before.overconfidence
    side = (
        "too sure"
        if overconfidence.low > 0
        else "not sure enough"
        if overconfidence.high < 0
        else "neither too sure nor too unsure"
    )
    lines = [
        f"The judge is {side}: the mean probability of the winners it names minus the share of "
        f"pairs in which it is right is {format_points(overconfidence)}.",
        f"Its expected calibration error is {format_number(before.error.error)}; a calibrated judge with these "
        f"probabilities would show {before.error.by_chance:.3f} by chance. Brier score {format_number(before.brier)}, "
        "where always answering 0.5 has 0.250.",
    ]
    cold = scalings.get("temperature")
    if cold is not None and cold.temperature is not None:
        lines.append(f"The best temperature is {format_number(cold.temperature, '.2f')}; above 1 means too sure.")
    for scaled in gains:
        verdict = (
            "lowers" if scaled.log_loss.high < 0 else "raises" if scaled.log_loss.low > 0 else "does not clearly change"
        )
        lines.append(f"On the rest the {scaled.name} {verdict} the log loss: {format_number(scaled.log_loss, '+.3f')}.")
    return lines


def _warnings(
    before: Quality, scalings: Mapping[str, Scaling | None], rows: Sequence[JoinedPair], *, unfitted: bool
) -> list[str]:
    lines, n = [], before.brier.n
    if n < FEW_PAIRS:
        lines.append(few_pairs_sentence(n))
    if unfitted:
        lines.append(
            "There are too few questions to fit a scaling on some and measure it on others, so none is fitted."
        )
    for name, scaling in scalings.items():
        if scaling is None:
            lines.append(
                f"No {name} fits best on the pairs it was to be fitted on (see the note there), so none is used."
            )
    rough = {shown.distribution.approximation for row in rows for shown in row.judgment.shown if shown.distribution}
    lines += [f"Some probabilities are not exact: {why}." for why in sorted(rough - {""})]
    return lines
