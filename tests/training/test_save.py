"""A finished judge is written in the dtype that it is read in, its checkpoints in the one that training has."""

import json

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM
from trl import SFTConfig

from benchmarks.synthetic.pairs import generate
from judgelm.data.training_questions import hashes_of_files, read_hashes
from judgelm.errors import ConfigError
from judgelm.training.arguments import save_dtype_of
from judgelm.training.trainer import cast_weights
from tests.support import recipe_runs


@pytest.fixture(scope="module")
def settings(tiny_model, tmp_path_factory):
    path = tmp_path_factory.mktemp("world") / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in generate(24, seed=0, split="train")))
    return {
        "model_name_or_path": str(tiny_model), "train_data": [str(path)], "max_length": 384, "dtype": "float32",
        "max_steps": 2, "save_steps": 2, "bf16": True,
    }  # fmt: skip


def dtypes_of(file):
    return {tensor.dtype for tensor in load_file(file).values()}


def test_a_judge_trained_in_bf16_is_written_in_it_and_its_checkpoint_in_float32(settings, tmp_path):
    assert recipe_runs.run_here(recipe_runs.configure(tmp_path, **settings)) is None
    out = tmp_path / "out"
    assert dtypes_of(out / "model.safetensors") == {torch.bfloat16}
    assert json.loads((out / "config.json").read_text())["dtype"] == "bfloat16"
    assert json.loads((out / "judge.json").read_text())["training"]["dtype"] == "bfloat16"
    assert dtypes_of(out / "checkpoint-2/model.safetensors") == {torch.float32}
    assert json.loads((out / "checkpoint-2/config.json").read_text())["dtype"] == "float32"
    last, judge = load_file(out / "checkpoint-2/model.safetensors"), load_file(out / "model.safetensors")
    assert judge.keys() == last.keys()  # tied weights are written once
    assert all(torch.equal(judge[name], last[name].to(torch.bfloat16)) for name in last)
    assert AutoModelForCausalLM.from_pretrained(out).dtype == torch.bfloat16


def test_float32_is_written_where_it_is_asked_for(settings, tmp_path):
    asked = settings | {"save_dtype": "float32", "save_strategy": "no"}
    assert recipe_runs.run_here(recipe_runs.configure(tmp_path, **asked)) is None
    assert dtypes_of(tmp_path / "out/model.safetensors") == {torch.float32}
    assert json.loads((tmp_path / "out/judge.json").read_text())["training"]["dtype"] == "float32"


def test_an_adapter_is_written_as_it_was_trained(settings, tmp_path):
    lora = {"use_peft": True, "lora_r": 4, "lora_target_modules": ["q_proj", "v_proj"], "save_strategy": "no"}
    assert recipe_runs.run_here(recipe_runs.configure(tmp_path, **settings | lora)) is None
    assert dtypes_of(tmp_path / "out/adapter_model.safetensors") == {torch.float32}
    card = json.loads((tmp_path / "out/judge.json").read_text())
    assert card["training"]["dtype"] is None
    assert card["training"]["questions"]["count"] == len(hashes_of_files(settings["train_data"])) > 5
    assert read_hashes(tmp_path / "out") == hashes_of_files(settings["train_data"])


def test_a_dtype_that_cannot_be_written_is_refused():
    args = SFTConfig(bf16=True, use_cpu=True)
    assert save_dtype_of("auto", args) == torch.bfloat16
    assert save_dtype_of("float16", args) == torch.float16
    assert save_dtype_of("auto", SFTConfig(bf16=False, use_cpu=True)) is None
    with pytest.raises(ConfigError, match=r"save_dtype 'int8' does not exist; available: auto, bfloat16"):
        save_dtype_of("int8", args)
    args.deepspeed_plugin = object()
    with pytest.raises(ConfigError, match="DeepSpeed gathers the weights in 16 bits"):
        save_dtype_of("float32", args)


def test_shared_weights_stay_shared_and_whole_numbers_and_exempt_modules_as_they_are():
    table = torch.ones(3, 2)
    weights = {
        "embed.weight": table,
        "head.weight": table,
        "steps": torch.ones(1, dtype=torch.long),
        "gate.bias": table,
    }
    cast = cast_weights(weights, torch.bfloat16, {"gate"})
    assert cast["embed.weight"].dtype == torch.bfloat16
    assert cast["head.weight"] is cast["embed.weight"]
    assert (cast["steps"].dtype, cast["gate.bias"].dtype) == (torch.long, torch.float32)
