"""`judgelm study calibration`: errors of probabilities, and what a temperature gains."""

import numpy as np
import pytest
from scipy.special import expit

from judgelm.data.labelled_set import LabelledSet
from judgelm.errors import ConfigError, InputError
from judgelm.records import Label, Sample
from judgelm.studies.calibration import CalibrationOptions, calibration_study
from tests.support.studies import HOW, judged_pair, table


def labelled(winners, per_question):
    questions = {key: f"question {place // per_question}" for place, key in enumerate(winners)}
    samples = {key: Sample(id=key, question=question, answers=("a", "b")) for key, question in questions.items()}
    labels = {key: Label(sample_id=key, winner=winner) for key, winner in winners.items()}
    return LabelledSet(samples=samples, labels=labels, groups={})


def judged(key, probability):
    if probability == "failed":
        return judged_pair(key, None)
    return judged_pair(key, 1 if probability is None or probability > 0.5 else 2, probability=probability)


def study(probabilities, winners, *, per_question=1, **options):
    judgments = {key: judged(key, probability) for key, probability in probabilities.items()}
    return calibration_study(judgments, labelled(winners, per_question), CalibrationOptions(resampling=HOW, **options))


def too_sure(n=400):
    """Probabilities with log-odds three times what the outcomes are drawn from."""
    rng = np.random.default_rng(0)
    odds = rng.normal(0, 1, n)
    came = rng.random(n) < expit(odds)
    probabilities = {str(place): float(expit(3 * log_odds)) for place, log_odds in enumerate(odds)}
    return probabilities, {str(place): 1 if right else 2 for place, right in enumerate(came)}


def test_numbers_by_hand():
    # sure of 0.9 and right, of 0.8 (the second) and wrong: squares 0.01 and 0.64; mean confidence 0.85 less 1/2 right
    [row] = table(study({"a": 0.9, "b": 0.2}, {"a": 1, "b": 1}, fit_share=0), "scores")
    # of the bins around 0.9 and 0.2 one is off by 0.1 and one by 0.8
    values = [row[name].value for name in ("brier", "overconfidence", "error")]
    assert values == pytest.approx([0.325, 0.35, 0.45])
    # an even probability names no winner and is half right
    [row] = table(study({"a": 0.5, "b": 0.5}, {"a": 1, "b": 2}, fit_share=0), "scores")
    assert row["overconfidence"].value == 0


def test_what_takes_no_part_is_counted():
    probabilities = {"a": 0.9, "b": None, "c": "failed", "d": 0.4, "e": 0.3}
    result = study(probabilities, {"a": 1, "b": 1, "c": 2, "d": "tie", "x": 1}, fit_share=0)
    assert result.counts == {
        "judgments": 5, "labels": 5, "joined": 4, "failed": 1, "without_probability": 1, "labels_that_are_ties": 1,
        "measured": 1,
    }  # fmt: skip


def test_an_overconfident_judge_is_reported_and_rescaled_on_other_questions():
    result = study(*too_sure())
    assert "overconfident" in result.findings[0]
    [gain] = table(result, "gains")
    assert (gain["temperature"].low > 1.5, gain["log_loss"].high < 0) == (True, True)
    assert result.counts["fitted_on"] + result.counts["rest"] == result.counts["measured"] == 400
    assert gain["log_loss"].n == result.counts["rest"]
    result = study(*too_sure(60), per_question=20, fit_share=0.4)
    # three questions of twenty pairs: one to fit on, two for the rest
    assert (result.counts["fitted_on"], result.counts["rest"]) == (20, 40)


def test_without_a_best_scaling_or_a_second_question_there_is_no_gain():
    separable = study({"a": 0.9, "b": 0.8, "c": 0.1, "d": 0.2}, {"a": 1, "b": 1, "c": 2, "d": 2})
    for result, reason in ((separable, "No temperature"), (study({"a": 0.9}, {"a": 1}), "too few questions")):
        assert "gains" not in [part.name for part in result.tables]
        assert any(reason in warning for warning in result.warnings)


def test_tied_labels_and_invalid_options_are_rejected():
    with pytest.raises(InputError, match="ties"):
        study({"a": 0.7}, {"a": "tie"})
    for options in ({"fit_share": 1.0}, {"bins": 1}):
        with pytest.raises(ConfigError, match="expected"):
            CalibrationOptions(**options)
