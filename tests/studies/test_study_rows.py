"""`data_tools/study_rows.py`: the rows that it makes go through runs into studies."""

import json
import runpy
import sys
from pathlib import Path

import pytest

from benchmarks.contrastive_pairs import contrastive_pair
from judgelm.data.samples import SampleStream
from judgelm.data.sources.rating_tables import run_ratings
from judgelm.jsonl import read_jsonl
from judgelm.records import GradeVerdict, Judgment, PairVerdict, Sample, SelfAnswer, Shown
from judgelm.studies.truth_file import PairTruth, truth_from_row
from tests.support.judged_items import write_run
from tests.support.studies import write_rows

SCRIPT = Path(__file__).parents[2] / "data_tools" / "study_rows.py"


def made(capsys, *arguments):
    """What the recipe exits with, and what it says."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", [str(SCRIPT), *map(str, arguments)])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(SCRIPT), run_name="__main__")
    return ended.value.code, capsys.readouterr().err


def rows(path):
    return [row for _, row in read_jsonl(path)]


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
    for count, length in ((None, 3), (len, len("three two one."))):
        options = {} if count is None else {"length": count}
        [rating] = run_ratings("judge", {sample.id: judgment}, {sample.id: sample}, **options)
        assert [rating.data[key] for key in ("check", "item", "model", "length")] == [
            "reversed_words", "p1", "m", length,
        ]  # fmt: skip


def test_questions_are_drawn_by_answer_type(tmp_path, capsys):
    # 120 numbers and 40 names: names are fewer than 100 and stay; of the numbers 80 * 120 / 160 are drawn
    base = {"context": []}
    given = [base | {"_id": f"n{i}", "question": "How many were there?", "answer": str(i)} for i in range(120)]
    given += [base | {"_id": f"w{i}", "question": "Who wrote it?", "answer": f"Name {i}"} for i in range(40)]
    source, out = tmp_path / "hotpot.json", tmp_path / "out.jsonl"
    source.write_text(json.dumps(given))
    code, output = made(capsys, "questions", source, "-o", out, "--target", "80")
    assert (code, len(rows(out))) == (0, 100)
    assert "number     60" in output
    assert "name     40" in output


def solved(key, *answers):
    solves = tuple(SelfAnswer(text=f"I think {answer}", answer=answer) for answer in answers)
    return Judgment(sample_id=key, mode="ssr", verdict=PairVerdict(winner=1), shown=(), self_answers=solves)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ([], {"a": "B"}),  # 4 of 5 at least
        (["--tau", "0.6", "--whole"], {"a": "I think B", "b": "I think C"}),
    ],
)
def test_own_answers_that_agree_become_references(tmp_path, capsys, options, expected):
    judgments = [solved("a", "B", "B", "A", "B", "B"), solved("b", "A", "C", "C", None, "C"), solved("c", None, None)]
    run, out = write_run(tmp_path / "run.jsonl", judgments), tmp_path / "references.jsonl"
    assert made(capsys, "own-references", run, "-o", out, *options)[0] == 0
    assert {row["id"]: row["reference"] for row in rows(out)} == expected
    pairs = write_rows(
        tmp_path / "k.jsonl", [{"id": key, "question": "q", "answers": ["1", "2", "3"]} for key in "abc"]
    )
    result = {one.id: one.reference for one in SampleStream([str(pairs)], answers=(2, None), references=str(out))}
    assert result == dict.fromkeys("abc") | expected
    code, output = made(capsys, "own-references", run, "-o", out)
    assert code == 1
    assert "is there already" in output


OPTIONS = ["x", "y", "z"]
QUESTION = {"id": "q", "question": "Which swims?", "reference": "(B)", "category": "biology", "options": OPTIONS}


def answer(key, text, **fields):
    return {"question_id": key, "model": "g", "text": text, "failure": None} | fields


def test_a_generator_argues_for_both_ends_and_a_pair_of_them_is_judged(tmp_path, capsys):
    known, questions = write_rows(tmp_path / "known.jsonl", [QUESTION]), tmp_path / "asked.jsonl"
    assert made(capsys, "generator-prompts", known, "-o", questions)[0] == 0
    first, second = rows(questions)
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
    [truth] = rows(tmp_path / "pairs.truth.jsonl")
    result = truth_from_row(PairTruth, truth, "truth")
    assert sample.answers[result.winner - 1] == "Fins. The answer is (B)."
    assert sample.answers[2 - result.winner] == "Well. The answer is (C)."
    assert (sample.reference, list(sample.metadata["options"])) == (None, ["x", "y", "z"])
    assert (result.id, result.answer, result.category) == (sample.id, "B", "biology")
    # told to end in C it ends in B all the same: no wrong response, no pair
    write_rows(files, [answer("q#concludes-C", "The answer is (B).")])
    code, output = made(capsys, "pairs", known, "--answers", files, "-o", tmp_path / "none.jsonl")
    assert (code, rows(tmp_path / "none.jsonl")) == (0, [])
    assert "1 questions without a right or without a wrong response" in output


def test_the_right_response_stands_in_both_places_over_many_questions():
    questions = [Sample(id=str(place), question="2 + 2?", answers=(), reference="4") for place in range(40)]
    result = [contrastive_pair(one, ["So it is 4.", "So it is 5."], "number") for one in questions]
    assert {truth["winner"] for _, truth in result} == {1, 2}
    turned = [contrastive_pair(one, ["So it is 5.", "So it is 4."], "number") for one in questions]
    assert result == turned  # whatever their order


@pytest.mark.parametrize(
    ("change", "finding"),
    [({"options": ["x"]}, "options"), ({"reference": "D"}, "the letter of one"), ({"reference": None}, "no reference")],
)
def test_questions_that_cannot_be_asked_are_named(tmp_path, capsys, change, finding):
    known = write_rows(tmp_path / "known.jsonl", [QUESTION | change])
    code, output = made(capsys, "generator-prompts", known, "-o", tmp_path / "asked.jsonl")
    assert code == 1
    assert finding in output
