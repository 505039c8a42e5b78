import re
from collections import Counter
from functools import cache
from itertools import islice

import pytest

from benchmarks.synthetic.pairs import generate
from benchmarks.synthetic.questions import FACTS, is_held_out


@cache
def rows(split):
    return tuple(generate(4000, seed=3, split=split))


def label(scores):
    return (scores[0] > scores[1]) - (scores[0] < scores[1])


def test_a_row_depends_on_seed_and_index_and_not_on_how_many_were_asked_for():
    fifty = list(generate(50, seed=1, split="train"))
    assert list(islice(generate(10**12, seed=1, split="train", start=40), 10)) == fifty[40:]
    assert list(generate(50, seed=2, split="train")) != fifty


@pytest.mark.parametrize(("split", "held_out"), [("train", False), ("validation", True)])
def test_the_side_of_a_question_is_a_property_of_its_text(split, held_out):
    assert all(is_held_out(row["question_body"]) is held_out for row in rows(split))


def test_both_sides_know_the_same_facts():
    """A fact held out in one phrasing is taught in another, so validation asks for nothing untaught."""

    def asked(split):
        texts = [row["question_body"] for row in rows(split) if row["metadata"]["kind"] == "fact"]
        return {key for key in FACTS for text in texts if set(key) <= set(re.findall(r"\w+", text))}

    assert len(asked("validation")) > 10
    assert asked("validation") <= asked("train")


@pytest.mark.parametrize("score", ["score", "score_w_reference"])
@pytest.mark.parametrize("split", ["train", "validation"])
def test_no_label_is_common_and_ties_are_neither_rare_nor_frequent(split, score):
    shares = Counter(label(row[score]) for row in rows(split))
    assert max(shares.values()) / 4000 < 0.45
    assert 0.10 < shares[0] / 4000 < 0.25


@pytest.mark.parametrize(("score", "text"), [("score", "text"), ("score_w_reference", "text_w_reference")])
def test_the_text_is_the_score_line_and_a_reason_that_ends_in_their_winner(score, text):
    for row in rows("train"):
        line, reason = row[text].split("\n")
        assert line == f"{row[score][0]} {row[score][1]}"
        assert "Assistant 1" in reason
        assert "Assistant 2" in reason
        verdict = reason.split(". ")[-1]
        winner = {1: "Assistant 1 is ", -1: "Assistant 2 is ", 0: "Assistant 1 and Assistant 2 are equally "}
        assert verdict.startswith(winner[label(row[score])])


def test_only_the_reference_decides_a_reference_fact():
    pairs = [r for r in rows("train") if set(r["metadata"]["vices"]) == {"correct", "wrong"}]
    unknown = [r for r in pairs if r["metadata"]["kind"] == "reference_fact"]
    # 7 against 7 without a reference, and noise moves each by at most one; 9 against 2 with it.
    assert all(abs(r["score"][0] - r["score"][1]) <= 2 for r in unknown)
    assert all(abs(r["score_w_reference"][0] - r["score_w_reference"][1]) >= 5 for r in unknown)
    known = [r for r in pairs if r["metadata"]["kind"] == "fact"]
    assert all(abs(r["score"][0] - r["score"][1]) >= 5 for r in known)


def test_a_wrong_answer_is_never_the_right_one():
    for row in rows("train"):
        for place, vice in enumerate(row["metadata"]["vices"], 1):
            if vice == "wrong":
                assert row[f"answer{place}_body"].strip(".") != row["reference"]["text"]
