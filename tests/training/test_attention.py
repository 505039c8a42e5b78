"""Which attention a training takes: what is installed decides, recipes and page say the same, and it is told."""

import json
from pathlib import Path

import pytest
from transformers import GPT2Config, LlamaConfig
from trl import ModelConfig, SFTConfig, TrlParser

from judgelm.errors import ConfigError
from judgelm.training.arguments import JudgeArguments
from judgelm.training.base_model import best_attention, choose_attention, named_attention, supports_flash_attention
from judgelm.training.preference import PreferenceArguments, masked_attention
from judgelm.training.trainer import is_padding_free

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


def test_a_kernel_of_the_hub_is_never_taken_by_itself_and_named_where_it_could_be():
    implementation, note = chosen(installed=(), kernels=True)
    assert implementation is None
    assert "attn_implementation: kernels-community/flash-attn2 would load it from the hub" in note


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


def test_the_page_says_what_the_recipes_do():
    page = " ".join((ROOT / "docs/training.md").read_text().split())
    assert (
        "No recipe names one. Training in 16 bits on a CUDA GPU takes FlashAttention, and rows without padding" in page
    )
    assert "else torch's `sdpa` with padded rows" in page
    assert "Training on preferences takes `sdpa`, or `eager` if named" in page
