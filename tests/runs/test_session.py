"""Engine processes that outlive a killed run: found by their mark, ended; those of a living run left alone."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from judgelm.runs.process_cleanup import end_orphans
from tests.support.batch_runs import alive

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="needs Linux's /proc")

PARENT = """
import multiprocessing, os, subprocess, sys, time
from judgelm.runs.process_cleanup import children, mark_children
mark_children(sys.argv[1])
sleep = "import time; print('up', flush=True); time.sleep(600)"
titled = "import setproctitle; setproctitle.setproctitle('a title' * 30); " + sleep
stubborn = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + sleep
if sys.argv[2] == "worker":  # as vLLM starts its own
    child = multiprocessing.get_context("spawn").Process(target=time.sleep, args=(600,))
    child.start()
else:
    child = subprocess.Popen([sys.executable, "-c", {"stubborn": stubborn, "titled": titled}.get(sys.argv[2], sleep)],
                             start_new_session=True, stdout=subprocess.PIPE)
    child.stdout.readline()
while child.pid not in children(sys.argv[1]):  # until it is a program of its own
    time.sleep(0.01)
print(child.pid, flush=True)
sys.stdin.read()
"""


@pytest.fixture
def run(tmp_path):
    """Start a parent with a marked child; both ids. Whatever is left is killed by its id."""
    started = []

    def start(out, kind="meek"):
        command = [sys.executable, "-c", PARENT, str(out), kind]
        parent = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        child = int(parent.stdout.readline())
        started.append((parent, child))
        return parent, child

    yield start
    for parent, child in started:
        parent.kill()
        parent.wait()
        parent.stdin.close()
        parent.stdout.close()
        if alive(child):
            os.kill(child, signal.SIGKILL)


def test_the_child_of_a_killed_run_is_ended(run, tmp_path, monkeypatch):
    out = tmp_path / "out.jsonl"
    parent, child = run(out)
    parent.kill()
    parent.wait()
    assert alive(child), "or else there is nothing to end"
    monkeypatch.chdir(tmp_path)
    assert end_orphans("out.jsonl") == [child]  # the same file, named otherwise
    assert not alive(child)
    assert end_orphans("out.jsonl") == []


def test_what_ignores_sigterm_is_killed(run, tmp_path):
    parent, child = run(tmp_path / "out.jsonl", "stubborn")
    parent.kill()
    parent.wait()
    assert end_orphans(str(tmp_path / "out.jsonl"), grace_s=0.2) == [child]
    until = time.monotonic() + 5
    while alive(child) and time.monotonic() < until:
        time.sleep(0.01)
    assert not alive(child)


def test_a_worker_of_multiprocessing_is_ended_with_its_helpers(run, tmp_path):
    out = str(tmp_path / "out.jsonl")
    parent, child = run(out, "worker")
    parent.kill()
    parent.wait()
    assert child in end_orphans(out)  # and Python's resource tracker, which ends with it
    assert not alive(child)
    assert end_orphans(out) == []


def test_a_living_run_keeps_its_children(run, tmp_path):
    parent, child = run(tmp_path / "out.jsonl")
    assert end_orphans(str(tmp_path / "out.jsonl")) == []
    assert alive(child)
    parent.kill()
    parent.wait()
    assert end_orphans(str(tmp_path / "other.jsonl")) == []  # nor does another file's end those of a dead one
    assert alive(child)


def test_a_process_with_a_title_of_its_own_keeps_its_mark(run, tmp_path):
    # vLLM's do so; the title is written over the beginning of the environment
    pytest.importorskip("setproctitle", reason="setproctitle is not installed: pip install -e '.[vllm]'")
    out = tmp_path / "out.jsonl"
    parent, child = run(out, "titled")
    parent.kill()
    parent.wait()
    assert end_orphans(str(out)) == [child]
    assert not alive(child)
