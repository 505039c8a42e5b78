"""Samples of several files, incomplete rows, images, example pairs, subsets, and samples in a temporary file."""

from collections import Counter
from pathlib import Path

import pytest

from judgelm.data.labelled_set import read_labelled, read_labels
from judgelm.data.readers.rows import Row
from judgelm.data.samples import SampleStream
from judgelm.data.shelf import Shelf
from judgelm.data.sources.layouts import plain_sample
from judgelm.data.subsets import draw_subset
from judgelm.errors import ConfigError, InputError
from judgelm.records import Sample
from tests.support.jsonl_files import rows_of


def pair(name, **more):
    return {"id": name, "question": "q", "answer_1": "a", "answer_2": "b"} | more


def test_answers_in_two_fields_must_be_equal(write):
    rejects = []
    path = write(pair(1, answers=["a", "b"]), pair(2, answers=["b", "a"]))
    assert [sample.id for sample in SampleStream([path], on_reject=rejects.append)] == ["1"]
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
    assert len(list(SampleStream([write(row, row | {field: None})], on_reject=rejects.append))) == 1
    assert [reject.reason.split(",")[0] for reject in rejects] == [f'field "{field}": contains "z"']


def row_of(**data):
    return Row("data/pairs.jsonl", 3, {"question": "q", "answer": "a", **data})


@pytest.mark.parametrize(
    ("data", "images"),
    [
        ({"image": "cat.png"}, ("data/cat.png",)),  # from the file's own folder
        ({"images": ["a.png", "/b.png"]}, ("data/a.png", "/b.png")),
        ({"image": "data:image/png;base64,AA=="}, ("data:image/png;base64,AA==",)),
        ({"image": "https://example.org/a.png"}, ("https://example.org/a.png",)),
        ({"images": [], "image": ""}, ()),
    ],
)
def test_image_paths(data, images):
    sample = plain_sample(row_of(**data))
    assert (sample.images, sample.metadata) == (images, {})


@pytest.mark.parametrize("data", [{"image": 3}, {"images": ["a.png", None]}, {"image": {"bytes": "x"}}])
def test_an_image_that_is_not_a_path_is_an_error(data):
    with pytest.raises(InputError, match=r'data/pairs.jsonl:3: field "images?": expected the image path'):
        row_of(**data).images()


PAIRS = Path(__file__).parents[2] / "examples" / "pairs.jsonl"
ROWS = rows_of(PAIRS)


def test_each_row_has_the_same_fields_an_id_of_its_own_and_a_reason():
    fields = ["id", "category", "question", "answer_1", "answer_2", "winner", "reason"]
    assert [row["id"] for row in ROWS if list(row) != fields] == []
    assert len({row["id"] for row in ROWS}) == len({row["question"] for row in ROWS}) == len(ROWS) == 60
    assert [row["id"] for row in ROWS if not all(str(value).strip() for value in row.values())] == []
    assert [row["id"] for row in ROWS if not row["id"].startswith(f"{row['category']}-")] == []


def test_winners_are_balanced_by_order_and_by_length():
    assert Counter(row["winner"] for row in ROWS) == {1: 24, 2: 24, "tie": 12}
    longer = Counter((row["winner"], len(row["answer_1"]) > len(row["answer_2"])) for row in ROWS)
    # of the 24 winners at each place 12 are the longer answer: neither a place nor a length predicts the label
    assert [longer[winner, first] for winner in (1, 2) for first in (True, False)] == [12] * 4


def test_all_rows_are_read_for_judging_for_training_and_as_labels():
    labelled = read_labels(str(PAIRS))
    assert {name: label.winner for name, label in labelled.labels.items()} == {r["id"]: r["winner"] for r in ROWS}
    assert labelled.groups["category"] == {row["id"]: row["category"] for row in ROWS}
    pairs = list(read_labelled(str(PAIRS), source="examples"))
    assert [pair.sample.answers for pair in pairs] == [(row["answer_1"], row["answer_2"]) for row in ROWS]
    assert [pair.label.reason for pair in pairs] == [row["reason"] for row in ROWS]


def sample(key, text):
    return Sample(id=key, question=text, answers=(text, "b"), metadata={"turns": [{"question": text}]})


def test_a_shelf_keeps_the_order_of_its_values_until_they_are_removed():
    shelf = Shelf()
    for key, text in (("b", "one"), ("a", "two \ud800"), ("b", "three")):
        shelf[key] = sample(key, text)
        assert shelf[key] == sample(key, text)
    assert (dict(shelf), list(shelf)) == ({"b": sample("b", "three"), "a": sample("a", "two \ud800")}, ["b", "a"])
    del shelf["a"]
    assert ("a" in shelf, len(shelf), shelf.get("a")) == (False, 1, None)


CATEGORIES = [{"id": index, "category": "law" if index % 5 == 0 else "math"} for index in range(20)]


def ids(subset):
    return [row["id"] for row in subset.rows]


def test_the_size_is_the_maximum_for_each_value(write):
    subset = draw_subset(write(*CATEGORIES), field="category", size=6)
    assert subset.counts == {"law": (4, 4), "math": (6, 16)}
    row = {"id": 1, "metadata": {"data_set": "x"}}
    assert draw_subset(write(row), field="data_set", size=1).counts == {"x": (1, 1)}
    assert ids(subset) == sorted(ids(subset))


def test_the_draw_depends_on_ids_and_seed_alone_and_a_larger_subset_contains_the_smaller(write):
    given = draw_subset(write(*CATEGORIES), field="category", size=3)
    turned = draw_subset(write(*CATEGORIES[::-1], name="b.jsonl"), field="category", size=3)
    path = write(*CATEGORIES)
    other = draw_subset(path, field="category", size=3, seed=1)
    assert set(ids(given)) == set(ids(turned)) != set(ids(other))
    assert set(ids(draw_subset(path, field=None, size=5))) < set(ids(draw_subset(path, field=None, size=9)))


def test_invalid_subsets_are_refused(write):
    path = write(*CATEGORIES)
    with pytest.raises(ConfigError, match="must be at least 1"):
        draw_subset(path, field=None, size=0)
    with pytest.raises(InputError, match="field 'subject' not found"):
        draw_subset(path, field="subject", size=1)
