"""Memory that this process can have: the machine's, or what its control groups leave."""

import threading
from types import SimpleNamespace

import psutil
import pytest
import torch

from judgelm.engines.dtype import available_bytes
from judgelm.engines.transformers.batch import PassThread

_MIB = 1 << 20


def write(root, files):
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


@pytest.fixture(autouse=True)
def machine(monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=4 * _MIB))


def test_without_groups_the_machine_decides(tmp_path):
    assert available_bytes(tmp_path) == 4 * _MIB


@pytest.mark.parametrize("stat", ["inactive_file 0\n", "anon 9\ninactive_file 1048576\n"])
def test_a_container_leaves_less(tmp_path, stat):
    group = "sys/fs/cgroup/job"
    files = {"memory.max": f"{3 * _MIB}\n", "memory.current": f"{2 * _MIB}\n", "memory.stat": stat}
    write(tmp_path, {"proc/self/cgroup": "0::/job\n"} | {f"{group}/{n}": t for n, t in files.items()})
    # 3 - 2 MiB, and the 1 MiB of cached files
    assert available_bytes(tmp_path) == (2 if "1048576" in stat else 1) * _MIB


def test_the_tightest_of_nested_groups_counts(tmp_path):
    full = {"memory.max": "max\n", "memory.current": "5\n", "memory.stat": ""}
    outer = {"memory.max": f"{_MIB}\n", "memory.current": "24\n", "memory.stat": ""}
    write(tmp_path, {"proc/self/cgroup": "0::/slice/job\n"})
    write(tmp_path / "sys/fs/cgroup/slice/job", full)
    write(tmp_path / "sys/fs/cgroup/slice", outer)
    assert available_bytes(tmp_path) == _MIB - 24


def test_the_older_kind_of_group_counts_too(tmp_path):
    files = {
        "memory.limit_in_bytes": "100\n",
        "memory.usage_in_bytes": "60\n",
        "memory.stat": "total_inactive_file 7\n",
    }
    write(tmp_path, {"proc/self/cgroup": "9:name=systemd:/\n4:memory:/of/the/host\n0::/\n"})
    write(tmp_path / "sys/fs/cgroup/memory", files)  # in a container only the mount itself is there
    assert available_bytes(tmp_path) == 47


def test_a_group_over_its_limit_leaves_nothing(tmp_path):
    write(tmp_path, {"proc/self/cgroup": "0::/\n"})
    write(tmp_path / "sys/fs/cgroup", {"memory.max": "10\n", "memory.current": "12\n", "memory.stat": ""})
    assert available_bytes(tmp_path) == 0


def test_passes_go_on_in_another_thread_after_onednn_had_no_memory_for_code():
    # The words alone: where code really finds no memory, oneDNN sometimes ends the process (test_engine.py has memory
    # that is really short).
    def run_out(words):
        raise RuntimeError(words)

    thread = PassThread()
    for words in ("can't allocate memory", "could not create a primitive descriptor for a matmul"):
        with pytest.raises(RuntimeError, match=words):
            thread.run(run_out, words)
        assert thread.run(threading.get_ident) == threading.get_ident()
    with pytest.raises(RuntimeError, match="could not create a primitive"):
        thread.run(run_out, "could not create a primitive")
    assert thread.run(threading.get_ident) != threading.get_ident()
    assert thread.run(torch.is_inference_mode_enabled)


def test_a_request_that_is_alone_in_a_pass_is_tried_in_the_other_thread_before_it_fails():
    def run_out():
        tried.append(threading.get_ident())
        if len(tried) != 2:
            raise RuntimeError("could not create a primitive")
        return "done"

    tried: list[int] = []
    thread = PassThread()
    assert thread.run(run_out, alone=True) == "done"
    assert tried[0] == threading.get_ident() != tried[1]
    with pytest.raises(RuntimeError, match="could not create a primitive"):
        thread.run(run_out, alone=True)
    assert tried[2:] == tried[1:2]
