"""A win rate from a run and labels on some of its pairs: sides, ties, failures, control, the number of labels."""

import pytest

from judgelm.errors import InputError
from judgelm.metrics.resampling import Estimate
from judgelm.records import Label, Sample
from judgelm.studies.claim import ClaimOptions, claim_sentences, claim_win_rate
from tests.support.studies import judged_pair


def sample(key, models=("a", "b"), answers=("x", "y")):
    return Sample(id=key, question=f"q{key}", answers=answers, answer_models=models)


def run(winners, probabilities=None):
    rows = enumerate(zip(winners, probabilities or [None] * len(winners), strict=True))
    judged = {str(key): judged_pair(str(key), winner, probability=probability) for key, (winner, probability) in rows}
    return judged, {key: sample(key) for key in judged}


def labels(winners):
    return {str(index): Label(sample_id=str(index), winner=winner) for index, winner in enumerate(winners)}


def test_wins_are_those_of_the_model_at_whichever_place_it_stands():
    judged, samples = run([1, 2, "tie", 2])
    samples |= {key: sample(key, ("b", "a")) for key in ("2", "3")}
    claim = claim_win_rate(judged, {}, samples, ClaimOptions(model="b"))
    # b stands second twice, then first: loss, win, tie, loss
    assert (claim.estimates.judge.value, claim.model, claim.opponent) == (1.5 / 4, "b", "a")
    assert claim_win_rate(judged, {}, samples).model == "a"


def test_failures_are_left_out_and_counted_with_their_labels():
    judged, samples = run([1, 2] * 10 + [None] * 4)
    claim = claim_win_rate(judged, labels([1, 2] * 6 + [1] * 10), samples)
    counts = claim.counts
    assert (counts.failed, counts.used, counts.labels, counts.labels_of_failed) == (4, 20, 20, 2)
    assert "4 judgments failed and are excluded (2 of them labelled)" in claim.warnings[0]
    judged, samples = run([None] * 3)
    with pytest.raises(InputError, match="none of the 3 judgments has a verdict"):
        claim_win_rate(judged, {}, samples)


def test_probabilities_are_used_where_each_verdict_has_one():
    judged, samples = run([1, 2] * 10, probabilities=[0.9, 0.3] * 10)
    claim = claim_win_rate(judged, labels([1, 2] * 6), samples)
    assert (claim.soft, claim.estimates.judge.value) == (True, pytest.approx(0.6))
    judged["0"] = judged_pair("0", 1)
    assert claim_win_rate(judged, {}, samples).estimates.judge.value == 0.5


def test_several_models_require_a_choice():
    judged, samples = run([1] * 12)
    samples |= {str(index): sample(str(index), ("a", "c")) for index in range(6)}
    claim = claim_win_rate(judged, {}, samples, ClaimOptions(model="a", against="c"))
    assert (claim.counts.used, claim.counts.other_models, claim.opponent) == (6, 6, "c")
    assert claim_win_rate(judged, {}, samples, ClaimOptions(model="a")).opponent is None
    unknown, never = {"model": "z"}, {"model": "b", "against": "c"}
    for options, finding in (({}, r"3 models.*--model \(a, c, b\)"), (unknown, "z.*a, c, b"), (never, "b with c")):
        with pytest.raises(InputError, match=finding):
            claim_win_rate(judged, {}, samples, ClaimOptions(**options))


def test_without_models_names_the_first_answer_is_meant():
    judged, _ = run([1, 1, 2])
    claim = claim_win_rate(judged, {}, {})
    assert (claim.model, claim.estimates.judge.value) == ("answer 1", pytest.approx(2 / 3))
    with pytest.raises(InputError, match="have no model names"):
        claim_win_rate(judged, {}, {}, ClaimOptions(model="a"))


def test_the_control_is_fitted_on_all_pairs_and_takes_length_out():
    winners, samples, judged = [], {}, {}
    for index in range(200):
        longer = index % 4 != 0  # the judge likes the longer answer, four times of five; a is longer in three of four
        answers = ("w " * (30 if longer else 10), "w " * (10 if longer else 30))
        winners.append(1 if longer == (index % 5 != 0) else 2)
        samples[str(index)] = sample(str(index), answers=answers)
        judged[str(index)] = judged_pair(str(index), winners[-1])
    claim = claim_win_rate(judged, labels(winners[:40]), samples, ClaimOptions(control="length"))
    assert claim.uncontrolled.value == pytest.approx(0.65)
    assert claim.estimates.judge.value == pytest.approx(0.5, abs=0.01)
    assert claim.control.terms["length"].low > 0
    assert [name.partition(", ")[2] for name, _ in claim.rows()[:2]] == ["not controlled", "controlled"]
    assert "adjusted" not in claim.to_json()["control"]
    with pytest.raises(InputError, match=r"pair 0 has no answers.*--samples"):
        claim_win_rate(judged, {}, {"0": sample("0", answers=())}, ClaimOptions(control="length"))


def test_the_sentences_name_the_labels_needed_and_the_basis_or_the_reason():
    judged, samples = run([1, 2] * 200)
    claim = claim_win_rate(judged, labels([1, 2, 2, 2] * 15), samples, ClaimOptions(width=0.2))
    assert 50 < claim.labels_needed < 120
    assert f"20 points wide requires about {claim.labels_needed} labels" in claim_sentences(claim)[1]
    narrow = claim_win_rate(judged, labels([1, 2, 2, 2] * 15), samples, ClaimOptions(width=0.001))
    assert "judge more pairs" in narrow.labels_needed
    assert "at least 10 labels" in claim_win_rate(judged, labels([1]), samples, ClaimOptions(width=0.2)).labels_needed
    judged, samples = run([1, 2] * 40)
    claim = claim_win_rate(judged, labels([1, 2] * 10), samples)
    assert isinstance(claim.estimates.ppi, Estimate)
    assert claim_sentences(claim)[0].endswith("by PPI++ from 20 labels and 80 judged pairs.")
    few = claim_sentences(claim_win_rate(judged, labels([1]), samples))[0]
    assert few.endswith("from 1 labels and 80 judged pairs: 1 labels are too few (minimum: 10).")
