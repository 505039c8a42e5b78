"""Products of 8-bit integers on the CPU: near enough to the layer's own, and refused where they cannot run."""

import pytest
import torch
from torch import nn
from transformers import LlamaConfig, set_seed
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.engines.dtype import this_cpu_flags
from judgelm.engines.transformers.layers import (
    Int8Linear,
    PackedLinear,
    best_smoothing,
    blocks_of,
    check_int8,
    dequantised,
    quantised_tokens,
    quantised_weight,
    runs_int8,
)
from judgelm.engines.transformers.loading import load
from judgelm.errors import ConfigError
from judgelm.records import Request, Sampling
from tests.engines.test_contract import prompt_of

pytestmark = pytest.mark.skipif(not runs_int8(), reason="int8 products are for x86 CPUs")
FLAGS = this_cpu_flags()


def layer_and_rows(features=576, out=96, tokens=40, dtype=torch.float32, *, bias=False):
    """A layer, and inputs of which three channels are far larger than the others, as in language models."""
    set_seed(0)
    layer = nn.Linear(features, out, bias=bias).to(dtype)
    rows = torch.randn(tokens, features)
    rows[:, [3, 200, 401]] *= 60
    return layer, rows.to(dtype)


@torch.inference_mode()
def error(layer, rows, factors):
    expected = layer(rows).float()
    actual = Int8Linear(layer, factors, FLAGS)(rows).float()
    return ((actual - expected).norm() / expected.norm()).item()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", [False, True])
def test_smoothing_makes_up_for_large_channels(dtype, bias):
    layer, rows = layer_and_rows(dtype=dtype, bias=bias)
    smoothing = best_smoothing(layer, rows, FLAGS)
    smoothed, plain = error(layer, rows, smoothing.factors), error(layer, rows, torch.ones(576))
    assert smoothed < 0.02
    assert smoothed < 0.7 * plain
    assert smoothed == pytest.approx(smoothing.error, abs=0.005)


@torch.inference_mode()
def test_each_token_is_computed_alone():
    layer, rows = layer_and_rows()
    packed = Int8Linear(layer, torch.ones(576), FLAGS)
    rows[5] *= 1000
    rows[6] = 0
    whole = packed(rows[None])
    assert whole.shape == (1, 40, 96)
    assert torch.equal(whole[0, :5], packed(rows[:5]))
    assert torch.equal(whole[0, 6], torch.zeros(96))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_integers_and_scales_stand_for_the_rows(dtype):
    rows = layer_and_rows(dtype=dtype)[1]
    integers, scales = quantised_tokens(rows)
    assert integers.shape == (blocks_of(576), 40, 192)
    assert integers.abs().max() <= 127
    wrong = (dequantised(integers, scales) - rows.float()).view(40, 3, 192).abs()
    assert (wrong <= 0.51 * scales.float().transpose(0, 1) + 0.004 * rows.float().view(40, 3, 192).abs()).all()


def test_a_cpu_that_adds_two_products_in_16_bits_takes_weights_that_cannot_overflow():
    weight = torch.randn(8, 576)
    assert quantised_weight(weight, frozenset({"avx2"}))[0].abs().max() == 63
    assert quantised_weight(weight, frozenset({"avx2", "avx_vnni"}))[0].abs().max() == 127
    assert 2 * 255 * 63 < 2**15


@pytest.mark.parametrize(("features", "blocks"), [(64, 1), (576, 3), (1536, 8), (896, 4), (4864, 19), (577, 1)])
def test_blocks_divide_the_features(features, blocks):
    assert blocks_of(features) == blocks


@pytest.fixture
def checkpoint(tiny_model, tmp_path):
    """A model whose layers are large enough to be alike in 8 bits, with the tokenizer of the tests."""
    set_seed(0)
    sizes = LlamaConfig(
        vocab_size=len(load(EngineOptions(model=str(tiny_model))).tokenizer), hidden_size=128, intermediate_size=256,
        num_hidden_layers=2, num_attention_heads=4, num_key_value_heads=2,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(sizes).save_pretrained(tmp_path / "model")
    load(EngineOptions(model=str(tiny_model))).tokenizer.save_pretrained(tmp_path / "model")
    return tmp_path / "model"


def logprobs(checkpoint, **options):
    engine = load_engine("transformers", EngineOptions(model=str(checkpoint), dtype="float32", **options))
    request = Request(
        key="1", prompt=prompt_of("a dog"), sampling=Sampling(max_tokens=2), candidates=("8 6\n", "6 8\n", "10 10\n")
    )
    engine.submit([request])
    [completion] = engine.collect(60)
    return engine, torch.tensor(completion.candidate_logprobs)


def test_an_engine_in_int8_judges_nearly_as_in_float32(checkpoint):
    engine, integers = logprobs(checkpoint, quantization="int8")
    _, exact = logprobs(checkpoint)
    assert 0 < (integers - exact).abs().max() < 0.05
    assert engine.describe()["quantization"] == "int8"
    assert "int8: 14 of 14 linear layers" in engine.stats()["notes"]


def test_head_and_norms_keep_their_format(checkpoint):
    model = load(EngineOptions(model=str(checkpoint), dtype="float32", quantization="int8")).model
    kinds = [type(module) for module in model.modules()]
    assert kinds.count(Int8Linear) == 14
    assert type(model.lm_head) is PackedLinear
    assert model.lm_head.weight.dtype == torch.float32


def test_another_quantization_names_the_ones_there_are(tiny_model):
    with pytest.raises(ConfigError, match="available: 4bit, 8bit, int8"):
        load(EngineOptions(model=str(tiny_model), quantization="int4"))


def test_a_gpu_is_refused_before_anything_is_loaded():
    with pytest.raises(ConfigError, match="not for cuda:0; on a GPU take 8bit or 4bit"):
        check_int8("cuda:0")
