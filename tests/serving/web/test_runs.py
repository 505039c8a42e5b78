"""Run files and their texts."""

import json
from dataclasses import replace

import pytest

from judgelm.data.judged_texts import text_hashes
from judgelm.data.samples import Reading
from judgelm.errors import InputError
from judgelm.judge import Judge
from judgelm.runs.batch import BatchHooks, BatchJob, run_batch
from judgelm.serving.web.runs import OpenRun, flips, open_run, open_runs, read_winners
from tests.support.judged_items import failed_judgment, pair_judgment, pair_sample, write_pairs, write_run

SAMPLES = [pair_sample(str(number)) for number in range(3)]
JUDGMENTS = [replace(pair_judgment(each.id, 1), hashes=text_hashes(each)) for each in SAMPLES]


def test_texts_are_joined_by_id(tmp_path):
    texts = write_pairs(tmp_path / "pairs.jsonl", [SAMPLES[2], SAMPLES[0]])
    run = open_run(write_run(tmp_path / "run.jsonl", JUDGMENTS), texts)
    assert {key: sample.answers[0] for key, sample in run.samples.items()} == {"2": "first 2", "0": "first 0"}
    assert run.notes == ("1 of 3 judgments have no matching row.",)


def test_the_texts_of_a_run_are_found_until_they_change(tmp_path):
    pairs = write_pairs(tmp_path / "pairs.jsonl", SAMPLES)
    with Judge("8 6", engine="scripted") as judge:
        judge.judge_file(str(pairs), out=str(tmp_path / "run.jsonl"))
    assert open_run(tmp_path / "run.jsonl").samples.keys() == {"0", "1", "2"}
    write_pairs(tmp_path / "pairs.jsonl", SAMPLES[:2])
    assert open_run(tmp_path / "run.jsonl").samples == {}


def test_a_run_without_texts_has_a_note(tmp_path):
    run = open_run(write_run(tmp_path / "run.jsonl", JUDGMENTS))
    assert "Add the judged file" in run.notes[0]


@pytest.mark.parametrize(
    ("lines", "message"),
    [("", "no judgments found"), ('{"a": 1}\n', "1: not a judgment"), ("{", "1: not valid JSON")],
)
def test_other_files_are_refused_with_their_location(tmp_path, lines, message):
    (tmp_path / "run.jsonl").write_text(lines)
    with pytest.raises(InputError, match=message):
        open_run(tmp_path / "run.jsonl")


def test_texts_of_something_else_are_refused(tmp_path):
    texts = write_pairs(tmp_path / "others.jsonl", [pair_sample("elsewhere")])
    with pytest.raises(InputError, match=r"others.jsonl: no id matches the run file \(which contains '0'\)"):
        open_run(write_run(tmp_path / "run.jsonl", JUDGMENTS), texts)


def test_runs_with_the_same_name_are_named_by_path(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    paths = [write_run(tmp_path / folder / "run.jsonl", JUDGMENTS) for folder in "ab"]
    assert [run.name for run in open_runs(paths)] == [str(path) for path in paths]


def test_flips_are_known_if_both_orders_are_readable():
    assert flips(pair_judgment("1", 1, swapped=(6.0, 8.0))) is False
    assert flips(pair_judgment("1", 1, swapped=(8.0, 6.0))) is True
    assert flips(pair_judgment("1", 1)) is None
    assert flips(failed_judgment("1")) is None


def test_earlier_labels_are_read(tmp_path):
    (tmp_path / "labels.jsonl").write_text('{"id": "0", "winner": 1}\n{"id": "1", "winner": "tie"}\n')
    run = OpenRun(name="run", judgments={key: pair_judgment(key, 1) for key in ("0", "1")})
    assert read_winners(tmp_path / "labels.jsonl", run) == {"0": 1, "1": "tie"}


def test_labels_and_texts_follow_the_judged_order(tmp_path):
    samples = [pair_sample(key) for key in ("0", "1")]
    judged = [replace(pair_judgment(each.id, 1), hashes=text_hashes(each)) for each in samples]
    exchanged = [replace(each, answers=each.answers[::-1]) for each in samples]
    run = open_run(write_run(tmp_path / "run.jsonl", judged), write_pairs(tmp_path / "pairs.jsonl", exchanged))
    assert [run.samples[each.id].answers for each in samples] == [each.answers for each in samples]
    assert "2 of 2 rows have the answers in a different order and were reordered." in run.notes
    rows = [json.loads(line) | {"winner": 1} for line in (tmp_path / "pairs.jsonl").read_text().splitlines()]
    (tmp_path / "labels.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert read_winners(tmp_path / "labels.jsonl", run) == {"0": 2, "1": 2}
    other = write_pairs(tmp_path / "other.jsonl", [pair_sample("0", question="another")])
    with pytest.raises(InputError, match='id "0": the question differs'):
        open_run(tmp_path / "run.jsonl", other)


NAMED = {"question": "Prompt", "answer_1": "Ours", "answer_2": "Theirs"}


@pytest.fixture
def named_columns(tmp_path):
    """A table with custom column names, and its run."""
    table = tmp_path / "pairs.csv"
    table.write_text("id,Prompt,Ours,Theirs,Urteil\n1,q,a,b,links\n2,q2,a,b,rechts\n")
    job = BatchJob(inputs=(str(table),), out=str(tmp_path / "run.jsonl"), reading=Reading(columns=NAMED))
    with Judge("8 6", engine="scripted") as judge:
        run_batch(job, judge.pairwise(), judge.engine, hooks=BatchHooks())
    return table, tmp_path / "run.jsonl"


def test_a_table_is_opened_by_the_names_of_its_run(named_columns):
    table, path = named_columns
    run = open_run(path)
    assert [sample.question for sample in run.samples.values()] == ["q", "q2"]
    assert run.notes == (
        f"{table}: read with the same options as the run: " + " ".join(f"--column {n}={c}" for n, c in NAMED.items()),
    )


def test_an_uploaded_table_needs_its_names(named_columns):
    table, path = named_columns
    path.with_name("run.run.json").unlink()
    with pytest.raises(InputError, match="--column question=prompt --column answer_1=Ours"):
        open_run(path, table)
    assert len(open_run(path, table, reading=Reading(columns=NAMED)).samples) == 2


def test_labels_are_read_by_the_names_that_are_given(named_columns):
    table, path = named_columns
    code = {"links": 1, "rechts": 2}
    reading = Reading(columns=NAMED | {"winner": "Urteil"}, label_code=code)
    assert read_winners(table, open_run(path), reading) == {"1": 1, "2": 2}
