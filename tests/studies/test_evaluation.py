"""Agreement with labels: failures, orders, groups, scores of probabilities, and the control of style."""

import math
import re
from dataclasses import replace

import numpy as np
import pytest
from sklearn.metrics import brier_score_loss, log_loss

from judgelm.errors import InputError
from judgelm.records import Judgment, Label, PairVerdict, Sample, Shown, Unparsed
from judgelm.studies.evaluation import EvaluationOptions, evaluate
from judgelm.studies.pair_metrics import proper_losses
from judgelm.studies.style_control import controlled_agreement
from tests.support.studies import both_orders, judged_pair

WINNERS = {1: 1, 0: "tie", -1: 2}


def sign(first, second):
    return WINNERS[(first > second) - (first < second)]


def once(key, first, second, **fields):
    shown = (Shown(order=(0, 1), text=f"{first} {second}", scores=(first, second)),)
    return judged_pair(key, sign(first, second), shown=shown, scores=(first, second), **fields)


def twice(key, given, swapped):
    """`swapped` in the order shown: its first score belongs to answer 2."""
    mean = ((given[0] + swapped[1]) / 2, (given[1] + swapped[0]) / 2)
    return both_orders(key, given, swapped, sign(*mean), scores=mean)


def failed(key, code="off_grammar", orders=((0, 1),)):
    failure = Unparsed(code, "I cannot say")
    shown = tuple(Shown(order=order, text="I cannot say", failure=failure) for order in orders)
    return replace(judged_pair(key, None, shown=shown), failure=failure)


def labels(**winners):
    return {key: Label(sample_id=key, winner=winner) for key, winner in winners.items()}


def test_both_failure_treatments_are_computed():
    result = evaluate([once("a", 8, 3), once("b", 2, 9), failed("c"), failed("d")], labels(a=1, b=1, c="tie", d=2))
    # without c and d: 1 of 2; as ties c is right by luck: 2 of 4
    assert (result.excluded.accuracy.value, result.excluded.n) == (0.5, 2)
    assert (result.as_tie.accuracy.value, result.as_tie.n) == (0.5, 4)
    assert result.as_tie.confusion == ((1, 0, 1), (0, 1, 0), (0, 1, 0))
    assert (result.failure_codes, result.failed) == ({"off_grammar": 2}, ("c", "d"))
    assert result.headline is result.excluded
    result = evaluate([failed("a")], labels(a=1))
    assert (result.excluded, result.headline, result.scores, result.as_tie.accuracy.value) == (None, None, None, 0)


def test_labelled_ties_are_left_out_of_the_agreement_over_pairs_with_a_winner():
    judged = [once("a", 8, 3), once("b", 5, 5), once("c", 8, 3), once("d", 2, 9)]
    metrics = evaluate(judged, labels(a=1, b="tie", c="tie", d=1)).excluded
    # a and b right: 2 of 4; of a and d, which have a winner, a: 1 of 2
    assert (metrics.accuracy.value, metrics.decided.value, metrics.decided.n) == (0.5, 0.5, 2)
    assert evaluate([once("a", 8, 3)], labels(a="tie")).excluded.decided is None


@pytest.mark.parametrize(
    ("judgments", "label", "finding"),
    [
        ([once("x", 8, 3)], Label(sample_id="a", winner=1), "'x' and 'a'"),
        ([once("a", 8, 3)] * 2, Label(sample_id="a", winner=1), "a has two judgments"),
        ([once("a", 8, 3)], Label(sample_id="a", winner=None, scores=(8, 6, 5)), "got scores for 3 answers"),
    ],
)
def test_what_cannot_be_joined_is_an_error(judgments, label, finding):
    with pytest.raises(InputError, match=finding):
        evaluate(judgments, {"a": label})


def test_baseline_answers_the_most_frequent_label():
    result = evaluate([once(key, 8, 3) for key in "abcd"], labels(a=2, b=2, c=2, d=1)).excluded
    assert (result.majority_label, result.majority.value) == (2, 0.75)
    # the judge always says 1: 1/4 - 3/4
    assert result.gain.value == -0.5


def test_position_bias_of_both_orders():
    judged = [
        twice("a", (8, 3), (3, 8)),  # answer 1 both times
        twice("b", (8, 3), (8, 3)),  # whoever stands first
        twice("c", (3, 8), (5, 5)),  # answer 2, then tie: lost when first, tied when second
        twice("d", (5, 5), (5, 5)),
    ]
    result = evaluate(judged, labels(a=1, b=1, c=2, d="tie"))
    position = result.excluded.position
    values = [getattr(position, name).value for name in ("consistency", "toward_first", "toward_second", "delta")]
    assert (values, result.flips) == ([0.5, 0.25, 0.25, 0], ("b", "c"))


