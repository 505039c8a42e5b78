"""A judge's own answers, taken from an earlier run file."""

from dataclasses import replace

import pytest

from judgelm.data.generators import for_task, parse_generator, with_samples
from judgelm.data.judged_texts import text_hashes
from judgelm.errors import ConfigError, InputError, ModelError
from judgelm.records import Sample
from judgelm.runs.answers import collect, read_self_answers, with_self_answers
from judgelm.runs.run_files import read_manifest
from tests.support.jsonl_files import write_rows

OWN = [{"text": "2 + 2 is 4", "answer": "4"}, {"text": "no idea", "answer": None}]
ANSWER = {"id": "1", "question_id": "0", "decoding_method": "d"}


def read(tmp_path, *rows):
    return read_self_answers(str(write_rows(tmp_path / "run.jsonl", rows)))


def test_samples_get_their_own_answers_by_id_and_to_the_same_question(tmp_path):
    first, second = (Sample(id=key, question="q", answers=("a", "b"), metadata={"kind": "sum"}) for key in ("1", "2"))
    hashes = {"question": text_hashes(first).question, "answers": []}
    for row in ({"id": "1", "solves": OWN}, {"id": "1", "solves": OWN, "hashes": hashes}):
        solves = read(tmp_path, row, {"id": "2"})
        assert with_self_answers(first, solves).metadata == {"kind": "sum", "solves": OWN}
        assert with_self_answers(second, solves) == second
    with pytest.raises(InputError, match='id "1": these answers are for a different question'):
        with_self_answers(replace(first, question="p"), solves)


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ([{"id": "1", "verdict": None}], "no self-answers"),
        ([ANSWER | {"text": None, "failure": {"code": "engine"}}], "no self-answers"),
        ([{"id": "1", "solves": ["4"]}], "run.jsonl:1: expected an id, and solves"),
        ([{"question": "q"}], "run.jsonl:1: expected an id, and solves"),
    ],
)
def test_what_is_no_run_file_with_own_answers_is_refused(tmp_path, rows, message):
    with pytest.raises(InputError, match=message):
        read(tmp_path, *rows)


QUESTIONS = [
    Sample(id=str(index), question=f"q{index}", answers=(), metadata={"options": ["x", "y"]}) for index in range(2)
]
GENERATOR = parse_generator("name=judge,engine=scripted,model=The answer is (B).")


def test_collected_samples_are_a_judges_own_answers(tmp_path):
    generator = with_samples(for_task(GENERATOR, "choice"), 12, 0.7)
    collect(QUESTIONS, generator, tmp_path / "judge.jsonl")
    own = read_self_answers(str(tmp_path / "judge.jsonl"))
    assert own.solves == {key: [{"text": "The answer is (B).", "answer": "B"}] * 12 for key in ("0", "1")}
    row = Sample(id="0/agent", question="q0", answers=("a",), metadata={"source_id": "0"})
    assert with_self_answers(row, own).metadata["solves"] == own.solves["0"]
    assert with_self_answers(QUESTIONS[1], own).metadata["solves"] == own.solves["1"]


def test_answers_come_in_the_order_of_their_seeds_and_failures_are_left_out(tmp_path):
    rows = [
        ANSWER | {"id": f"0#temperature=0.7,seed={seed}#ab", "text": text, "failure": None if text else {"code": "x"}}
        for seed, text in ((10, "ten"), (2, "two"), (3, None))
    ]
    assert [solve["text"] for solve in read(tmp_path, *rows).solves["0"]] == ["two", "ten"]


@pytest.mark.parametrize(("count", "temperature"), [(0, 0.7), (2, 0.0)])
def test_samples_that_cannot_be_are_refused(count, temperature):
    with pytest.raises(ConfigError, match=f"--samples {count}"):
        with_samples(GENERATOR, count, temperature)


def test_a_judges_name_is_its_weights_and_a_folder_that_is_not_there_is_refused_at_once(small_judge, tmp_path):
    generator = parse_generator("name=own,model=small-judge,form=plain,max_tokens=2")
    collect(QUESTIONS, generator, tmp_path / "own.jsonl")
    manifest = read_manifest(tmp_path / "own.jsonl")
    assert manifest["fingerprint"]["model"]["adapter"] == str(small_judge)
    with pytest.raises(ModelError, match="no/such/folder: no such folder"):
        collect(QUESTIONS, parse_generator("name=own,model=no/such/folder"), tmp_path / "none.jsonl")
