"""`judgelm train` trains as the recipe does."""

import importlib.util

import pytest
import torch
from safetensors.torch import load_file

from tests.support.in_process import exit_code
from tests.support.recipe_runs import configure, run_here


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ((), ["trl"]),
        (("--load_in_4bit",), ["bitsandbytes", "trl"]),
        (("--optim", "paged_adamw_32bit"), ["bitsandbytes", "trl"]),
        (("--eval_data", "rows.jsonl"), ["scikit-learn", "trl"]),
        (("--accelerate", "zero3"), ["deepspeed", "trl"]),
        (("--accelerate", "ddp"), ["trl"]),
    ],
)
def test_missing_packages_are_those_that_the_recipe_uses(train_file, tmp_path, monkeypatch, capsys, flags, named):
    hidden, find = {"trl", "bitsandbytes", "deepspeed", "sklearn", "datasketch"}, importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name in hidden else find(name, *rest))
    config = configure(tmp_path, train_data=[train_file])
    assert exit_code("judgelm", "train", "sft", "--config", config, *flags) == 1
    error = capsys.readouterr().err.replace("\n", " ")
    assert f"{', '.join(named)} not installed; run: pip install " in error
    assert "trl<1.17,>=1.16" in error or "trl>=1.16,<1.17" in error


def test_the_command_trains_what_the_recipe_trains(tiny_model, train_file, tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    settings = {"model_name_or_path": str(tiny_model), "train_data": [str(train_file)], "max_steps": 1}
    assert run_here(configure(tmp_path / "recipe", **settings)) is None
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    config = configure(tmp_path / "command", **settings | {"train_data": []})
    try:
        assert exit_code("judgelm", "train", "sft", "--config", config, "--train_data", train_file) == 0
    finally:
        torch.set_num_threads(threads)
    weights = [load_file(tmp_path / name / "out/model.safetensors") for name in ("recipe", "command")]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
