"""Arguments: a token that is written nowhere, refusals before anything is loaded, and a base that is a GGUF file."""

import json
import math
import os
import sys
from types import SimpleNamespace

import pytest
import torch
from accelerate.parallelism_config import ParallelismConfig
from transformers.utils import is_liger_kernel_available
from trl import ModelConfig, SFTConfig

from judgelm.engines.base import EngineOptions
from judgelm.engines.gguf.checkpoint import checkpoint_of, gguf_record
from judgelm.engines.model_files import split_adapter
from judgelm.errors import ConfigError
from judgelm.judges.cards import named_judge
from judgelm.prompts.judge_card import find_card
from judgelm.training.arguments import (
    JudgeArguments,
    accumulation_steps,
    check_arguments,
    check_parallelism,
    save_dtype_of,
)
from judgelm.training.run import parse_arguments
from judgelm.training.sft import JudgeSFTConfig
from tests.support.gguf_files import write_gguf
from tests.support.recipe_runs import LORA, configure, run_here


def test_a_hub_token_stays_out_of_what_the_trainer_writes(monkeypatch, tmp_path):
    monkeypatch.setenv("HF_TOKEN", "another")
    given = ["--output_dir", str(tmp_path), "--hub_token", "hf_secret", "--use_cpu", "true", "--bf16", "false"]
    monkeypatch.setattr(sys, "argv", ["sft.py", *given])
    [found] = parse_arguments(SFTConfig)
    torch.save(found, tmp_path / "training_args.bin")  # as the trainer does beside each checkpoint
    assert b"hf_secret" not in (tmp_path / "training_args.bin").read_bytes()
    assert os.environ["HF_TOKEN"] == "hf_secret"


@pytest.mark.parametrize(
    ("judge", "options", "name"),
    [
        *(({"score_weight": weight}, {}, "score_weight") for weight in (0, -1.0, math.inf, math.nan)),
        ({"score_weight": 2.0, "loss_on": "all"}, {}, "score_weight"),
        ({"score_weight": 2.0, "template": "reasoned-chat"}, {}, "score_weight"),
        ({"score_weight": 2.0}, {"loss_type": "dft"}, "score_weight"),
        ({"score_weight": 2.0}, {"label_smoothing_factor": 0.1}, "score_weight"),
        ({"loss_average": "rows"}, {}, "loss_average"),
        ({"loss_average": "row"}, {"loss_type": "dft"}, "loss_average"),
        ({}, {"parallelism_config": {"cp_size": 2}}, "parallelism_config: cp_size"),
        ({}, {"parallelism_config": ParallelismConfig(sp_size=2)}, "parallelism_config: sp_size"),
        ({}, {"model_init_kwargs": {"tp_plan": "auto"}}, "model_init_kwargs: tp_plan"),
        ({"loss_on": "prompt"}, {}, "loss_on"),
        ({"scale": [10, 1]}, {}, "scale"),
        ({"save_dtype": "int8"}, {}, "save_dtype"),
        ({}, {"max_length": None}, "max_length"),
        ({}, {"eos_token": "<pad>"}, "eos_token"),  # the next ones would undo the rows
        ({}, {"ignore_data_skip": True}, "ignore_data_skip"),
        ({}, {"resume_from_checkpoint": "runs/out/checkpoint-3"}, "resume_from_checkpoint"),
        pytest.param(
            {},
            {"use_liger_kernel": True},
            "use_liger_kernel",
            marks=pytest.mark.skipif(is_liger_kernel_available(), reason="it is installed"),
        ),
        ({}, {"auto_find_batch_size": True}, "auto_find_batch_size"),
        ({"global_batch": 128}, {"gradient_accumulation_steps": 3}, "global_batch"),
    ],
)
def test_arguments_that_do_not_fit_are_refused_by_name(tmp_path, judge, options, name):
    arguments = JudgeArguments(train_data=["rows.jsonl"], **judge)
    with pytest.raises(ConfigError, match=rf"^{name} "):
        check_arguments(arguments, JudgeSFTConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, **options))


