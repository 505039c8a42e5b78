"""Label files: reread by later pages and `judgelm eval`, and complete after faults."""

import json
import os
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from judgelm.data.labelled_set import read_labels
from judgelm.errors import InputError, RunError
from judgelm.serving.web.browse_state import start_browsing
from judgelm.serving.web.label_file import LabelFile, label_file_of_upload
from judgelm.serving.web.runs import open_run
from tests.support.judged_items import pair_judgment, write_run

JUDGMENTS = [pair_judgment(key, 1) for key in "abc"]


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


@pytest.fixture
def impatient_threads():
    """Threads switch so often that a race for the lock occurs."""
    patience = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(patience)


def test_concurrent_writers_lose_no_label(labels, impatient_threads):
    keys = [str(number) for number in range(200)]
    with ThreadPoolExecutor(8) as writers:
        list(writers.map(lambda key: LabelFile(labels.path).put(key, 1), keys))
    assert labels.read() == dict.fromkeys(keys, 1)
    assert list(labels.path.parent.glob("*.tmp")) == []


def test_labels_of_other_pages_are_seen(run_file, labels):
    mine = start_browsing(open_run(run_file))
    labels.put("c", 2)
    assert mine.labelled(1).labels == {"a": 1, "c": 2}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ('{"id": "a", "winner": 1, "reason": "r"}', "run.labels.jsonl:2: expected only"),
        ('{"id": "a", "winner": 3}', "run.labels.jsonl:2: .*winner"),
        ("{", "run.labels.jsonl:2: not valid JSON"),
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
    assert labels.read() == {"a": 1}
    assert list(small_disk.iterdir()) == [labels.path]


def test_a_label_that_cannot_be_saved_is_not_set(run_file, labels):
    now = start_browsing(open_run(run_file))
    labels.path.with_suffix(".tmp").mkdir()  # fails like a read-only folder, also for root
    with pytest.raises(RunError, match="cannot save the label: Is a directory"):
        now.labelled(1)
    assert start_browsing(open_run(run_file)).labels == {}
