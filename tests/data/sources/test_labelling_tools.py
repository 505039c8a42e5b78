"""Exports of labelling tools: what is judged, and which annotations are votes."""

import pytest

from judgelm.data.label_codes import parse_label_code
from judgelm.data.samples import Reading, SampleStream
from judgelm.errors import LabelCodeError

TEXTS = {"prompt": "Name a tree.", "answer1": "Oak", "answer2": "Trout"}
FIELDS = {"prompt": "Name a tree.", "response-1": "Oak", "response-2": "Trout"}
PAIR = ("Name a tree.", ("Oak", "Trout"))
OPTIONS = [{"id": "x", "text": "Oak"}, {"id": "y", "text": "Trout"}, {"id": "z", "text": "tie"}]


def result(side, tag="cmp"):
    return {"type": "pairwise", "from_name": tag, "to_name": "a,b", "value": {"selected": side}}


def choice(*texts, tag="best"):
    return {"type": "choices", "from_name": tag, "to_name": "a", "value": {"choices": list(texts)}}


def task(*annotations, key=1, **more):
    return {"id": key, "data": TEXTS, "annotations": [{"result": each} for each in annotations]} | more


def cancelled(side):
    return {"result": [result(side)], "was_cancelled": True}


def flat(side, annotator=1):
    return {"id": 1, **TEXTS, "comparison": side, "annotator": annotator, "annotation_id": annotator}


def responses(*given, **more):
    listed = [{"value": value, "status": status, "user_id": "u"} for value, status in given]
    return {"id": 1, "fields": FIELDS, "responses": {"better": listed}, "suggestions": {}} | more


def columns(*given):
    values, statuses = zip(*given, strict=True)
    states = {"better.responses": list(values), "better.responses.status": list(statuses)}
    return {"id": 1, "_server_id": "s", "status": "completed", **FIELDS, **states, "better.suggestion": "response-2"}


def ranking(first, second):
    ranks = {"value": "response-1", "rank": first}, {"value": "response-2", "rank": second}
    return responses((list(ranks), "submitted"))


def chosen(*ids, answer="accept"):
    return {"text": "Name a tree.", "options": OPTIONS, "accept": list(ids), "answer": answer, "_task_hash": 1}


def doccano(*labels):
    return {"id": 1, "text": "Name a tree.", "answer_1": "Oak", "answer_2": "Trout", "label": [*labels], "Comments": []}


@pytest.mark.parametrize(
    ("rows", "winner", "votes"),
    [
        ([task([result("left")], [result("right")], [result("right")])], 2, (1, 2, 2)),
        ([task() | {"annotations": [{"result": [result("left")]}, cancelled("right")]}], 1, (1,)),
        ([task([result("left"), choice("clear", tag="why")], predictions=[{"result": [result("right")]}])], 1, (1,)),
        ([task([choice("Answer B")], [], [choice("tie")], [choice("Answer B")])], 2, (2, "tie", 2)),
        ([flat("left"), flat("right", 2), flat([{"selected": "right"}], 3)], 2, (1, 2, 2)),
        ([responses(("response-1", "submitted"), ("response-2", "discarded"), ("response-2", "draft"))], 1, (1,)),
        ([columns(("response-1", "submitted"), ("response-2", "discarded"))], 1, (1,)),
        ([ranking(1, 2)], 1, (1,)),
        ([ranking(1, 1)], "tie", ("tie",)),
        ([chosen("y"), chosen("y"), chosen("z"), chosen("x", answer="ignore")], 2, (2, 2, "tie")),
        ([doccano("2", "2")], 2, (2, 2)),
    ],
)
def test_what_people_submitted_are_the_votes(labelled, rows, winner, votes):
    [label] = labelled(*rows)[0].labels.values()
    [sample] = SampleStream(["pairs.jsonl"])
    assert (sample.question, sample.answers) == PAIR
    assert (label.winner, label.votes) == (winner, votes)


@pytest.mark.parametrize(
    ("row", "finding"),
    [
        (task([choice("A"), choice("B", tag="other")], key=2), "best, other"),
        (task([choice("A", "B")], key=2), "one choice"),
        (task([choice("Neither")], key=2), '"Neither"'),
    ],
)
def test_an_annotation_that_is_ambiguous_is_a_reject(labelled, row, finding):
    read, messages = labelled(task([result("left")]), row)
    assert [*read.labels] == ["1"]
    assert finding in messages[-1]


def test_responses_without_status_are_judged_and_are_not_labels(labelled):
    read, messages = labelled(responses(("response-1", "submitted")), responses(("response-2", None), id=2))
    assert ([*read.labels], len([*SampleStream(["pairs.jsonl"])])) == (["1"], 2)
    assert "to_datasets()" in messages[0]


def test_ambiguous_answer_fields_are_a_reject(write):
    for texts in ({"prompt": "q"}, TEXTS | {"answer3": "Elm"}, TEXTS | {"text1": "a", "text2": "b"}):
        rejects = []
        rows = [task([result("left")]), task([], key=2) | {"data": texts}]
        stream = SampleStream([write(*rows)], on_reject=rejects.append)
        assert [sample.id for sample in stream] == ["1"]
        assert "no question with two answers" in rejects[0].reason


def test_a_code_explains_other_words_and_numbers(labelled):
    rows = task([choice("Left one")]), task([choice("Same")], key=2), task([result("right")], key=3)
    read, _ = labelled(*rows, reading=Reading(label_code=parse_label_code("Left one=first,Same=tie")))
    assert [label.winner for label in read.labels.values()] == [1, "tie", 2]
    with pytest.raises(LabelCodeError, match=r"0 \(1 times\)"):
        labelled(doccano("0"), doccano("1") | {"id": 2})
