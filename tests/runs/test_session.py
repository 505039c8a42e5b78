"""Engine processes that outlive a killed run: found by their mark, ended; those of a living run left alone."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from judgelm.runs.process_cleanup import end_orphans
from tests.support.batch_runs import alive, still_alive

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


def kill(parent):
    parent.kill()
    parent.wait()


@pytest.fixture
def run():
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
        kill(parent)
        parent.stdin.close()
        parent.stdout.close()
        if alive(child):
            os.kill(child, signal.SIGKILL)


@pytest.mark.parametrize("kind", ["meek", "worker", "titled", "stubborn"])
def test_the_child_of_a_killed_run_is_ended(run, tmp_path, monkeypatch, kind):
    if kind == "titled":  # as vLLM's are; the title is written over the beginning of the environment
        pytest.importorskip("setproctitle", reason="setproctitle is not installed: pip install -e '.[vllm]'")
    parent, child = run(tmp_path / "out.jsonl", kind)
    kill(parent)
    assert alive(child), "or else there is nothing to end"
    monkeypatch.chdir(tmp_path)
    ended = end_orphans(
        "out.jsonl", **({"grace_s": 0.2} if kind == "stubborn" else {})
    )  # the same file, named otherwise
    # Python's resource tracker ends with a worker; what ignores SIGTERM is killed, and takes its time
    assert child in ended if kind == "worker" else ended == [child]
    assert still_alive([child], grace_s=5 if kind == "stubborn" else 0) == []
    assert end_orphans("out.jsonl") == []


def test_a_living_run_keeps_its_children(run, tmp_path):
    parent, child = run(tmp_path / "out.jsonl")
    assert end_orphans(str(tmp_path / "out.jsonl")) == []
    assert alive(child)
    kill(parent)
    assert end_orphans(str(tmp_path / "other.jsonl")) == []  # nor does another file's end those of a dead one
    assert alive(child)
