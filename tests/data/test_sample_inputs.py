"""Samples of several files, and rows of which a part would be dropped."""

import pytest

from judgelm.data.samples import SampleStream
from judgelm.errors import InputError


def pair(name, **more):
    return {"id": name, "question": "q", "answer_1": "a", "answer_2": "b"} | more


def test_answers_said_twice_must_be_the_same(write):
    rejects = []
    rows = (pair(1, answers=["a", "b"]), pair(2, answers=["b", "a"]))
    assert len(list(SampleStream([write(*rows, name="a.jsonl")], on_reject=rejects.append))) == 1
    assert [reject.reason.split(" from ")[0] for reject in rejects] == ['field "answer_1": differs']


def test_shards_are_read_one_after_the_other_and_ids_are_unique_over_them(write, tmp_path):
    rejects = []
    first = f"{tmp_path}/{write(pair(1), pair(2), name='part-0.jsonl')}"
    second = f"{tmp_path}/{write(pair(2), pair(3), {'question': 'q'}, name='part-1.jsonl')}"
    for paths in ([first, second], [str(tmp_path)], [f"{tmp_path}/part-?.jsonl"]):
        rejects.clear()
        stream = SampleStream(paths, on_reject=rejects.append)
        assert [sample.id for sample in stream] == ["1", "2", "3"]
        assert [(reject.file, reject.line) for reject in rejects] == [(second, 1), (second, 3)]


def test_a_later_file_of_another_format_is_refused_after_the_samples_before_it(write):
    first = write(pair(1), name="a.jsonl")
    second = write({"prompt": "q", "chosen": "a", "rejected": "b"}, name="b.jsonl")
    stream = iter(SampleStream([first, second]))
    assert next(stream).id == "1"
    with pytest.raises(InputError, match=r"b\.jsonl:1: this file is in preference format, but .*a\.jsonl is in plain"):
        next(stream)


def test_an_empty_shard_is_refused(write, tmp_path):
    write(pair(1), name="a.jsonl")
    write(name="b.jsonl")
    with pytest.raises(InputError, match=r"b\.jsonl: contains no rows"):
        list(SampleStream([str(tmp_path)]))


def test_an_input_without_a_usable_row_is_an_error(write):
    path = write(pair(1, answer_2=7), pair(2, answer_2=8), name="a.jsonl")
    with pytest.raises(InputError, match=r"a\.jsonl: no usable rows \(2 read\); first reject: .*a\.jsonl:1: field"):
        list(SampleStream([path], on_reject=lambda reject: None))


@pytest.mark.parametrize(
    ("row", "field"),
    [
        (pair(1, answer_0="z"), "answer_0"),
        (pair(1, answer_4="z"), "answer_4"),
        (pair(1, answers=["a", "b"], answer_3="z"), "answer_3"),
        ({"instruction": "q", "output_1": "a", "output_2": "b", "output_3": "z"}, "output_3"),
        ({"instruction": "q", "response1": "a", "response2": "b", "response0": "z"}, "response0"),
        ({"question_body": "q", "answer1_body": "a", "answer2_body": "b", "answer4_body": "z"}, "answer4_body"),
        ({"prompt": "q", "response_a": "a", "response_b": "b", "response_c": "z"}, "response_c"),
    ],
)
def test_an_answer_that_would_be_dropped_is_refused(write, row, field):
    rejects = []
    stream = SampleStream([write(row, row | {field: None}, name="a.jsonl")], on_reject=rejects.append)
    assert len(list(stream)) == 1
    assert [reject.reason.split(",")[0] for reject in rejects] == [f'field "{field}": contains "z"']