def test_parallelism_of_launchers_is_refused(tmp_path, monkeypatch):
    args = JudgeSFTConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False)
    monkeypatch.setenv("PARALLELISM_CONFIG_CP_SIZE", "2")
    check_parallelism(args)  # accelerate does not read it either
    for settings in ({"tensor_parallel": {"autotp_size": 4}}, {"sequence_parallel_size": 4}):
        args.deepspeed_plugin = SimpleNamespace(deepspeed_config=settings)
        with pytest.raises(ConfigError, match=r"deepspeed_config: .*_size is 4, but each process"):
            check_parallelism(args)
    monkeypatch.setenv("ACCELERATE_USE_PARALLELISM_CONFIG", "true")
    with pytest.raises(ConfigError, match="parallelism_config: cp_size is 2, but each process"):
        check_parallelism(args)


@pytest.mark.parametrize(
    ("batch", "accumulation", "processes", "passes"),
    [(None, 5, 1, 5), (128, 1, 1, 32), (128, 1, 2, 16), (128, 1, 8, 4), (128, 4, 8, 4)],
)
def test_passes_follow_from_the_global_batch_on_any_number_of_processes(batch, accumulation, processes, passes):
    assert accumulation_steps(batch, per_device=4, accumulation=accumulation, processes=processes) == passes


@pytest.mark.parametrize(("batch", "accumulation", "processes"), [(128, 4, 2), (128, 1, 6), (0, 4, 6)])
def test_another_global_batch_is_refused(batch, accumulation, processes):
    with pytest.raises(ConfigError, match=rf"set global_batch to a multiple of {4 * processes}, "):
        accumulation_steps(batch, per_device=4, accumulation=accumulation, processes=processes)


def test_the_dtype_of_a_judge_is_that_of_the_training_or_the_requested_one():
    args = SFTConfig(bf16=True, use_cpu=True)
    assert [save_dtype_of(name, args) for name in ("auto", "float16", "float32")] == [
        torch.bfloat16, torch.float16, torch.float32,
    ]  # fmt: skip
    assert save_dtype_of("auto", SFTConfig(bf16=False, use_cpu=True)) is None
    args.deepspeed_plugin = object()
    with pytest.raises(ConfigError, match="DeepSpeed gathers 16-bit weights"):
        save_dtype_of("float32", args)


@pytest.fixture
def train(tiny_model, train_file, tmp_path, monkeypatch, capsys):
    """Train for two steps on a GGUF file; the file, the output folder, and what was printed."""
    monkeypatch.setenv("JUDGELM_CACHE", str(tmp_path / "cache"))
    base = write_gguf(tiny_model, tmp_path / "tiny.gguf")

    def run(**options):
        data = {"model_name_or_path": str(base), "train_data": [train_file], "max_steps": 2, "dtype": "float32"}
        assert run_here(configure(tmp_path / "run", **data, **options)) is None
        return base, tmp_path / "run/out", capsys.readouterr().out

    return run


def test_an_adapter_names_the_gguf_file_and_finds_its_checkpoint(train):
    base, out, _ = train(**LORA)
    checkpoint = checkpoint_of(base)
    sha256, card = gguf_record(checkpoint).sha256, find_card(str(out))
    assert (card.base.gguf_sha256, card.base.file) == (sha256, "tiny.gguf")
    assert card.training["base_model"] == "tiny.gguf"
    assert card.training["base_gguf"] == {"sha256": sha256, "dtype": "float16", "repairs": []}
    assert json.loads((out / "adapter_config.json").read_text())["base_model_name_or_path"] == "tiny.gguf"
    base.unlink()  # another machine has the checkpoint, not this path
    assert split_adapter(EngineOptions(model=str(out))) == (str(checkpoint), str(out))


def test_a_whole_judge_needs_the_gguf_file_no_longer(train):
    _, out, _ = train()
    card = find_card(str(out))
    assert (card.base, card.training["base_model"]) == (None, "tiny.gguf")
    assert (out / "model.safetensors").is_file()


def test_a_judges_name_is_its_base_and_its_adapter(small_judge, monkeypatch, tmp_path):
    given = ["--train_data", "rows.jsonl", "--output_dir", str(tmp_path), "--use_cpu", "true", "--bf16", "false"]
    monkeypatch.setattr(sys, "argv", ["sft.py", *given, "--model_name_or_path", "small-judge"])
    judge, _, base = parse_arguments(JudgeArguments, JudgeSFTConfig, ModelConfig)
    installed = named_judge("small-judge")
    assert (base.model_name_or_path, judge.adapter) == (str(installed.base), str(small_judge))
