"""Attention, numeric formats, and LoRA on a CPU."""

import json
import os
from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import AutoModelForCausalLM, GPT2Config, LlamaConfig
from transformers.utils.import_utils import enable_tf32
from trl import ModelConfig, SFTConfig

from benchmarks.tiny_model import make_base
from judgelm.errors import ConfigError
from judgelm.training.arguments import JudgeArguments
from judgelm.training.attention import best_attention, choose_attention, named_attention, supports_flash_attention
from judgelm.training.checkpoints import mark
from judgelm.training.lora_on_cpu import speed_up_lora
from judgelm.training.precision import settle_precision
from judgelm.training.preference import PreferenceArguments, preference_attention
from judgelm.training.sft import JudgeSFTConfig


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "flash_attention_2"),
        ({"installed": (2, 3, 4)}, "flash_attention_2"),  # the others are made for later GPUs
        ({"generation": 9, "installed": (2, 3, 4)}, "flash_attention_3"),
        ({"generation": 9}, "flash_attention_2"),
        ({"generation": 10, "installed": (2, 3, 4)}, "flash_attention_4"),
        ({"generation": 12}, "flash_attention_2"),
        ({"generation": None}, "sdpa (not on a CUDA GPU)"),
        ({"generation": 7}, "sdpa (FlashAttention needs an Ampere GPU or a later one)"),
        ({"half": False}, "sdpa (FlashAttention multiplies in 16 bits; bf16: true would allow it)"),
        ({"installed": ()}, "sdpa (flash-attn is not installed)"),
        ({"supported": False}, "sdpa (the model does not support FlashAttention)"),
    ],
)
def test_the_fastest_that_is_installed_for_the_gpu_is_taken_else_sdpa_and_why_is_told(options, expected):
    facts = {"generation": 8, "installed": (2,), "supported": True, "half": True} | options
    implementation = None if expected.startswith("sdpa") else expected
    assert best_attention(facts.pop("generation"), facts.pop("installed"), **facts) == (implementation, expected)


def test_what_a_recipe_names_is_taken_and_what_it_downloads_is_told():
    assert named_attention("eager", (2,), kernels=False) == ("eager", "eager, as requested")
    hub = named_attention("kernels-community/flash-attn2", (2,), kernels=False)
    assert hub.note.endswith("as requested, a kernel of the hub")
    assert "loads the kernel from the hub" in named_attention("flash_attention_3", (2,), kernels=True).note
    with pytest.raises(ConfigError, match=r"flash_attention_3, but its package is not installed.*leave"):
        named_attention("flash_attention_3", (2,), kernels=False)


def test_a_cpu_takes_sdpa_whatever_is_installed_and_preferences_a_mask_of_their_own(tiny_model):
    base, args = ModelConfig(model_name_or_path=str(tiny_model)), SFTConfig(use_cpu=True, bf16=False)
    assert choose_attention(base, args) == (None, "sdpa (not on a CUDA GPU)")
    assert preference_attention(PreferenceArguments(train_data=[]), base, args).implementation == "sdpa"
    base.attn_implementation = "flash_attention_2"
    with pytest.raises(ConfigError, match="use sdpa or eager"):
        preference_attention(PreferenceArguments(train_data=[]), base, args)


def test_whether_a_model_takes_it_is_read_off_its_configuration(tiny_model, tmp_path):
    assert supports_flash_attention(str(tiny_model))
    wide = LlamaConfig(hidden_size=1024, num_attention_heads=2, architectures=["LlamaForCausalLM"])  # heads of 512
    wide.save_pretrained(tmp_path / "wide")
    GPT2Config(architectures=["NoSuchModel"]).save_pretrained(tmp_path / "other")
    own = {"model_type": "own", "auto_map": {"AutoConfig": "own.Own"}, "architectures": ["Own"]}
    (tmp_path / "own").mkdir()
    (tmp_path / "own/config.json").write_text(json.dumps(own))
    assert not any(supports_flash_attention(str(tmp_path / name)) for name in ("wide", "other", "own"))


