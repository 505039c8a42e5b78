"""`data_tools/study_rows.py`: the rows that it makes go through runs into studies; and truth files."""

import json
import runpy
import sys
from pathlib import Path

import pytest

from benchmarks.contrastive_pairs import contrastive_pair
from judgelm.data.samples import SampleStream
from judgelm.data.sources.rating_tables import run_ratings
from judgelm.errors import InputError
from judgelm.records import GradeVerdict, Judgment, PairVerdict, Sample, SelfAnswer, Shown
from judgelm.studies.truth_file import AnswerTruth, PairTruth, by_sample, same_answer, truth_from_row
from tests.support.jsonl_files import rows_of, write_rows
from tests.support.judged_items import write_run

SCRIPT = Path(__file__).parents[2] / "data_tools" / "study_rows.py"


def made(capsys, *arguments):
    """The exit code and the messages of the recipe."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(SCRIPT), *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(SCRIPT), run_name="__main__")
    return ended.value.code, capsys.readouterr().err


def test_spoiled_answers_are_rated_as_attention_checks(tmp_path, capsys):
    given = {"id": "1", "question": "q", "answer": "one two three.", "answer_models": ["m"], "item": "p1"}
    source, out = write_rows(tmp_path / "rows.jsonl", [given]), tmp_path / "spoiled.jsonl"
    code, output = made(capsys, "attention", source, "-o", out, "--check", "random_pairing")
    assert (code, "rows.jsonl: " in output, out.exists()) == (1, True, False)  # it needs two rows
    assert made(capsys, "attention", source, "-o", out, "--check", "reversed_words")[0] == 0
    [sample] = SampleStream([str(out)])
    assert sample.answers == ("three two one.",)
    part = Shown(order=(0,), text="", part="conciseness", scores=(1.0,))
    judgment = Judgment(sample_id=sample.id, mode="rubric", verdict=GradeVerdict(score=0.2), shown=(part,))
    for options, length in (({}, 3), ({"length": len}, len("three two one."))):
        [rating] = run_ratings("judge", {sample.id: judgment}, {sample.id: sample}, **options)
        values = [rating.data[key] for key in ("check", "item", "model", "length")]
        assert values == ["reversed_words", "p1", "m", length]


def test_questions_are_drawn_by_answer_type(tmp_path, capsys):
    # 120 numbers and 40 names: names are fewer than 100 and stay; of the numbers 80 * 120 / 160 are drawn
    base = {"context": []}
    given = [base | {"_id": f"n{i}", "question": "How many were there?", "answer": str(i)} for i in range(120)]
    given += [base | {"_id": f"w{i}", "question": "Who wrote it?", "answer": f"Name {i}"} for i in range(40)]
    source, out = tmp_path / "hotpot.json", tmp_path / "out.jsonl"
    source.write_text(json.dumps(given))
    code, output = made(capsys, "questions", source, "-o", out, "--target", "80")
    assert (code, len(rows_of(out))) == (0, 100)
    assert all(count in output for count in ("number     60", "name     40"))


def solved(key, *answers):
    solves = tuple(SelfAnswer(text=f"I think {answer}", answer=answer) for answer in answers)
    return Judgment(sample_id=key, mode="ssr", verdict=PairVerdict(winner=1), shown=(), self_answers=solves)


@pytest.mark.parametrize(
    ("options", "expected"),  # without options 4 of 5 at least
    [([], {"a": "B"}), (["--tau", "0.6", "--whole"], {"a": "I think B", "b": "I think C"})],
)
def test_own_answers_that_agree_become_references(tmp_path, capsys, options, expected):
    judgments = [solved("a", "B", "B", "A", "B", "B"), solved("b", "A", "C", "C", None, "C"), solved("c", None, None)]
    run, out = write_run(tmp_path / "run.jsonl", judgments), tmp_path / "references.jsonl"
    assert made(capsys, "own-references", run, "-o", out, *options)[0] == 0
    assert {row["id"]: row["reference"] for row in rows_of(out)} == expected
    samples = [{"id": key, "question": "q", "answers": ["1", "2", "3"]} for key in "abc"]
    stream = SampleStream([str(write_rows(tmp_path / "k.jsonl", samples))], answers=(2, None), references=str(out))
    assert {sample.id: sample.reference for sample in stream} == dict.fromkeys("abc") | expected
    code, output = made(capsys, "own-references", run, "-o", out)
    assert (code, "is there already" in output) == (1, True)


QUESTION = {"id": "q", "question": "Which swims?", "reference": "(B)", "category": "biology", "options": [*"xyz"]}


def answer(key, text, **fields):
    return {"question_id": key, "model": "g", "text": text, "failure": None} | fields


def test_a_generator_argues_for_both_ends_and_a_pair_of_them_is_judged(tmp_path, capsys):
    known, questions = write_rows(tmp_path / "known.jsonl", [QUESTION]), tmp_path / "asked.jsonl"
    assert made(capsys, "generator-prompts", known, "-o", questions)[0] == 0
    first, second = rows_of(questions)
    assert first["id"] == "q#concludes-B"
    assert second["id"] in ("q#concludes-A", "q#concludes-C")
    assert first["question"] == (
        "Which swims?\nOptions:\nA. x\nB. y\nC. z\n\nWrite a solution, step by step, that concludes with (B), whatever "
        'you think of it. Do not say that the conclusion was given. Finish with "The answer is (B)".'
    )
    # the generator does as it is told the first time; the second text is cut off and ends in nothing
    answers = [
        answer(first["id"], "Fins. The answer is (B)."),
        answer(second["id"], "Well. The answer is (C)."),
        answer(second["id"], "Hmm"),
        answer(second["id"], "", failure={"code": "engine", "text": "", "why": ""}),
    ]
    files, out = write_rows(tmp_path / "answers.jsonl", answers), tmp_path / "pairs.jsonl"
    assert made(capsys, "pairs", known, "--answers", files, "-o", out)[0] == 0
    [sample] = SampleStream([str(out)])
    [truth] = rows_of(tmp_path / "pairs.truth.jsonl")
    result = truth_from_row(PairTruth, truth, "truth")
    assert sample.answers[:: 3 - 2 * result.winner] == ("Fins. The answer is (B).", "Well. The answer is (C).")
    assert (sample.reference, list(sample.metadata["options"])) == (None, ["x", "y", "z"])
    assert (result.id, result.answer, result.category) == (sample.id, "B", "biology")
    # told to end in C it ends in B all the same: no wrong response, no pair
    write_rows(files, [answer("q#concludes-C", "The answer is (B).")])
    code, output = made(capsys, "pairs", known, "--answers", files, "-o", tmp_path / "none.jsonl")
    assert (code, rows_of(tmp_path / "none.jsonl")) == (0, [])
    assert "1 questions without a right or without a wrong response" in output


def test_the_right_response_is_first_or_second_whatever_the_order_of_the_responses():
    questions = [Sample(id=str(place), question="2 + 2?", answers=(), reference="4") for place in range(40)]
    right, wrong = "So it is 4.", "So it is 5."
    given = [contrastive_pair(question, [right, wrong], "number") for question in questions]
    assert {truth["winner"] for _, truth in given} == {1, 2}
    assert given == [contrastive_pair(question, [wrong, right], "number") for question in questions]


@pytest.mark.parametrize(
    ("change", "finding"),
    [({"options": ["x"]}, "options"), ({"reference": "D"}, "the letter of one"), ({"reference": None}, "no reference")],
)
def test_invalid_questions_are_reported(tmp_path, capsys, change, finding):
    known = write_rows(tmp_path / "known.jsonl", [QUESTION | change])
    code, output = made(capsys, "generator-prompts", known, "-o", tmp_path / "asked.jsonl")
    assert (code, finding in output) == (1, True)


ANSWER = {"id": "1", "agent": "small", "dataset": "GSM8K", "truth": True}
PAIR = {"id": "a", "winner": 1}


@pytest.mark.parametrize(
    ("kind", "row", "message"),
    [
        (AnswerTruth, ANSWER | {"agent": None}, 't.jsonl:3: field "agent": .*got None; required fields: id, agent'),
        (AnswerTruth, ANSWER | {"truth": 1}, 'field "truth"'),
        (AnswerTruth, ANSWER | {"judge_correct": "yes"}, 'field "judge_correct"'),
        (PairTruth, PAIR | {"winner": True}, 'field "winner"'),
        (PairTruth, PAIR | {"winner": 3}, 'field "winner"'),
    ],
)
def test_a_bad_field_names_place_and_way_out(kind, row, message):
    with pytest.raises(InputError, match=message):
        truth_from_row(kind, row, "t.jsonl:3")


def test_further_fields_are_passed_over_and_two_truths_of_one_sample_refused():
    full = ANSWER | {"question": "q", "judge_correct": {"big": False}, "answer": "18"}
    assert truth_from_row(AnswerTruth, full | {"more": 1}, "t.jsonl:1") == AnswerTruth(**full)
    with pytest.raises(InputError, match="occurs twice"):
        by_sample([PairTruth(**PAIR)] * 2)


@pytest.mark.parametrize(("found", "right"), [("1234", "1,234.0"), ("B", "(b)"), ("1/3", "1/3")])
def test_one_answer_in_two_spellings(found, right):
    assert same_answer(found, right)
    assert not same_answer("7", right)
