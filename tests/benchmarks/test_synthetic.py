import random
import re
import subprocess
import sys
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


def test_the_same_seed_and_split_give_the_same_rows():
    assert list(generate(50, seed=1, split="train")) == list(generate(50, seed=1, split="train"))


def test_a_row_depends_on_its_index_and_not_on_how_many_were_asked_for():
    assert list(generate(10, seed=1, split="train", start=40)) == list(generate(50, seed=1, split="train"))[40:]


def test_another_seed_gives_other_rows():
    questions = [[row["question_body"] for row in generate(20, seed=seed, split="train")] for seed in (1, 2)]
    assert questions[0] != questions[1]


def test_rows_are_streamed():
    assert len(list(islice(generate(10**12, seed=0, split="train"), 3))) == 3


def test_no_question_stands_on_both_sides_of_the_split():
    assert not {r["question_body"] for r in rows("train")} & {r["question_body"] for r in rows("validation")}


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
    assert list(row) == [
        *("question_id", "question_body", "answer1_body", "answer2_body", "answer1_model_id", "answer2_model_id"),
        *("answer1_metadata", "answer2_metadata", "score", "text", "reference", "score_w_reference"),
        *("text_w_reference", "metadata"),
    ]
    assert set(row["answer1_metadata"]) == set(row["answer2_metadata"]) == {"decoding_method"}
    assert set(row["reference"]) == {"text", "model"}
    assert set(row["metadata"]) == {"kind", "vices"}


def test_ids_are_unique_across_splits():
    ids = [row["question_id"] for split in ("train", "validation") for row in rows(split)]
    assert len(ids) == len(set(ids))


def test_two_different_answerers_answer_each_question():
    assert all(row["answer1_model_id"] != row["answer2_model_id"] for row in rows("train"))
    assert {row["answer1_model_id"] for row in rows("train")} == {who.model_id for who in GENERATORS}


@pytest.mark.parametrize("split", ["train", "validation"])
def test_every_kind_and_every_vice_occurs(split):
    assert {row["metadata"]["kind"] for row in rows(split)} == set(KINDS)
    assert {vice for row in rows(split) for vice in row["metadata"]["vices"]} == set(VICES)


@pytest.mark.parametrize(("score", "text"), CONDITIONS)
def test_scores_are_integers_from_one_to_ten(score, text):
    values = {value for row in rows("train") for value in row[score]}
    assert values == set(range(1, 11))
    assert {type(value) for row in rows("train") for value in row[score]} == {int}


@pytest.mark.parametrize(("score", "text"), CONDITIONS)
@pytest.mark.parametrize("split", ["train", "validation"])
def test_no_label_is_common_and_ties_are_neither_rare_nor_frequent(split, score, text):
    shares = Counter(label(row[score]) for row in rows(split))
    assert max(shares.values()) / 4000 < 0.45
    assert 0.10 < shares[0] / 4000 < 0.25


@pytest.mark.parametrize(("score", "text"), CONDITIONS)
def test_the_text_is_the_score_line_and_a_reason(score, text):
    for row in rows("train"):
        line, reason = row[text].split("\n")
        assert line == f"{row[score][0]} {row[score][1]}"
        assert "Assistant 1" in reason
        assert "Assistant 2" in reason


@pytest.mark.parametrize(("score", "text"), CONDITIONS)
def test_the_reason_ends_in_the_winner_of_the_scores(score, text):
    for row in rows("train"):
        verdict = row[text].split(". ")[-1]
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


def test_the_reference_is_the_answer_of_the_fact_table():
    for row in rows("validation"):
        if row["metadata"]["kind"] == "fact":
            words = set(re.findall(r"\w+", row["question_body"]))
            [value] = [FACTS[key] for key in FACTS if set(key) <= words]
            assert row["reference"]["text"] == value


def test_a_sum_has_its_value_as_reference():
    rows_of_sums = [row for row in rows("train") if re.search(r"\d (plus|\+|and) \d", row["question_body"])]
    assert len(rows_of_sums) > 100
    for row in rows_of_sums:
        first, second = re.findall(r"\d+", row["question_body"])
        assert int(first) + int(second) == int(row["reference"]["text"])


def test_a_wrong_answer_is_never_the_right_one():
    for row in rows("train"):
        for place, vice in enumerate(row["metadata"]["vices"], 1):
            if vice == "wrong":
                assert row[f"answer{place}_body"].strip(".") != row["reference"]["text"]


def test_a_right_answer_that_rambles_gets_fewer_points_than_a_short_one():
    findings = [find(fact(), written(vice, right=True), with_reference=False) for vice in ("correct", "rambling")]
    assert [noiseless_score(fact(), finding) for finding in findings] == [9, 7]


def test_rambling_costs_more_where_the_form_was_asked_for():
    asked = fact(kind="format")
    assert noiseless_score(asked, find(asked, written("rambling", right=True), with_reference=True)) == 4


def test_a_truncated_list_says_something_and_a_truncated_sentence_nothing():
    assert find(fact(parts=("a", "b")), written("truncated"), with_reference=True) == "cut"
    assert find(fact(), written("truncated"), with_reference=True) == "stump"


def test_without_the_reference_the_teacher_cannot_tell_right_from_wrong():
    ship = fact(kind="reference_fact")
    findings = [find(ship, written(vice), with_reference=False) for vice in ("correct", "wrong")]
    assert findings == ["plausible", "plausible"]


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


def test_the_world_needs_no_torch():
    code = "import sys, benchmarks.synthetic.pairs; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


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