@pytest.mark.parametrize("failure", [failed("b", orders=((0, 1), (1, 0))), failed("b", "too_long")])
def test_two_failed_orders_or_a_failure_before_them_are_consistent_only_as_ties(failure):
    result = evaluate([twice("a", (8, 3), (8, 3)), failure], labels(a=1, b=1))
    shares = [metrics.position.consistency for metrics in (result.excluded, result.as_tie)]
    assert [(share.value, share.n) for share in shares] == [(0, 1), (0.5, 2)]
    assert result.counts.failed_orders == 2


def test_repaired_judgments_reasons_and_scores_read_anywhere_are_counted():
    plain = once("a", 8, 6)
    shown = replace(plain.shown[0], repaired=Unparsed("off_grammar", "x"), reason="y")
    counts = evaluate([plain, replace(plain, sample_id="b", shown=(shown,))], labels(a=1, b=1)).counts
    assert (counts.judged, counts.repaired, counts.reasons) == (2, 1, 1)


def test_second_order_from_a_file_of_its_own():
    reverse = {"a": once("a", 3, 8), "b": once("b", 8, 3)}
    result = evaluate([once("a", 8, 3), once("b", 8, 3)], labels(a=1, b=2), reverse=reverse)
    # a is steady, b goes to whoever stands first; accuracy is by the order given alone
    assert (result.excluded.position.toward_first.value, result.excluded.accuracy.value) == (0.5, 0.5)
    assert "second file" in result.protocol


def test_a_judge_that_always_says_8_6_is_measured_in_the_given_order():
    # ten pairs, the first better in one: the given order agrees in 1 of 10, the mean (7 : 7) is a tie and never does
    judged = [twice(str(i), (8, 6), (8, 6)) for i in range(10)]
    truth = {str(i): Label(sample_id=str(i), winner=1 if i == 0 else 2) for i in range(10)}
    result = evaluate(judged, truth)
    assert (result.order_rule, result.agreement_name) == ("given", "agreement, given order")
    assert (result.excluded.accuracy.value, result.other_rules["mean"].excluded.value) == (0.1, 0.0)
    assert (result.excluded.position.consistency.value, result.excluded.position.toward_first.value) == (0, 1)
    assert "verdicts are from the given order" in result.protocol
    assert {pair.scores for pair in result.disagreements} == {(8, 6)}


def test_labels_instead_of_scores_keep_the_verdict_of_both_orders():
    # a judge in PandaLM's protocol: the first place each time, which its run made a tie
    shown = tuple(Shown(order=order, text="1", label="1") for order in ((0, 1), (1, 0)))
    judged = Judgment(sample_id="a", mode="released", verdict=PairVerdict(winner="tie"), shown=shown)
    result = evaluate([judged], labels(a=1))
    assert (result.order_rule, result.other_rules, result.excluded.accuracy.value) == ("as_judged", {}, 0)


def test_groups_hold_n_failures_and_majority_share():
    judged = [once("a", 8, 3), once("b", 8, 3), once("c", 8, 3), failed("d")]
    groups = {"kind": {"a": "math", "b": "math", "d": "math"}}
    rows = evaluate(judged, labels(a=1, b=2, c=1, d=1), groups=groups).groups["kind"]
    values = [(row.value, row.n, row.failed, row.accuracy.value, row.majority_share) for row in rows]
    assert values == [("math", 2, 1, 0.5, 0.5), ("not given", 1, 0, 1.0, 1.0)]


def test_scores_are_counted_by_place():
    scores = evaluate([twice("a", (8, 3), (4, 8))], labels(a=1)).scores
    # place 1: 8 and 4, place 2: 3 and 8; bins around 3, 4, ..., 8
    assert scores.edges == (2.5, 3.5, 4.5, 5.5, 6.5, 7.5, 8.5)
    assert (scores.first, scores.second) == ((0, 1, 0, 0, 0, 1), (1, 0, 0, 0, 0, 1))
    assert (scores.mean_first, scores.mean_second) == (6, 5.5)


