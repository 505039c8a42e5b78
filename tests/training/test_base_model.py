"""Attention, numeric formats, and LoRA on a CPU."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig
from transformers.utils.import_utils import enable_tf32
from trl import ModelConfig, SFTConfig, TrlParser

from benchmarks.synthetic.pairs import generate
from judgelm.errors import ConfigError
from judgelm.training.arguments import JudgeArguments
from judgelm.training.base_model import (
    best_attention,
    choose_attention,
    named_attention,
    settle_precision,
    speed_up_lora,
    supports_flash_attention,
)
from judgelm.training.grpo import JudgeGRPOConfig
from judgelm.training.preference import PreferenceArguments, masked_attention
from judgelm.training.tiny_model import make_base
from judgelm.training.trainer import JudgeSFTConfig, is_padding_free
from tests.support import recipe_runs

ROOT = Path(__file__).parents[2]
RECIPES = sorted(
    path for path in (ROOT / "configs/train").glob("judgelm_*.yaml") if not path.stem.endswith(("dpo", "preference"))
)
PREFERENCE_RECIPE = ROOT / "configs/train/judgelm_7b_preference.yaml"


def chosen(*, generation=8, installed=(2,), kernels=False, supported=True, half=True):
    return tuple(best_attention(generation, installed, supported=supported, half=half, kernels=kernels))


@pytest.mark.parametrize(
    ("generation", "installed", "expected"),
    [
        (8, (2,), "flash_attention_2"),
        (8, (2, 3, 4), "flash_attention_2"),  # the others are made for later GPUs
        (9, (2, 3, 4), "flash_attention_3"),
        (9, (2,), "flash_attention_2"),
        (10, (2, 3, 4), "flash_attention_4"),
        (12, (2,), "flash_attention_2"),
    ],
)
def test_the_fastest_that_is_installed_for_the_gpu_is_taken(generation, installed, expected):
    assert chosen(generation=generation, installed=installed) == (expected, expected)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"generation": None}, "not on a CUDA GPU"),
        ({"generation": 7}, "FlashAttention needs an Ampere GPU or a later one"),
        ({"half": False}, "FlashAttention multiplies in 16 bits; bf16: true would allow it"),
        ({"installed": ()}, "flash-attn is not installed"),
        ({"supported": False}, "the model does not support FlashAttention"),
    ],
)
def test_else_it_is_sdpa_and_why_is_told(options, why):
    assert chosen(**options) == (None, f"sdpa ({why})")


def test_what_a_recipe_names_is_taken_and_what_it_downloads_is_told():
    assert named_attention("eager", (2,), kernels=False) == ("eager", "eager, as requested")
    hub = named_attention("kernels-community/flash-attn2", (2,), kernels=False)
    assert hub.note.endswith("as requested, a kernel of the hub")
    assert "loads the kernel from the hub" in named_attention("flash_attention_3", (2,), kernels=True).note
    with pytest.raises(ConfigError, match=r"flash_attention_3, but its package is not installed.*leave"):
        named_attention("flash_attention_3", (2,), kernels=False)


def test_a_cpu_takes_sdpa_whatever_is_installed(tiny_model):
    base = ModelConfig(model_name_or_path=str(tiny_model))
    assert choose_attention(base, SFTConfig(use_cpu=True, bf16=False)) == (None, "sdpa (not on a CUDA GPU)")


def test_whether_a_model_takes_it_is_read_off_its_configuration(tiny_model, tmp_path):
    assert supports_flash_attention(str(tiny_model))
    wide = LlamaConfig(hidden_size=1024, num_attention_heads=2, architectures=["LlamaForCausalLM"])  # heads of 512
    wide.save_pretrained(tmp_path / "wide")
    assert not supports_flash_attention(str(tmp_path / "wide"))
    GPT2Config(architectures=["NoSuchModel"]).save_pretrained(tmp_path / "other")
    assert not supports_flash_attention(str(tmp_path / "other"))
    (tmp_path / "own").mkdir()
    (tmp_path / "own/config.json").write_text(
        json.dumps({"model_type": "own", "auto_map": {"AutoConfig": "own.Own"}, "architectures": ["Own"]})
    )
    assert not supports_flash_attention(str(tmp_path / "own"))


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: path.stem)
def test_the_recipes_take_flash_attention_without_padding_where_the_page_says_so(path):
    arguments = ["--config", str(path), "--use_cpu", "true", "--tf32", "false"]
    _, sft, model = TrlParser((JudgeArguments, SFTConfig, ModelConfig)).parse_args_and_config(arguments)
    assert (model.attn_implementation, sft.padding_free) == (None, False)  # "No recipe names one"
    for installed in ((2,), ()):
        implementation, _ = chosen(installed=installed, half=sft.bf16)
        assert is_padding_free(sft.padding_free, implementation) == bool(installed)


def test_the_recipe_of_preferences_names_none_and_takes_sdpa():
    arguments = ["--config", str(PREFERENCE_RECIPE), "--use_cpu", "true", "--tf32", "false"]
    _, sft, model = TrlParser((PreferenceArguments, SFTConfig, ModelConfig)).parse_args_and_config(arguments)
    assert (model.attn_implementation, sft.padding_free) == (None, False)
    assert masked_attention(model, sft).implementation == "sdpa"


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


def adapted(tiny_model, dtype=torch.float32, **options):
    torch.manual_seed(0)
    base = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=dtype)
    model = get_peft_model(base, LoraConfig(r=4, lora_alpha=12, target_modules="all-linear", **options))
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            nn.init.normal_(weight, std=0.1)
    return model


def trainer(model, **facts):
    return SimpleNamespace(**{"model": model, "is_deepspeed_enabled": False, "is_fsdp_enabled": False} | facts)


def passed(model, autocast=False):
    """Logits, and the gradients of all adapter weights."""
    tokens = torch.arange(2 * 9).reshape(2, 9) % model.config.vocab_size
    with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
        logits = model(input_ids=tokens).logits
    logits.float().square().mean().backward()
    return logits.detach().float(), {name: p.grad.float() for name, p in model.named_parameters() if p.requires_grad}


def test_logits_and_gradients_are_pefts(tiny_model):
    expected, gradients = passed(adapted(tiny_model))
    model = adapted(tiny_model)
    assert speed_up_lora(trainer(model)) == 7 * model.config.num_hidden_layers
    logits, own = passed(model)
    torch.testing.assert_close(logits, expected, rtol=1e-5, atol=1e-5)
    assert own.keys() == gradients.keys()
    for name, gradient in own.items():
        torch.testing.assert_close(gradient, gradients[name], rtol=1e-4, atol=1e-6)


def test_under_autocast_they_are_pefts_up_to_rounding(tiny_model):
    expected, gradients = passed(adapted(tiny_model, torch.bfloat16), autocast=True)
    model = adapted(tiny_model, torch.bfloat16)
    speed_up_lora(trainer(model))
    logits, own = passed(model, autocast=True)
    assert (logits - expected).norm() < 0.02 * expected.norm()
    assert all((own[name] - gradients[name]).norm() < 0.05 * gradients[name].norm() for name in own)


def test_without_its_adapter_the_model_is_the_base(tiny_model):
    model = adapted(tiny_model)
    speed_up_lora(trainer(model))
    tokens = torch.arange(6)[None]
    with torch.no_grad(), model.disable_adapter():
        plain = model(input_ids=tokens).logits
    base = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    assert torch.equal(plain, base(input_ids=tokens).logits)


@pytest.mark.parametrize("options", [{"lora_dropout": 0.1}, {"use_dora": True}])
def test_layers_with_more_than_two_products_stay_pefts(tiny_model, options):
    assert speed_up_lora(trainer(adapted(tiny_model, **options))) == 0


@pytest.mark.parametrize("sharded", ["is_deepspeed_enabled", "is_fsdp_enabled"])
def test_sharded_models_stay_pefts(tiny_model, sharded):
    assert speed_up_lora(trainer(adapted(tiny_model), **{sharded: True})) == 0


def test_a_kernel_of_the_hub_is_never_taken_by_itself_and_named_where_it_could_be():
    implementation, note = chosen(installed=(), kernels=True)
    assert implementation is None
    assert "attn_implementation: kernels-community/flash-attn2 would load it from the hub" in note
