import pytest

from judgelm.errors import InputError
from judgelm.studies.truth_file import AnswerTruth, PairTruth, by_sample, same_answer, truth_from_row

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
