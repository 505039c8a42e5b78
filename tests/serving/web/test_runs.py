"""Run files with their texts, and label files: reread by later pages and `judgelm eval`, complete after faults."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from judgelm.data.judged_texts import text_hashes
from judgelm.data.labelled_set import read_labels
from judgelm.data.samples import Reading
from judgelm.errors import InputError, RunError
from judgelm.judge import Judge
from judgelm.runs.batch import BatchHooks, BatchJob, run_batch
from judgelm.serving.web.browse_state import start_browsing
from judgelm.serving.web.label_file import LabelFile, label_file_of_upload
from judgelm.serving.web.runs import OpenRun, flips, open_run, open_runs, read_winners
from tests.support.jsonl_files import rows_of, write_rows
from tests.support.judged_items import failed_judgment, pair_judgment, pair_sample, write_pairs, write_run

SAMPLES = [pair_sample(str(number)) for number in range(3)]
HASHED = [replace(pair_judgment(sample.id, 1), hashes=text_hashes(sample)) for sample in SAMPLES]
JUDGMENTS = [pair_judgment(key, 1) for key in "abc"]


def test_texts_are_joined_by_id(tmp_path):
    texts = write_pairs(tmp_path / "pairs.jsonl", [SAMPLES[2], SAMPLES[0]])
    run = open_run(write_run(tmp_path / "run.jsonl", HASHED), texts)
    assert {key: sample.answers[0] for key, sample in run.samples.items()} == {"2": "first 2", "0": "first 0"}
    assert run.notes == ("1 of 3 judgments have no matching row.",)
    assert "Add the judged file" in open_run(tmp_path / "run.jsonl").notes[0]


def test_the_texts_of_a_run_are_found_until_they_change(tmp_path):
    pairs = write_pairs(tmp_path / "pairs.jsonl", SAMPLES)
    with Judge("8 6", engine="scripted") as judge:
        judge.judge_file(str(pairs), out=str(tmp_path / "run.jsonl"))
    assert open_run(tmp_path / "run.jsonl").samples.keys() == {"0", "1", "2"}
    write_pairs(tmp_path / "pairs.jsonl", SAMPLES[:2])
    assert open_run(tmp_path / "run.jsonl").samples == {}


@pytest.mark.parametrize(
    ("lines", "message"),
    [("", "no judgments found"), ('{"a": 1}\n', "1: not a valid judgment"), ("{", "1: not valid JSON")],
)
def test_other_files_are_refused_with_their_location(tmp_path, lines, message):
    (tmp_path / "run.jsonl").write_text(lines)
    with pytest.raises(InputError, match=message):
        open_run(tmp_path / "run.jsonl")


def test_texts_of_something_else_are_refused(tmp_path):
    texts = write_pairs(tmp_path / "others.jsonl", [pair_sample("elsewhere")])
    with pytest.raises(InputError, match=r"others.jsonl: no id matches the run file.*'0'"):
        open_run(write_run(tmp_path / "run.jsonl", HASHED), texts)


def test_runs_with_the_same_name_are_named_by_path(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    paths = [write_run(tmp_path / folder / "run.jsonl", HASHED) for folder in "ab"]
    assert [run.name for run in open_runs(paths)] == [str(path) for path in paths]


def test_flips_are_known_if_both_orders_are_readable():
    pairs = [pair_judgment("1", 1, swapped=swapped) for swapped in ((6.0, 8.0), (8.0, 6.0), None)]
    assert [flips(judgment) for judgment in (*pairs, failed_judgment("1"))] == [False, True, None, None]


def test_earlier_labels_are_read(tmp_path):
    (tmp_path / "labels.jsonl").write_text('{"id": "0", "winner": 1}\n{"id": "1", "winner": "tie"}\n')
    run = OpenRun(name="run", judgments={key: pair_judgment(key, 1) for key in ("0", "1")})
    assert read_winners(tmp_path / "labels.jsonl", run) == {"0": 1, "1": "tie"}


def test_labels_and_texts_follow_the_judged_order(tmp_path):
    samples = SAMPLES[:2]
    exchanged = [replace(sample, answers=sample.answers[::-1]) for sample in samples]
    run = open_run(write_run(tmp_path / "run.jsonl", HASHED[:2]), write_pairs(tmp_path / "pairs.jsonl", exchanged))
    assert [run.samples[sample.id].answers for sample in samples] == [sample.answers for sample in samples]
    assert any("2 of 2 rows have the answers in a different order" in note for note in run.notes)
    rows = [row | {"winner": 1} for row in rows_of(tmp_path / "pairs.jsonl")]
    write_rows(tmp_path / "labels.jsonl", rows)
    assert read_winners(tmp_path / "labels.jsonl", run) == {"0": 2, "1": 2}
    other = write_pairs(tmp_path / "other.jsonl", [pair_sample("0", question="another")])
    with pytest.raises(InputError, match='id "0": the question differs'):
        open_run(tmp_path / "run.jsonl", other)


NAMED = {"question": "Prompt", "answer_1": "Ours", "answer_2": "Theirs"}


def test_a_table_with_custom_column_names_is_opened_with_its_run_or_with_the_names(tmp_path):
    table = tmp_path / "pairs.csv"
    table.write_text("id,Prompt,Ours,Theirs,Urteil\n1,q,a,b,links\n2,q2,a,b,rechts\n")
    job = BatchJob(inputs=(str(table),), out=str(tmp_path / "run.jsonl"), reading=Reading(columns=NAMED))
    with Judge("8 6", engine="scripted") as judge:
        run_batch(job, judge.pairwise(), judge.engine, hooks=BatchHooks())
    path = tmp_path / "run.jsonl"
    run = open_run(path)
    assert [sample.question for sample in run.samples.values()] == ["q", "q2"]
    options = " ".join(f"--column {name}={column}" for name, column in NAMED.items())
    assert run.notes == (f"{table}: read with the same options as the run: {options}",)
    reading = Reading(columns=NAMED | {"winner": "Urteil"}, label_code={"links": 1, "rechts": 2})
    assert read_winners(table, run, reading) == {"1": 1, "2": 2}
    path.with_name("run.run.json").unlink()
    with pytest.raises(InputError, match="--column question=prompt --column answer_1=Ours"):
        open_run(path, table)
    assert len(open_run(path, table, reading=Reading(columns=NAMED)).samples) == 2


@pytest.fixture
def run_file(tmp_path):
    return write_run(tmp_path / "run.jsonl", JUDGMENTS)


@pytest.fixture
def labels(tmp_path):
    return LabelFile(tmp_path / "run.labels.jsonl")


@pytest.fixture
def small_disk(tmp_path):
    """A file system with room for one file."""
    place = tmp_path / "disk"
    place.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", str(place)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        pytest.skip("needs the right to mount a small file system")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def test_labels_are_there_when_the_run_is_opened_again(run_file, labels):
    start_browsing(open_run(run_file)).labelled(1).labelled("tie").labelled(2)
    again = start_browsing(open_run(run_file))
    assert again.labels == {"a": 1, "b": "tie", "c": 2}
    again.at("a").labelled(2)  # changed
    again.at("b").labelled(None)  # removed
    assert start_browsing(open_run(run_file)).labels == {"a": 2, "c": 2}
    evaluated = read_labels(str(labels.path))
    assert {key: label.winner for key, label in evaluated.labels.items()} == {"a": 2, "c": 2}
    assert evaluated.rejected == 0


def test_saved_labels_override_earlier_labels_opened_with_the_run(run_file, labels):
    labels.put("a", 1)
    now = start_browsing(open_run(run_file), labels={"a": 2, "b": 2})
    assert now.labels == {"a": 1, "b": 2}
    assert now.at("b").labelled(None).labels == {"a": 1}


def test_an_uploaded_run_finds_its_labels_when_it_is_uploaded_again(tmp_path, run_file):
    start_browsing(open_run(run_file, uploaded=True)).labelled(2)
    (tmp_path / "again").mkdir()
    same = write_run(tmp_path / "again" / "run.jsonl", JUDGMENTS)
    assert start_browsing(open_run(same, uploaded=True)).labels == {"a": 2}
    other = write_run(tmp_path / "again" / "run.jsonl", JUDGMENTS[:2])  # of the same name
    assert start_browsing(open_run(other, uploaded=True)).labels == {}
    assert label_file_of_upload(run_file).path.is_relative_to(os.environ["XDG_STATE_HOME"])
    assert list(tmp_path.glob("*.labels.jsonl")) == []  # not next to the upload, which is temporary


def test_concurrent_writers_lose_no_label(labels):
    keys, patience = [str(number) for number in range(200)], sys.getswitchinterval()
    sys.setswitchinterval(1e-5)  # threads switch so often that a race for the lock occurs
    try:
        with ThreadPoolExecutor(8) as writers:
            list(writers.map(lambda key: LabelFile(labels.path).put(key, 1), keys))
    finally:
        sys.setswitchinterval(patience)
    assert (labels.read(), list(labels.path.parent.glob("*.tmp"))) == (dict.fromkeys(keys, 1), [])


def test_labels_of_other_pages_are_seen(run_file, labels):
    mine = start_browsing(open_run(run_file))
    labels.put("c", 2)
    assert mine.labelled(1).labels == {"a": 1, "c": 2}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "a", "winner": 1, "reason": "r"}', "run.labels.jsonl:2: expected only"),
        *(('{"id": "a", "winner": 3}', "run.labels.jsonl:2: .*winner"), ("{", "run.labels.jsonl:2: not valid JSON")),
    ],
)
def test_a_foreign_file_is_never_overwritten(run_file, labels, line, message):
    labels.put("c", 1)
    written = labels.path.read_text() + line + "\n"
    labels.path.write_text(written)
    with pytest.raises(InputError, match=message):
        start_browsing(open_run(run_file))
    with pytest.raises(InputError, match=message):
        labels.put("b", 1)
    assert labels.path.read_text() == written


def test_a_full_disk_refuses_the_label_and_keeps_the_others(small_disk):
    labels = LabelFile(small_disk / "run.labels.jsonl")
    labels.path.write_text(json.dumps({"id": "a", "winner": 1}) + "\n")  # fills the disk
    with pytest.raises(RunError, match="cannot save the label: No space left on device"):
        labels.put("b", 2)
    assert (labels.read(), list(small_disk.iterdir())) == ({"a": 1}, [labels.path])


def test_a_label_that_cannot_be_saved_is_not_set(run_file, labels):
    now = start_browsing(open_run(run_file))
    labels.path.with_suffix(".tmp").mkdir()  # fails like a read-only folder, also for root
    with pytest.raises(RunError, match="cannot save the label: Is a directory"):
        now.labelled(1)
    assert start_browsing(open_run(run_file)).labels == {}


@pytest.mark.distributed
def test_labels_survive_a_killed_process(run_file):
    code = (
        "import os, sys; from judgelm.serving.web.browse_state import start_browsing; "
        "from judgelm.serving.web.runs import open_run; "
        "start_browsing(open_run(sys.argv[1])).labelled(1).labelled(2); os.kill(os.getpid(), 9)"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(run_file)], check=False)
    assert killed.returncode == -signal.SIGKILL
    assert start_browsing(open_run(run_file)).labels == {"a": 1, "b": 2}
