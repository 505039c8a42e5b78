import pytest

from judgelm.errors import InputError
from judgelm.records import Judgment, LabelVerdict, PairVerdict, SelfAnswer, Unparsed
from judgelm.studies.self_reference_answers import (
    AnswerTruth,
    JudgeRuns,
    judged_answers,
    own_correct,
    same_answer,
    truth_from_row,
)
from judgelm.studies.truth_file import by_sample

ROW = {"id": "1", "agent": "small", "dataset": "GSM8K", "truth": True}


def judged(key, label, *answers):
    verdict = None if label is None else LabelVerdict(label=label)
    failure = Unparsed("off_grammar", "?") if label is None else None
    solves = tuple(SelfAnswer(text="...", answer=answer) for answer in answers)
    return Judgment(sample_id=key, mode="correctness", verdict=verdict, shown=(), failure=failure, self_answers=solves)


def truth(key="1", **fields):
    return AnswerTruth(id=key, agent="small", dataset="GSM8K", truth=True, **fields)


def test_a_row_with_what_is_needed_and_one_with_everything():
    assert truth_from_row(ROW, "t.jsonl:1") == truth()
    found = truth_from_row(ROW | {"question": "q", "judge_correct": {"big": False}, "answer": "18", "more": 1}, "t:1")
    assert found == truth(question="q", own={"big": False}, answer="18")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"agent": None}, 't.jsonl:3: field "agent": expected text, got None'),
        ({"truth": 1}, 'field "truth": expected true or false, got 1'),
        ({"answer": 18}, 'field "answer": expected text, got 18'),
        ({"judge_correct": "yes"}, 'field "judge_correct"'),
    ],
)
def test_a_bad_field_names_place_and_way_out(change, message):
    with pytest.raises(InputError, match=message):
        truth_from_row(ROW | change, "t.jsonl:3")


def test_two_truths_of_one_sample_are_refused():
    with pytest.raises(InputError, match="appears twice"):
        by_sample([truth(), truth()])


def test_the_truth_file_goes_before_the_solves():
    runs = JudgeRuns(judge="big", guided={"1": judged("1", "correct", "18")})
    assert own_correct(runs, truth(own={"big": False}, answer="18")) == (False, "truth file")
    assert own_correct(runs, truth(own={"": False}, answer="18")) == (False, "truth file")
    assert own_correct(runs, truth(own={"other": False}, answer="18")) == (True, "solves")


def test_own_answers_from_solves():
    runs = JudgeRuns(judge="big", cot={"1": judged("1", "correct")}, guided={"1": judged("1", "correct", "17", "18")})
    assert own_correct(runs, truth(answer="18")) == (False, "solves")  # the first solve is the reference
    nothing = JudgeRuns(judge="big", cot={"1": judged("1", "correct", None)})
    assert own_correct(nothing, truth(answer="18")) == (False, "no answer extracted")
    assert own_correct(nothing, truth()) == (None, "unknown")
    assert own_correct(JudgeRuns(judge="big"), truth(answer="18")) == (None, "unknown")


@pytest.mark.parametrize(("found", "right"), [("1234", "1,234.0"), ("B", "(b)"), ("1/3", "1/3")])
def test_one_answer_in_two_spellings(found, right):
    assert same_answer(found, right)
    assert not same_answer("7", right)


def test_a_failure_is_neither_correct_nor_incorrect():
    runs = JudgeRuns(judge="big", cot={"1": judged("1", None), "2": judged("2", "incorrect")})
    rows = judged_answers(runs, "cot", {"1": truth(), "2": truth("2")})
    assert [row.judged for row in rows] == [None, False]


def test_verdicts_of_other_modes_are_refused():
    pair = Judgment(sample_id="1", mode="pair", verdict=PairVerdict(winner=1), shown=())
    with pytest.raises(InputError, match="needs correct or incorrect"):
        judged_answers(JudgeRuns(judge="big", cot={"1": pair}), "cot", {"1": truth()})


def test_nothing_joined_is_an_error():
    with pytest.raises(InputError, match="'x' against '1'"):
        judged_answers(JudgeRuns(judge="big", cot={"x": judged("x", "correct")}), "cot", {"1": truth()})
