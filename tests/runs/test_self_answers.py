"""A judge's own answers, taken from an earlier run file."""

import json
from dataclasses import replace

import pytest

from judgelm.data.judged_texts import text_hashes
from judgelm.errors import InputError
from judgelm.records import Sample
from judgelm.runs.answers import read_self_answers, with_self_answers

OWN = [{"text": "2 + 2 is 4", "answer": "4"}, {"text": "no idea", "answer": None}]


def written(path, *rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def test_samples_get_their_own_answers_by_id(tmp_path):
    solves = read_self_answers(written(tmp_path / "run.jsonl", {"id": "1", "solves": OWN}, {"id": "2"}))
    samples = [Sample(id=name, question="q", answers=("a", "b"), metadata={"kind": "sum"}) for name in ("1", "2")]
    first, second = (with_self_answers(sample, solves) for sample in samples)
    assert first.metadata == {"kind": "sum", "solves": OWN}
    assert second == samples[1]


def test_answers_to_another_question_are_refused(tmp_path):
    sample = Sample(id="1", question="q", answers=("a", "b"))
    row = {"id": "1", "solves": OWN, "hashes": {"question": text_hashes(sample).question, "answers": []}}
    solves = read_self_answers(written(tmp_path / "run.jsonl", row))
    assert with_self_answers(sample, solves).metadata["solves"] == OWN
    with pytest.raises(InputError, match='id "1": the judge\'s own answers under this id are to another question'):
        with_self_answers(replace(sample, question="p"), solves)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": "1", "verdict": None}], "no judgment has own answers"),
        ([{"id": "1", "solves": ["4"]}], "run.jsonl:1: expected a judgment with id and solves"),
        ([{"question": "q"}], "run.jsonl:1: expected a judgment with id and solves"),
    ],
)
def test_what_is_no_run_file_with_own_answers_is_refused(tmp_path, rows, message):
    with pytest.raises(InputError, match=message):
        read_self_answers(written(tmp_path / "run.jsonl", *rows))