@pytest.fixture(scope="module")
def half_base(tmp_path_factory):
    """A base saved in bfloat16."""
    folder = tmp_path_factory.mktemp("base")
    shape = {"hidden_size": 64, "layers": 1, "heads": 2, "vocab_size": 400, "max_positions": 256, "seed": 0}
    make_base(["what is a fox"] * 20, folder, **shape, dtype=torch.bfloat16)
    return str(folder)


SLOW, FAST = ({"float32": 1.0, "bfloat16": half, "float16": half} for half in (9.0, 0.5))


@pytest.mark.parametrize(
    ("seconds", "bf16", "recorded", "formats", "notes"),
    [
        (SLOW, None, None, (False, "float32"), ["dtype: float32", "bf16: false"]),
        (SLOW, True, None, (True, "float32"), ["dtype: float32", "bf16: true, as configured"]),
        (SLOW, False, None, (False, "float32"), ["dtype: float32"]),
        (SLOW, None, {"bf16": True, "dtype": "bfloat16"}, (True, "bfloat16"), ["bf16: true, as configured"]),
        (FAST, None, {"bf16": False, "dtype": "float32"}, (False, "float32"), []),
        (FAST, None, None, (True, "bfloat16"), ["dtype: bfloat16"]),
    ],
    ids=["open on a slow CPU", "asked for", "off", "begun on a fast CPU", "begun on a slow CPU", "open on a fast CPU"],
)
def test_formats_left_open_are_chosen_for_the_cpu_and_those_of_a_begun_run_stay(
    half_base, tmp_path, monkeypatch, seconds, bf16, recorded, formats, notes
):
    for module in ("engines.dtype", "training.base_model"):
        monkeypatch.setattr(f"judgelm.{module}.measure_products", lambda config: seconds)
    if recorded is not None:
        (tmp_path / "checkpoint-3").mkdir()
        mark(tmp_path / "checkpoint-3", recorded, resumable=True)
    args = JudgeSFTConfig(output_dir=str(tmp_path), use_cpu=True, bf16=bf16)
    model = ModelConfig(model_name_or_path=half_base, dtype="auto")
    said = settle_precision(JudgeArguments(train_data=["rows.jsonl"]), args, model)
    assert (args.bf16, model.dtype) == formats
    assert [note.partition(" (")[0] for note in said] == notes


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
def test_both_switches_of_tf32_say_the_same(tmp_path, options, expected):
    JudgeSFTConfig(output_dir=str(tmp_path), use_cpu=True, **options)
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


@pytest.mark.parametrize(
    ("dtype", "tolerance", "gradient_tolerance"), [(torch.float32, 1e-5, 1e-4), (torch.bfloat16, 0.02, 0.05)]
)
def test_logits_and_gradients_are_pefts_up_to_rounding(tiny_model, dtype, tolerance, gradient_tolerance):
    autocast = dtype is torch.bfloat16
    expected, gradients = passed(adapted(tiny_model, dtype), autocast)
    model = adapted(tiny_model, dtype)
    assert speed_up_lora(trainer(model)) == 7 * model.config.num_hidden_layers
    logits, own = passed(model, autocast)
    assert (logits - expected).norm() < tolerance * expected.norm()
    assert own.keys() == gradients.keys()
    assert all((own[name] - gradients[name]).norm() < gradient_tolerance * gradients[name].norm() for name in own)


def test_without_its_adapter_the_model_is_the_base(tiny_model):
    model = adapted(tiny_model)
    speed_up_lora(trainer(model))
    tokens = torch.arange(6)[None]
    with torch.no_grad(), model.disable_adapter():
        plain = model(input_ids=tokens).logits
    base = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    assert torch.equal(plain, base(input_ids=tokens).logits)


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"lora_dropout": 0.1}, {}),
        ({"use_dora": True}, {}),
        ({}, {"is_deepspeed_enabled": True}),
        ({}, {"is_fsdp_enabled": True}),
    ],
)
def test_layers_with_more_than_two_products_and_sharded_models_stay_pefts(tiny_model, options, facts):
    assert speed_up_lora(trainer(adapted(tiny_model, **options), **facts)) == 0
