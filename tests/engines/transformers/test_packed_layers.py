"""The CPU's packed layers compute what the model's own do, and what they cannot compute they leave alone."""

import pytest
import torch
from transformers import GemmaConfig, LlamaConfig, Qwen2Config, set_seed
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from judgelm.engines.transformers.layers import PackedLinear, PackedMlp, PackedNorm, pack

SIZES = {
    "vocab_size": 100, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2,
}  # fmt: skip

pytestmark = pytest.mark.skipif(
    not torch.backends.mkldnn.is_available(), reason="this build of torch has no kernels to pack for"
)
in_bfloat16 = pytest.mark.skipif(
    not torch.ops.mkldnn._is_mkldnn_bf16_supported(), reason="this processor has no bfloat16 kernels"
)
EXACT = 1e-6


def model_of(config, dtype=torch.bfloat16):
    set_seed(0)
    model = AutoModelForCausalLM.from_config(config).to(dtype).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.add_(torch.randn_like(weight) * 0.1)  # or else all are 1
    return model


def kinds(model):
    return [type(module) for module in model.modules()]


@torch.inference_mode()
def distance(config):
    """How far the packed model's logits are from those in float32, against the plain model's."""
    ids = torch.arange(40)[None]
    exact = model_of(config, torch.float32)(ids).logits
    model = model_of(config)
    plain = model(ids).logits.float()
    pack(model)
    packed = model(ids).logits.float()
    return model, (packed - exact).abs().mean().item(), (plain - exact).abs().mean().item()


@in_bfloat16
@pytest.mark.parametrize("config", [LlamaConfig(**SIZES), Qwen2Config(**SIZES)], ids=["llama", "qwen2 with biases"])
def test_a_packed_model_is_as_exact_as_the_plain_one(config):
    model, packed, plain = distance(config)
    assert packed <= 1.1 * plain
    found = kinds(model)
    assert found.count(PackedMlp) == 2
    assert found.count(PackedNorm) == 5
    assert torch.nn.Linear not in found


@in_bfloat16
def test_an_embedding_that_is_tied_to_the_head_stays_tied():
    model, packed, plain = distance(LlamaConfig(**SIZES, tie_word_embeddings=True))
    assert packed <= 1.1 * plain
    assert model.lm_head.weight is model.get_input_embeddings().weight


@in_bfloat16
def test_other_activations_and_norms_are_left_alone():
    model, packed, plain = distance(GemmaConfig(**SIZES, head_dim=16))
    assert packed <= 1.1 * plain
    assert PackedMlp not in kinds(model)  # its activation is GELU
    assert PackedNorm not in kinds(model)  # it multiplies by 1 + weight
    assert PackedLinear in kinds(model)


@torch.inference_mode()
@pytest.mark.parametrize("config", [LlamaConfig(**SIZES), Qwen2Config(**SIZES)], ids=["llama", "qwen2 with biases"])
def test_float32_is_packed_too_and_changes_by_rounding_alone(config):
    model, ids = model_of(config, torch.float32), torch.arange(40)[None]
    expected = model(ids).logits
    pack(model)
    assert torch.nn.Linear not in kinds(model)
    assert kinds(model).count(PackedMlp) == 2
    assert (model(ids).logits - expected).abs().max() <= EXACT


def test_float16_is_left_alone():
    model = model_of(LlamaConfig(**SIZES), torch.float16)
    before = kinds(model)
    pack(model)
    assert kinds(model) == before
