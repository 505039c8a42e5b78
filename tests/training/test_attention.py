"""The choice of attention for training."""

import json

import pytest
from transformers import GPT2Config, LlamaConfig
from trl import ModelConfig, SFTConfig

from judgelm.errors import ConfigError
from judgelm.training.attention import best_attention, choose_attention, named_attention, supports_flash_attention
from judgelm.training.preference import PreferenceArguments, preference_attention


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
        ({"generation": 7}, "sdpa (FlashAttention requires an Ampere or later GPU)"),
        ({"half": False}, "sdpa (FlashAttention requires bf16: true)"),
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
    assert hub.note.endswith("as requested, a kernel from the hub")
    assert "loads the kernel from the hub" in named_attention("flash_attention_3", (2,), kernels=True).note
    with pytest.raises(ConfigError, match=r"flash_attention_3 is not available"):
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
