"""The numeric formats of a training on a CPU; oneDNN told to use AVX2 alone emulates bfloat16, as a Zen 3 does."""

import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from transformers.utils.import_utils import enable_tf32
from trl import ModelConfig

from benchmarks.synthetic.pairs import generate
from judgelm.training.config import JudgeArguments
from judgelm.training.precision import JudgeGRPOConfig, JudgeSFTConfig, settle_precision
from judgelm.training.tiny_model import make_base
from tests.support import recipe_runs

SHAPE = {"hidden_size": 64, "layers": 1, "heads": 2, "vocab_size": 400, "max_positions": 256, "seed": 0}
LORA = {"use_peft": True, "lora_r": 4, "lora_target_modules": ["all-linear"], "dtype": "auto"}


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    """A base saved in bfloat16, and 24 rows: 6 steps."""
    folder = tmp_path_factory.mktemp("precision")
    rows = list(generate(24, seed=0, split="train"))
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    make_base((json.dumps(row) for row in rows), folder / "base", **SHAPE, dtype=torch.bfloat16)
    return {
        "model_name_or_path": str(folder / "base"), "train_data": [str(folder / "rows.jsonl")], "num_train_epochs": 2,
        "save_total_limit": None,
    }  # fmt: skip


def train(config, *flags, **environment):
    """Run the recipe in a process of its own; what it says of formats, and all that it says."""
    command = [sys.executable, str(recipe_runs.ROOT / "train/sft.py"), "--config", str(config), *flags]
    done = subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [line.partition(" (")[0] for line in done.stdout.splitlines() if line[:5] in ("dtype", "bf16:")], done.stdout


def left_open(folder, **options):
    """A configuration that does not mention bf16."""
    config = recipe_runs.configure(folder, **options)
    config.write_text(json.dumps({k: v for k, v in json.loads(config.read_text()).items() if k != "bf16"}))
    return config


def test_a_run_keeps_the_formats_it_began_with_on_another_cpu(settings, tmp_path):
    config = left_open(tmp_path, **settings | LORA)
    formats, _ = train(config, ONEDNN_MAX_CPU_ISA="AVX2")
    assert formats == ["dtype: float32", "bf16: false"]
    (tmp_path / "out/judge.json").unlink()
    shutil.rmtree(tmp_path / "out/checkpoint-6")
    formats, said = train(config)  # on this machine's own CPU, which may compute bfloat16
    assert f"resumes from {tmp_path / 'out/checkpoint-3'}" in said
    assert formats == []
    card = json.loads((tmp_path / "out/judge.json").read_text())
    assert card["training"]["optimisation"]["precision"] == "float32"


def test_what_was_asked_for_stays_and_its_cost_is_said(settings, tmp_path):
    config = recipe_runs.configure(tmp_path, **settings, max_steps=1, save_strategy="no")
    formats, said = train(config, "--bf16", "true", ONEDNN_MAX_CPU_ISA="AVX2")
    assert formats == ["bf16: true, as configured"]
    assert "than float32; bf16: false makes it faster)" in said
    card = json.loads((tmp_path / "out/judge.json").read_text())
    assert card["training"]["optimisation"]["precision"] == "bf16"


@pytest.mark.parametrize(("bf16", "is_open"), [(None, True), (True, False), (False, False)])
def test_only_what_is_left_open_is_chosen(tmp_path, bf16, is_open):
    args = JudgeSFTConfig(output_dir=str(tmp_path), use_cpu=True, bf16=bf16)
    assert args.bf16_is_open is is_open
    assert args.bf16 is (bf16 is not False)


def test_formats_of_this_cpu_are_chosen_without_a_recipe(settings, tmp_path):
    judge = JudgeArguments(train_data=settings["train_data"])
    args = JudgeSFTConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False)
    model = ModelConfig(model_name_or_path=settings["model_name_or_path"], dtype="auto")
    [note] = settle_precision(judge, args, model)
    assert note.startswith(f"dtype: {model.dtype}")
    assert model.dtype in ("float32", "bfloat16")


@pytest.fixture
def gpu_with_tf32(monkeypatch):
    """transformers sees a GPU that has TF32; torch's switches are as before afterwards."""
    monkeypatch.setattr("transformers.training_args.is_torch_tf32_available", lambda: True)
    monkeypatch.delenv("VLLM_FLOAT32_MATMUL_PRECISION", raising=False)
    enable_tf32.cache_clear()
    yield
    torch.set_float32_matmul_precision("highest")
    torch.backends.fp32_precision = "none"
    os.environ.pop("VLLM_FLOAT32_MATMUL_PRECISION", None)


@pytest.mark.usefixtures("gpu_with_tf32")
@pytest.mark.parametrize("config", [JudgeSFTConfig, JudgeGRPOConfig])
@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"tf32": True}, True),
        ({"tf32": False}, False),
        ({}, False),
        ({"torch_compile": True, "bf16": True}, True),  # transformers turns TF32 on for it
        ({"torch_compile": True, "tf32": False}, False),
    ],
)
def test_both_switches_of_tf32_say_the_same(tmp_path, config, options, expected):
    config(output_dir=str(tmp_path), use_cpu=True, **options)
    assert torch.backends.cuda.matmul.allow_tf32 is expected  # the old one, which raises where they differ
    assert (torch.backends.cuda.matmul.fp32_precision == "tf32") is expected
    assert torch.get_float32_matmul_precision() == ("high" if expected else "highest")
    # what a vLLM in this process sets
    torch.set_float32_matmul_precision(os.environ.get("VLLM_FLOAT32_MATMUL_PRECISION", "highest"))
    assert torch.backends.cuda.matmul.allow_tf32 is expected
