"""What readers of foreign files cannot use: counted by reason, and an error where it is everything."""

import json

import pytest

from benchmarks.contrastive_pairs import read_answers, read_solved_questions
from benchmarks.convert import join_reviews
from benchmarks.seeds import SeedSource, read_seeds, sample_seeds
from judgelm.data.answers import AnswerSet, read_questions
from judgelm.data.labelled_set import read_labelled, read_labels
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import Reject, RejectCounts, convert_rows
from judgelm.data.samples import SampleStream, read_references
from judgelm.data.sources.alpaca_eval import join_outputs
from judgelm.data.sources.importer import import_benchmark
from judgelm.data.sources.qa import read_qa
from judgelm.data.sources.rating_tables import read_ratings
from judgelm.data.sources.reviews import read_results, read_reviews
from judgelm.errors import InputError
from judgelm.parsing.scores import parse_pair
from judgelm.runs.answers import read_self_answers


def ignore(reject):
    """A caller that goes on whatever is rejected, as commands do."""


READERS = {
    "samples": (lambda path: list(SampleStream([path], on_reject=ignore)), "question"),
    "two files of outputs": (lambda path: list(join_outputs(path, path)), "instruction, output"),
    "references": (read_references, "reference"),
    "labels": (lambda path: read_labels(path, on_reject=ignore), "winner"),
    "labelled pairs": (lambda path: list(read_labelled(path, source="s", on_reject=ignore)), "answer_1"),
    "results": (lambda path: read_results(path, parse_pair, on_reject=ignore), "pred_text"),
    "reviews": (lambda path: list(read_reviews(path)), "answer1_id"),
    "review tables": (lambda path: list(join_reviews(path, [path], [path])), "question_id"),
    "questions": (lambda path: read_questions(path, on_reject=ignore), "question_body"),
    "answers": (lambda path: AnswerSet([path]), "question_id, model, text"),
    "known questions": (lambda path: list(read_solved_questions(path)), "reference"),
    "generated answers": (lambda path: list(read_answers([path])), "question_id"),
    "qa": (lambda path: list(read_qa(path, on_reject=ignore)), "question"),
    "seeds": (lambda path: list(read_seeds(path)), "instruction"),
    "seeds of a named kind": (lambda path: list(read_seeds(path, "dolly")), "instruction, context, response"),
    "a mix of seeds": (lambda path: sample_seeds({"a": SeedSource(paths=(path,))}, {"a": 1.0}, 1, 0), "instruction"),
    "ratings": (lambda path: read_ratings([path]), "item"),
    "own answers": (read_self_answers, "solves"),
}


@pytest.mark.parametrize(("read", "expected"), READERS.values(), ids=READERS)
def test_a_file_of_another_shape_is_an_error_that_names_file_and_fields(tmp_path, read, expected):
    path = tmp_path / "other.json"
    path.write_text(json.dumps([{"colour": "red", "weight": 3}, {"colour": "blue", "weight": 4}]))
    with pytest.raises(InputError) as caught:
        read(str(path))
    missing = [part for part in (str(path), expected, "colour, weight") if part not in str(caught.value)]
    assert missing == []


@pytest.mark.parametrize("read", [read for read, _ in READERS.values()], ids=READERS)
def test_a_file_that_cannot_be_read_any_further_is_an_error_in_every_reader(tmp_path, read):
    path = tmp_path / "broken.json"
    path.write_text('[{"colour": "red",,}, {"colour": "blue"}]')
    with pytest.raises(InputError, match=r"broken\.json: ?(1: broken JSON list|cannot read): Expecting property name"):
        read(str(path))


def test_rows_of_the_right_fields_and_wrong_values_are_no_use_either(tmp_path):
    path = tmp_path / "chosen.jsonl"
    path.write_text('{"prompt": "q", "chosen": 7, "rejected": "b"}\n' * 3)
    with pytest.raises(InputError, match=r"no usable rows \(3 read\); first reject: .*:1: .*fields are prompt, "):
        import_benchmark("preferences", [str(path)], tmp_path / "out.jsonl")


def number(row):
    if row.data["a"] != 1:
        raise InputError(f"{row.file}:{row.line}: not a number")
    return 1


def test_one_usable_row_is_enough_and_the_others_are_rejects(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": 1}\n{"a": "x"}\nno JSON\n')
    rejects = []
    values = convert_rows(read_rows(str(path)), number, path=str(path), expected="a", on_reject=rejects.append)
    assert list(values) == [1]
    assert [reject.line for reject in rejects] == [2, 3]


def test_rejects_are_counted_by_reason_with_the_first_place():
    counts = RejectCounts([Reject("f", line, f'id "{line}" appeared before', "") for line in (3, 5)])
    counts(Reject("f", 9, "no question", ""))
    assert counts.lines() == ["2 rows: id ... appeared before (first: f:3)", "f:9: no question"]
