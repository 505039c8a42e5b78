"""A token for the hub is used, and written nowhere."""

import os
import sys

import torch
from trl import SFTConfig

from judgelm.training.run import parse_arguments


def test_a_hub_token_stays_out_of_what_the_trainer_writes(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", "another")
    given = ["--output_dir", str(tmp_path), "--hub_token", "hf_secret", "--use_cpu", "true", "--bf16", "false"]
    monkeypatch.setattr(sys, "argv", ["sft.py", *given])
    [found] = parse_arguments(SFTConfig)
    torch.save(found, tmp_path / "training_args.bin")  # as the trainer does beside each checkpoint
    assert b"hf_secret" not in (tmp_path / "training_args.bin").read_bytes()
    assert os.environ["HF_TOKEN"] == "hf_secret"
