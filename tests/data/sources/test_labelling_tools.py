"""Exports of labelling tools, in which annotations are votes, and ratings as long and wide tables."""

import pytest

from judgelm.data.label_codes import parse_label_code
from judgelm.data.samples import Reading, SampleStream
from judgelm.data.sources.rating_tables import RatingColumns, read_ratings, write_ratings
from judgelm.errors import InputError, LabelCodeError

TEXTS = {"prompt": "Name a tree.", "answer1": "Oak", "answer2": "Trout"}
FIELDS = {"prompt": "Name a tree.", "response-1": "Oak", "response-2": "Trout"}
PAIR = ("Name a tree.", ("Oak", "Trout"))
OPTIONS = [{"id": "x", "text": "Oak"}, {"id": "y", "text": "Trout"}, {"id": "z", "text": "tie"}]


def result(side, tag="cmp"):
    return {"type": "pairwise", "from_name": tag, "to_name": "a,b", "value": {"selected": side}}


CANCELLED = {"result": [result("right")], "was_cancelled": True}


def choice(*texts, tag="best"):
    return {"type": "choices", "from_name": tag, "to_name": "a", "value": {"choices": list(texts)}}


def task(*annotations, key=1, **more):
    return {"id": key, "data": TEXTS, "annotations": [{"result": each} for each in annotations]} | more


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
        ([task() | {"annotations": [{"result": [result("left")]}, CANCELLED]}], 1, (1,)),
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


def ratings(write, *rows, **columns):
    return read_ratings([write(*rows, name="ratings.jsonl")], RatingColumns(**columns))


def rating(**changes):
    return {"item": "1", "dimension": "d", "judge": "a", "model": "b", "score": 3} | changes


def test_long_rows_are_read_with_what_is_not_given_filled_in(write):
    [row] = ratings(write, {"item": 7, "judge": "a", "model": "b", "score": "4", "length": 12}).frame.to_dict("records")
    assert (row["item"], row["dimension"], row["task"], row["score"], row["length"]) == ("7", "all", "all", 4.0, 12.0)


@pytest.mark.parametrize("missing", [None, "", "NA", "n/a", "NA: not enough information to determine Correctness."])
def test_na_is_a_missing_value(write, missing):
    table = ratings(write, rating(score=missing), rating(item="2"))
    assert (list(table.frame["score"].isna()), table.rejects) == ([True, False], ())


INVALID_SCORES = ("good", "1e999", True, [3], 10**400)
LONG, WIDE = rating(), {"judge": "a", "model": "b", "gt": 3, "prompt_id": "1", "rating": 4}


@pytest.mark.parametrize(
    ("good", "bad", "finding"),
    [
        *((LONG, LONG | {"score": score}, '"score": expected a number or NA') for score in INVALID_SCORES),
        (LONG, {name: value for name, value in LONG.items() if name != "score"}, 'no "score"; write null'),
        (LONG, LONG | {"judge": "a\ud800"}, '"judge": contains half a surrogate pair'),
        (LONG, LONG | {"score": 1}, "rated more than once"),
        (WIDE, WIDE | {"judge": "b", "gt": 2}, '"gt" is 2, but 3 in an earlier row'),
        (WIDE, {name: value for name, value in WIDE.items() if name != "prompt_id"}, "prompt_id missing, unlike in"),
    ],
)
def test_a_row_that_cannot_be_used_is_a_reject_with_its_place(write, good, bad, finding):
    table = ratings(write, good, bad)
    assert len(table.frame) == (1 if good is LONG else 2)  # of a wide row the judge's rating and the human one
    assert [reject.message.startswith("ratings.jsonl:2: ") for reject in table.rejects] == [True]
    assert finding in table.rejects[0].message


def test_a_file_without_any_usable_row_is_an_error_that_says_the_first_finding(write):
    with pytest.raises(InputError, match=r'no usable rows \(1 read\); first reject: .*no "model"'):
        ratings(write, {"item": "1", "judge": "a", "score": 1})


def test_annotators_are_several_and_written_ratings_are_read_again(write, tmp_path):
    frame = ratings(write, rating(score=None), *(rating(judge="human", annotator=name) for name in ("x", "y"))).frame
    assert len(frame) == 3
    write_ratings(frame, tmp_path / "again.jsonl")
    assert read_ratings([tmp_path / "again.jsonl"]).frame.equals(frame)


def test_the_item_may_have_another_name_and_further_columns_are_kept(write):
    row = {"prompt": "1", "judge": "a", "model": "b", "score": 1, "dimension": "tone", "long": 1}
    table = ratings(write, row, item="prompt", extra=("long",))
    assert table.frame[["item", "dimension", "long"]].to_numpy().tolist() == [["1", "tone", 1]]
    with pytest.raises(InputError, match='column "long" not found'):
        ratings(write, rating(), extra=("long",))


def test_a_wide_file_gives_each_completion_one_human_row(tmp_path):
    path = tmp_path / "Faithfulness.csv"
    rows = [f"{rating},anthropic.claude-v2:1,3.667,cnn,cnn_0,120\n" for rating in ("gpt-4o,4", "x,3")]
    path.write_text("".join(["judge,rating,model,gt,dataset,prompt_id,pred_length\n", *rows]))
    frame = read_ratings([path], RatingColumns(extra=("dataset",))).frame
    assert frame[["judge", "score"]].to_numpy().tolist() == [["human", 3.667], ["GPT-4o", 4.0], ["x", 3.0]]
    facts = frame[["model", "dimension", "task", "dataset", "length"]].drop_duplicates().to_numpy().tolist()
    assert facts == [["Claude v2", "Faithfulness", "summarization", "cnn", 120.0]]
