"""Locks of torch's extension builds."""

from types import SimpleNamespace

import torch

from judgelm.training.process_group import connect_processes


def test_a_lock_is_reported_before_deepspeed_waits_for_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    (tmp_path / "cpu_adam").mkdir()
    lock = tmp_path / "cpu_adam/lock"
    lock.touch()
    notes = []
    args = SimpleNamespace(world_size=1, deepspeed_plugin=object(), device=torch.device("cpu"))
    connect_processes(args, notes.append)
    assert [str(lock) in note for note in notes] == [True]
