"""Agreement of verdicts controlled for style, on pairs whose judge prefers length and whose labels do not."""

import numpy as np
import pytest

from judgelm.errors import InputError
from judgelm.records import Label, Sample
from judgelm.studies.evaluation import EvaluationOptions, evaluate
from judgelm.studies.style_control import controlled_agreement
from tests.support.studies import judged_pair


def judged(n=200, soft=True):
    """The labels say 1 in turn; the judge agrees a little, and is moved by length a lot."""
    generator = np.random.default_rng(0)
    judgments, labels, samples = {}, {}, {}
    for index in range(n):
        key, winner = str(index), 1 + index % 2
        words = generator.integers(1, 60, size=2)
        lead = 0.15 * (1 if winner == 1 else -1) + 0.3 * np.tanh((words[0] - words[1]) / 25)
        probability = float(np.clip(0.5 + lead + generator.normal(0, 0.02), 0, 1))
        judgments[key] = judged_pair(key, 1 if probability > 0.5 else 2, probability=probability if soft else None)
        labels[key] = Label(sample_id=key, winner=winner)
        samples[key] = Sample(id=key, question=key, answers=("w " * words[0], "w " * words[1]))
    return judgments, labels, samples


def control(judgments, labels, samples, name="length"):
    options = EvaluationOptions()
    evaluation = evaluate(judgments, labels, options=options)
    return controlled_agreement(judgments, labels, samples, evaluation, control=name, options=options)


def test_without_length_the_judge_agrees_more():
    result = control(*judged())
    assert result.difference.low > 0.1
    assert result.controlled.value == pytest.approx(result.plain.value + result.difference.value)
    assert (result.n, result.soft) == (200, True)
    [term] = result.terms
    assert term.judge.low > 0.5
    assert term.labels.low < 0 < term.labels.high
    more = control(*judged(), name="length,style")
    assert more.constant == ("headers", "list items", "bold")
    assert "No pair differs in headers, list items, bold." in more.sentence()


def test_hard_verdicts_change_only_where_style_outweighs_them():
    result = control(*judged(soft=False))
    assert not result.soft
    assert "from verdicts" in result.sentence()
    assert 0 <= result.changed < 200


def test_pairs_without_answers_are_counted_and_none_is_an_error():
    judgments, labels, samples = judged(40)
    result = control(judgments, labels, {key: samples[key] for key in list(samples)[:30]})
    assert (result.n, result.without_answers) == (30, 10)
    with pytest.raises(InputError, match="answers of only 0 of 40 judged pairs"):
        control(judgments, labels, {})


def test_without_a_fit_the_reason_stands():
    result = control(*judged(6))
    assert result.controlled == "6 pairs are too few (minimum: 10)"
    assert result.difference is None
    assert "6 pairs are too few" in result.sentence()
