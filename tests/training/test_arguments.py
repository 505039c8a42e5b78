"""A token for the hub is used, and written nowhere."""

import json
import os
import sys

import pytest
import torch
from trl import SFTConfig

from benchmarks.synthetic.pairs import generate
from judgelm.engines.base import EngineOptions
from judgelm.engines.gguf import checkpoint_of, gguf_record
from judgelm.engines.model_files import split_adapter
from judgelm.prompts.judge_card import find_card
from judgelm.training.run import parse_arguments
from tests.support.gguf_files import write_gguf
from tests.support.recipe_runs import configure, run_here


def test_a_hub_token_stays_out_of_what_the_trainer_writes(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", "another")
    given = ["--output_dir", str(tmp_path), "--hub_token", "hf_secret", "--use_cpu", "true", "--bf16", "false"]
    monkeypatch.setattr(sys, "argv", ["sft.py", *given])
    [found] = parse_arguments(SFTConfig)
    torch.save(found, tmp_path / "training_args.bin")  # as the trainer does beside each checkpoint
    assert b"hf_secret" not in (tmp_path / "training_args.bin").read_bytes()
    assert os.environ["HF_TOKEN"] == "hf_secret"


@pytest.fixture
def tiny_gguf(tiny_model, tmp_path, monkeypatch):
    monkeypatch.setenv("JUDGELM_CACHE", str(tmp_path / "cache"))
    return write_gguf(tiny_model, tmp_path / "tiny.gguf")


@pytest.fixture
def train(tiny_gguf, tmp_path, capsys):
    """Train for two steps on the file; the output folder, and what was printed."""

    def run(**options):
        rows = tmp_path / "train.jsonl"
        rows.write_text("".join(json.dumps(row) + "\n" for row in generate(16, seed=0, split="train")))
        data = {"model_name_or_path": str(tiny_gguf), "train_data": [str(rows)], "max_steps": 2, "dtype": "float32"}
        assert run_here(configure(tmp_path / "run", **data, **options)) is None
        return tmp_path / "run/out", capsys.readouterr().out

    return run


def test_an_adapter_names_the_file_and_finds_its_checkpoint(train, tiny_gguf):
    out, printed = train(use_peft=True, lora_r=4, lora_target_modules=["all-linear"])
    checkpoint = checkpoint_of(tiny_gguf)
    sha256, card = gguf_record(checkpoint).sha256, find_card(str(out))
    assert (card.base.gguf_sha256, card.base.file) == (sha256, "tiny.gguf")
    assert card.training["base_model"] == "tiny.gguf"
    assert card.training["base_gguf"] == {"sha256": sha256, "dtype": "float16", "repairs": []}
    assert json.loads((out / "adapter_config.json").read_text())["base_model_name_or_path"] == "tiny.gguf"
    tiny_gguf.unlink()  # another machine has the checkpoint, not this path
    assert split_adapter(EngineOptions(model=str(out))) == (str(checkpoint), str(out))
    assert "GGUF: tiny.gguf, dequantised once into" in printed


def test_a_whole_judge_needs_the_file_no_longer(train):
    out, _ = train()
    card = find_card(str(out))
    assert (card.base, card.training["base_model"]) == (None, "tiny.gguf")
    assert (out / "model.safetensors").is_file()
