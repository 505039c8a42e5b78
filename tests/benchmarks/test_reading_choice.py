"""The reading choice's own pairs, its prompts, and its figures."""

import json
import math

import pytest

from benchmarks.reading_choice.report import READINGS, hits
from benchmarks.reading_choice.sets import EVERYDAY, own_pairs
from benchmarks.reading_choice.wordings import WORDINGS
from benchmarks.reading_training.pairs import Pair


def pair(name: str, label: float = 1.0) -> Pair:
    return Pair(id=name, question="q?", answers=("good", "bad"), label=label, family="own", kind="facts", split="dev")


def test_own_pairs_are_distinct_balanced_by_place_and_not_the_everyday_ones():
    pairs = own_pairs()
    questions = {pair.question for pair in pairs}
    everyday = {json.loads(line)["question"] for line in EVERYDAY.read_text(encoding="utf-8").splitlines()}
    assert len(questions) == len({pair.id for pair in pairs}) == len(pairs) >= 240
    assert not questions & everyday
    first = sum(pair.label == 1 for pair in pairs)
    assert abs(2 * first - len(pairs)) <= 4
    longer_is_worse = sum(pair.longer_is_better is False for pair in pairs)
    assert 0.45 < longer_is_worse / len(pairs) < 0.65


def test_a_prompt_marks_what_is_untrusted_and_asks_last():
    first, second = (request.prompt for request in WORDINGS["yes-no"].requests(pair("1")))
    assert [span.text for span in first.spans if span.kind == "answer"] == ["good"]
    assert [span.text for span in second.spans if span.kind == "answer"] == ["bad"]
    assert [span.text for span in first.spans if span.kind == "question"] == ["q?"]
    assert first.spans[-1].text.endswith("Reply with Yes or No alone.")


def test_letters_show_both_orders():
    shown = [
        [span.text for span in request.prompt.spans if span.kind == "answer"]
        for request in WORDINGS["letters"].requests(pair("1"))
    ]
    assert shown == [["good", "bad"], ["bad", "good"]]


def test_spellings_of_a_word_are_added():
    # 3 cases with and without a blank: Yes 6 x 0.1, No 6 x 0.05
    logprobs = [math.log(0.1)] * 6 + [math.log(0.05)] * 6
    words = WORDINGS["yes-no"].word_logprobs(logprobs)
    assert [math.exp(word) for word in words] == pytest.approx([0.6, 0.3])
    assert WORDINGS["yes-no"].value(words) == pytest.approx(math.log(2))
    assert WORDINGS["wrong"].value(words) == pytest.approx(math.log(2))  # its first word is No


def test_a_grade_is_the_logit_of_the_mean_grade():
    # 5 alone: mean 5 of 1 to 9 is the middle; 8 and 9 in equal parts: 8.5 / 10, logit log(0.85 / 0.15)
    middle = [0.0 if grade == 5 else -math.inf for grade in range(1, 10)]
    high = [math.log(0.5) if grade >= 8 else -math.inf for grade in range(1, 10)]
    assert WORDINGS["grade"].value(middle) == pytest.approx(0)
    assert WORDINGS["grade"].value(high) == pytest.approx(math.log(0.85 / 0.15))


def test_added_log_odds_can_outvote_one_wording():
    # correct favours the second answer by 1, limits the first by 3, safe is undecided: 2 for the first
    values = {"correct": [1.0, 2.0], "limits": [2.0, -1.0], "safe": [3.0, 3.0]}
    assert READINGS["correct"].value(values) == -1
    assert READINGS["correct + limits + safe"].value(values) == 2


def test_a_value_of_zero_is_half_a_hit():
    pairs = [pair("a"), pair("b", label=0.0), pair("c")]
    assert hits(pairs, {"a": 0.5, "b": 0.5, "c": 0.0}).tolist() == [1.0, 0.0, 0.5]
