"""`judgelm train` trains as the recipe does."""

import torch
from safetensors.torch import load_file

from tests.support.in_process import exit_code
from tests.support.recipe_runs import configure, run_here


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
