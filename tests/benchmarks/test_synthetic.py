import random
import re
from collections import Counter
from functools import cache
from itertools import islice

import pytest

from benchmarks.synthetic.generators import GENERATORS, VICES, SimulatedAnswer
from benchmarks.synthetic.pairs import generate
from benchmarks.synthetic.questions import FACTS, KINDS, Question, is_held_out
from benchmarks.synthetic.teacher import find, noiseless_score, review
from judgelm.errors import ConfigError

CONDITIONS = [("score", "text"), ("score_w_reference", "text_w_reference")]


@cache
def rows(split):
    return tuple(generate(4000, seed=3, split=split))


def label(scores):
    return (scores[0] > scores[1]) - (scores[0] < scores[1])


def fact(*, kind="fact", parts=("jade",)):
    return Question(kind=kind, text="q", parts=parts, pool=("jade", "opal"))


def written(vice, *, right=False):
    return SimulatedAnswer(text="x", vice=vice, right=right)


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


def test_a_row_is_a_judgelm_training_row():
    row = rows("train")[0]
    assert " ".join(row) == (
        "question_id question_body answer1_body answer2_body answer1_model_id answer2_model_id answer1_metadata "
        "answer2_metadata score text reference score_w_reference text_w_reference metadata"
    )
    ids = [row["question_id"] for split in ("train", "validation") for row in rows(split)]
    assert len(ids) == len(set(ids))
    assert set(row["answer1_metadata"]) == set(row["answer2_metadata"]) == {"decoding_method"}
    assert set(row["reference"]) == {"text", "model"}
    assert set(row["metadata"]) == {"kind", "vices"}


def test_two_different_answerers_answer_each_question():
    assert all(row["answer1_model_id"] != row["answer2_model_id"] for row in rows("train"))
    assert {row["answer1_model_id"] for row in rows("train")} == {who.model_id for who in GENERATORS}


@pytest.mark.parametrize("split", ["train", "validation"])
def test_every_kind_and_every_vice_occurs(split):
    assert {row["metadata"]["kind"] for row in rows(split)} == set(KINDS)
    assert {vice for row in rows(split) for vice in row["metadata"]["vices"]} == set(VICES)


@pytest.mark.parametrize(("score", "text"), CONDITIONS)
def test_scores_are_integers_from_one_to_ten(score, text):
    values = {(value, type(value)) for row in rows("train") for value in row[score]}
    assert values == {(value, int) for value in range(1, 11)}


@pytest.mark.parametrize(("score", "text"), CONDITIONS)
@pytest.mark.parametrize("split", ["train", "validation"])
def test_no_label_is_common_and_ties_are_neither_rare_nor_frequent(split, score, text):
    shares = Counter(label(row[score]) for row in rows(split))
    assert max(shares.values()) / 4000 < 0.45
    assert 0.10 < shares[0] / 4000 < 0.25


@pytest.mark.parametrize(("score", "text"), CONDITIONS)
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


def test_the_reference_is_the_answer_of_the_fact_table_or_the_sum():
    sums = 0
    for row in rows("validation"):
        if row["metadata"]["kind"] == "fact":
            words = set(re.findall(r"\w+", row["question_body"]))
            [value] = [FACTS[key] for key in FACTS if set(key) <= words]
            assert row["reference"]["text"] == value
        if re.search(r"\d (plus|\+|and) \d", row["question_body"]):
            sums += 1
            assert int(row["reference"]["text"]) == sum(map(int, re.findall(r"\d+", row["question_body"])))
    assert sums > 100


def test_a_wrong_answer_is_never_the_right_one():
    for row in rows("train"):
        for place, vice in enumerate(row["metadata"]["vices"], 1):
            if vice == "wrong":
                assert row[f"answer{place}_body"].strip(".") != row["reference"]["text"]


@pytest.mark.parametrize(
    ("question", "vice", "with_reference", "finding"),
    [
        (fact(parts=("a", "b")), "truncated", True, "cut"),  # a part of a list says something
        (fact(), "truncated", True, "stump"),
        (fact(kind="reference_fact"), "correct", False, "plausible"),  # without the reference both may be right
        (fact(kind="reference_fact"), "wrong", False, "plausible"),
    ],
)
def test_what_the_teacher_finds(question, vice, with_reference, finding):
    assert find(question, written(vice), with_reference=with_reference) == finding


@pytest.mark.parametrize(
    ("kind", "vice", "score"), [("fact", "correct", 9), ("fact", "rambling", 7), ("format", "rambling", 4)]
)
def test_a_right_answer_that_rambles_gets_fewer_points_and_where_a_form_was_asked_for_fewer_still(kind, vice, score):
    asked = fact(kind=kind)
    assert noiseless_score(asked, find(asked, written(vice, right=True), with_reference=True)) == score


def test_noise_moves_a_score_by_one_point_at_most_and_seldom():
    pair = (written("correct", right=True), written("empty"))
    rng = random.Random(0)
    moves = Counter(review(fact(), pair, rng, with_reference=True).scores[0] - 9 for _ in range(2000))
    assert set(moves) == {-1, 0, 1}
    assert 0.02 < 1 - moves[0] / 2000 < 0.12


@pytest.mark.parametrize("wrong", [{"split": "test"}, {"seed": -1}, {"n": -1}, {"start": -1}])
def test_an_impossible_request_is_refused_at_once(wrong):
    with pytest.raises(ConfigError):
        generate(**({"n": 1, "seed": 0, "split": "train"} | wrong))


def test_a_guessing_teacher_believes_or_not_what_only_the_reference_decides_and_nothing_else():
    plain, guessed = (list(generate(600, seed=5, split="train", guessing=guessing)) for guessing in (False, True))
    believed = []
    for one, other in zip(plain, guessed, strict=True):
        assert one["answer1_body"] == other["answer1_body"]
        assert max(abs(a - b) for a, b in zip(one["score_w_reference"], other["score_w_reference"], strict=True)) <= 2
        if one["metadata"]["kind"] != "reference_fact":
            assert one == other
        elif one["metadata"]["vices"][0] in ("correct", "wrong"):
            believed.append(other["score"][0] > 5)
    assert 0.35 < sum(believed) / len(believed) < 0.65
