"""Stale locks of torch's extension builds."""

import os
import subprocess
import sys
import time
from types import SimpleNamespace

import pytest
import torch

from judgelm.training.process_group import connect_processes, remove_stale_locks

HOUR_S = 3600


@pytest.fixture
def lock(tmp_path, monkeypatch):
    """A lock, the newest file of its folder, an hour old."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    path = tmp_path / "cpu_adam" / "lock"
    path.parent.mkdir()
    path.touch()
    make_older(path, HOUR_S)
    return path


def make_older(path, seconds):
    then = time.time() - seconds
    for each in (*path.parent.iterdir(), path.parent):
        os.utime(each, (then, then))


def test_a_stale_lock_is_removed_and_named_before_deepspeed_builds(lock):
    notes, alone = [], SimpleNamespace(world_size=1, deepspeed_plugin=object(), device=torch.device("cpu"))
    connect_processes(alone, notes.append)
    assert not lock.exists()
    assert [note.partition(" ago ")[0] for note in notes] == [f"removed {lock}: it was left 60 minutes"]


def test_a_lock_that_a_process_holds_is_left_however_old(lock):
    code = "import sys; file = open(sys.argv[1]); print(flush=True); sys.stdin.read()"
    command = [sys.executable, "-c", code, str(lock)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    holder.stdout.readline()
    remove_stale_locks(pytest.fail)
    assert lock.exists()
    holder.communicate()


def test_a_folder_that_changes_keeps_its_lock_until_it_is_quiet(lock):
    # the lock is an hour old, but an object file came 2 s ago, as from a build on another machine: 1 s to wait
    (lock.parent / "cpu_adam.o").touch()
    make_older(lock, 2)
    notes, began = [], time.monotonic()
    remove_stale_locks(notes.append, timeout_s=3)
    assert 0.5 < time.monotonic() - began < 30
    assert "another machine might; waiting 1 s" in notes[0]
    assert notes[1].startswith(f"removed {lock}: ")
