"""Derived pairs by hand: preferences subtracted over a baseline, answers to other questions, balance, repeatability."""

import pytest

from benchmarks.derived_pairs import Derivation, derived_pairs, main
from judgelm.data.labelled_pair import LabelledPair
from judgelm.data.labelled_set import read_labelled
from judgelm.jsonl import read_jsonl
from judgelm.records import Label, Sample
from tests.support.jsonl_files import write_rows


def judged(number, question, first, second, preference, judge="teacher"):
    sample = Sample(
        id=str(number), question=question, answers=(first, second), answer_models=(f"m-{first}", f"m-{second}"),
        metadata={"annotator": judge},
    )  # fmt: skip
    return LabelledPair(
        sample=sample, plain=Label(sample_id=str(number), winner=1, preference=preference), referenced=None
    )


def derived(pairs, same=50, other=0, **options):
    return list(derived_pairs(pairs, Derivation(same_baseline=same, other_question=other, **options)))


def preferences(pairs):
    """P(first better) by the two answers, in alphabetical order."""
    return {
        tuple(sorted(pair.sample.answers)): pair.plain.preference
        if pair.sample.answers == tuple(sorted(pair.sample.answers))
        else 1 - pair.plain.preference
        for pair in pairs
    }


def test_log_odds_against_one_baseline_subtract():
    # logit .8 - logit .3 = log 4 + log 7/3 = log 28/3: 28/31
    pairs = [judged(1, "Q?", "aa", "cc", 0.8), judged(2, "Q?", "cc", "bb", 0.7)]
    assert preferences(derived(pairs)) == {("aa", "bb"): pytest.approx(28 / 31)}


def test_a_clear_win_and_a_clear_loss_count_as_nine_to_one_each():
    pairs = [judged(1, "Q?", "aa", "cc", 1.0), judged(2, "Q?", "bb", "cc", 0.0)]
    assert preferences(derived(pairs)) == {("aa", "bb"): pytest.approx(81 / 82)}


def test_an_answer_to_another_question_loses_to_one_of_this_question():
    pairs = [judged(n, f"Question {n}?", f"right {n} a", f"right {n} b", 1.0) for n in range(10)]
    made = derived(pairs, same=0, other=4)
    assert made
    for pair in made:
        number = pair.sample.question.removeprefix("Question ").rstrip("?")
        better = pair.sample.answers[0 if pair.plain.preference == 1 else 1]
        worse = pair.sample.answers[1 if pair.plain.preference == 1 else 0]
        assert better.startswith(f"right {number}")
        assert not worse.startswith(f"right {number}")
        assert pair.sample.metadata["rule"] == "other question"


def world():
    """Answers a to h of 30 questions against one baseline; the longer ones win more often."""
    return [
        judged(
            f"{q}{n}", f"Question {q}?", f"{q} " + "x" * (30 * n), "the baseline", (0.05, 0.1, 0.9, 0.95)[(n + q) % 4]
        )
        for q in range(30)
        for n in range(8)
    ]


def test_the_order_of_the_rows_changes_nothing_and_no_pair_comes_twice():
    made = [(pair.sample.id, pair.plain.preference) for pair in derived(world(), other=3)]
    assert made == [(pair.sample.id, pair.plain.preference) for pair in derived(world()[::-1], other=3)]
    assert len({name for name, _ in made}) == len(made)
    assert made != [(pair.sample.id, pair.plain.preference) for pair in derived(world(), other=3, seed=1)]


def test_the_command_writes_rows_for_training_and_skips_test_questions(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    pair = {"answer_2": "base"}
    rows = [
        pair
        | {"id": f"{q}{n}", "question": f"Question {q}?", "answer_1": f"{q} {n}", "preference": 0.1 + 0.8 * (n % 2)}
        for q in range(6)
        for n in range(4)
    ]
    excluded = {"id": "t", "question": "Question 3?", "answer_1": "a", "answer_2": "b"}
    test = write_rows(tmp_path / "test.jsonl", [excluded])
    monkeypatch.setattr(
        "sys.argv",
        ["derived_pairs", str(write_rows(tmp_path / "pairs.jsonl", rows)), "-o", "out.jsonl", "--exclude", str(test)],
    )
    main()
    pairs = list(read_labelled("out.jsonl", source="x"))
    assert {pair.sample.question for pair in pairs} == {f"Question {q}?" for q in (0, 1, 2, 4, 5)}
    assert all(not any(text.startswith("3 ") for text in pair.sample.answers) for pair in pairs)
    rules = {row["source"].split(": ")[1].split(",")[0] for _, row in read_jsonl("out.jsonl")}
    assert rules == {"same baseline", "other question"}