def test_pairs_of_one_question_are_resampled_together():
    judged = [once(str(i), 8, 3, probability=0.9) for i in range(40)]
    truth = {str(i): Label(sample_id=str(i), winner=1 if i < 20 else 2) for i in range(40)}
    clusters = {str(i): i // 10 for i in range(40)}
    alone, together = (evaluate(judged, truth, clusters=given) for given in (None, clusters))
    # four questions, two all right and two all wrong: a resample of four gives 0 or 1 in 1 of 16 cases each
    assert (together.excluded.accuracy.low, together.excluded.accuracy.high) == (0, 1)
    assert 0.2 < alone.excluded.accuracy.low < alone.excluded.accuracy.high < 0.8
    # a probability of 0.9 has a Brier score of 0.01 where it is right and 0.81 where it is wrong
    brier = together.probabilities.brier
    assert (brier.low, brier.high) == pytest.approx((0.01, 0.81))


def test_protocol_names_scale_and_failures():
    options = EvaluationOptions(failures="as_tie", scale="1-10")
    protocol = evaluate([once("a", 8, 3)], labels(a=1), options=options).protocol
    assert re.fullmatch(r"Each pair was judged in one order\..*count as ties.* 1-10\.", protocol)


def scores_of(probabilities, winners):
    judgments = [judged_pair(str(i), 1, probability=probability) for i, probability in enumerate(probabilities)]
    labels = {str(i): Label(sample_id=str(i), winner=winner) for i, winner in enumerate(winners)}
    return evaluate(judgments, labels).probabilities


def test_scores_of_probabilities_by_hand():
    # 0.8 for what is so: 0.04 and -ln 0.8; 0.6 for what is not: 0.36 and -ln 0.4
    result = scores_of([0.8, 0.6], [1, 2])
    assert (result.n, result.brier.n, result.brier.value) == (2, 2, pytest.approx(0.2))
    assert result.log_loss.value == pytest.approx(-(math.log(0.8) + math.log(0.4)) / 2)
    assert result.brier.low <= result.brier.value <= result.brier.high


def test_ties_among_the_labels_and_missing_probabilities_are_left_out_and_counted():
    result = scores_of([0.8, 0.5, None, 0.9], [1, "tie", 1, 1])
    assert (result.n, result.tied_labels, result.without) == (2, 1, 1)
    assert result.brier.value == pytest.approx((0.04 + 0.01) / 2)
    # only tied labels, and no probability
    result = scores_of([0.5], ["tie"])
    assert (result.n, result.brier, result.log_loss) == (0, None, None)
    assert scores_of([None, None], [1, 2]) is None


def test_the_means_are_scikit_learns():
    rng = np.random.default_rng(0)
    truth, probability = rng.random(200) < 0.5, rng.random(200)
    probability[:2] = (0.0, 1.0)
    truth[:2] = (True, False)  # certain, and wrong
    known = [brier_score_loss(truth, probability), log_loss(truth, probability)]
    assert proper_losses(truth, probability).mean(axis=0) == pytest.approx(known)


def judged_by_length(n=200, soft=True):
    """The labels say 1 in turn; the judge agrees a little, and is moved by length a lot."""
    generator = np.random.default_rng(0)
    judgments, labels, samples = {}, {}, {}
    for index in range(n):
        key, winner = str(index), 1 + index % 2
        words = generator.integers(1, 60, size=2)
        lead = 0.15 * (3 - 2 * winner) + 0.3 * np.tanh((words[0] - words[1]) / 25)
        probability = float(np.clip(0.5 + lead + generator.normal(0, 0.02), 0, 1))
        judgments[key] = judged_pair(key, 1 if probability > 0.5 else 2, probability=probability if soft else None)
        labels[key] = Label(sample_id=key, winner=winner)
        samples[key] = Sample(id=key, question=key, answers=("w " * words[0], "w " * words[1]))
    return judgments, labels, samples


def control(judgments, labels, samples, name="length"):
    evaluation = evaluate(judgments, labels)
    return controlled_agreement(judgments, labels, samples, evaluation, control=name, options=EvaluationOptions())


def test_without_length_the_judge_agrees_more():
    result = control(*judged_by_length())
    assert result.difference.low > 0.1
    assert result.controlled.value == pytest.approx(result.plain.value + result.difference.value)
    assert (result.n, result.soft) == (200, True)
    [term] = result.terms
    assert (term.judge.low > 0.5, term.labels.low < 0 < term.labels.high) == (True, True)
    more = control(*judged_by_length(), name="length,style")
    assert more.constant == ("headers", "list items", "bold")
    assert "No pair differs in headers, list items, bold." in more.sentence()
    # hard verdicts change only where style outweighs them
    result = control(*judged_by_length(soft=False))
    assert (result.soft, "based on verdicts" in result.sentence(), 0 <= result.changed < 200) == (False, True, True)


def test_pairs_without_answers_are_counted_and_too_few_have_no_fit():
    judgments, labels, samples = judged_by_length(40)
    result = control(judgments, labels, {key: samples[key] for key in list(samples)[:30]})
    assert (result.n, result.without_answers) == (30, 10)
    with pytest.raises(InputError, match="answers of only 0 of 40 judged pairs"):
        control(judgments, labels, {})
    # too few for a fit
    result = control(*judged_by_length(6))
    assert (result.controlled, result.difference) == ("6 pairs are too few (minimum: 10)", None)
    assert "6 pairs are too few" in result.sentence()
