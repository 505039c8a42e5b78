"""GSM-Symbolic: questions of templates, and which of the three files they are from."""

import pytest

from judgelm.errors import InputError


def row(template, instance, answer="6 - 2 = 4\n#### 4", **fields):
    return {
        "id": template, "instance": instance, "question": f"Ann has {instance} pears.", "answer": answer,
        "original_id": 7, "original_question": "?", "original_answer": "#### 1", "canary": "do not train on this",
    } | fields  # fmt: skip


def test_a_row_is_a_question_with_its_number_and_its_template(imported):
    done, [first, second] = imported("gsm-symbolic", row(0, 0), row(0, 1, "...\n#### 1,045.0"), file="GSM_p1.jsonl")
    assert done.unlabelled == 2
    assert (first["id"], first["question"], first["reference"]) == ("gsm-symbolic-p1-0-0", "Ann has 0 pears.", "4")
    assert second["reference"] == "1045"
    assert first["metadata"] == {
        "data_set": "GSM-Symbolic-P1", "solution": "6 - 2 = 4\n#### 4", "template": 0, "original_id": 7,
        "canary": "do not train on this",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "data_set"),
    [
        ("GSM_p2.jsonl", "GSM-Symbolic-P2"),
        ("gsm-symbolic-P1-sample.jsonl", "GSM-Symbolic-P1"),
        ("p2/test.jsonl", "GSM-Symbolic-P2"),
        ("main/test.jsonl", "GSM-Symbolic"),
        ("GSM_symbolic.jsonl", "GSM-Symbolic"),
    ],
)
def test_the_name_says_which_file_it_is(imported, name, data_set):
    _, [only] = imported("gsm-symbolic", row(0, 0), file=name)
    assert only["metadata"]["data_set"] == data_set
    assert only["id"] == f"{data_set.lower()}-0-0"


@pytest.mark.parametrize(
    ("name", "finding"), [("problems.jsonl", "got none"), ("p1/GSM_p2.jsonl", "P1 and P2"), ("gsmp1.jsonl", "none")]
)
def test_a_name_that_does_not_say_it_is_refused(imported, name, finding):
    with pytest.raises(InputError, match=finding):
        imported("gsm-symbolic", row(0, 0), file=name)


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        ({"answer": "6 - 2 = 4"}, 'no final number after "####"'),
        ({"instance": "1"}, 'field "instance": expected a whole number'),
        ({"id": True}, 'field "id": expected a whole number'),
        ({"original_id": None}, 'field "original_id": expected a whole number'),
        ({"question": ["Ann"]}, "question"),
    ],
)
def test_rows_that_cannot_be_used_are_rejects(imported, fields, reason):
    done, rows = imported("gsm-symbolic", row(0, 0), row(0, 1) | fields, file="GSM_p1.jsonl")
    assert len(rows) == 1
    assert reason in done.rejects[0].message


def test_its_rows_are_refused_as_gsm8k(imported):
    with pytest.raises(InputError, match="import the file as gsm-symbolic"):
        imported("gsm8k", row(0, 0))
