"""Packed layers for CPUs compute the same as the model's own layers."""

import pytest
import torch
from torch import nn
from transformers import GemmaConfig, LlamaConfig, Qwen2Config, set_seed
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from judgelm.engines.transformers.layers import OutputHead, PackedLinear, PackedMlp, PackedNorm, install_head, pack

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
LLAMA, TIED, QWEN2 = LlamaConfig(**SIZES), LlamaConfig(**SIZES, tie_word_embeddings=True), Qwen2Config(**SIZES)


def packable_model(config=LLAMA, dtype=torch.bfloat16):
    set_seed(0)
    model = AutoModelForCausalLM.from_config(config).to(dtype).eval()
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if "norm" in name:
                weight.add_(torch.randn_like(weight) * 0.1)  # else all are 1
    return model


def kinds(model):
    return [type(module) for module in model.modules()]


@torch.inference_mode()
def distance(config):
    """The packed model, and the mean errors of its and the original's logits against float32."""
    ids = torch.arange(40)[None]
    exact = packable_model(config, torch.float32)(ids).logits
    model = packable_model(config)
    plain = model(ids).logits.float()
    pack(model)
    packed = model(ids).logits.float()
    return model, (packed - exact).abs().mean().item(), (plain - exact).abs().mean().item()


@torch.inference_mode()
def test_chunked_mlp_equals_one_call(monkeypatch):
    model = packable_model(dtype=torch.float32)
    rows = torch.randn(1, 100, SIZES["hidden_size"])
    expected = model.model.layers[0].mlp(rows)
    pack(model)
    monkeypatch.setattr("judgelm.engines.transformers.layers._KEPT_BYTES", 7 * SIZES["intermediate_size"] * 4)
    mlp, tokens = model.model.layers[0].mlp, []
    mlp.down_proj.register_forward_pre_hook(lambda _, inputs: tokens.append(inputs[0].shape[1]))
    assert torch.allclose(mlp(rows), expected, atol=EXACT)
    assert tokens == [7] * 10 + [6] * 5


@torch.inference_mode()
def test_norm_of_empty_and_zero_rows():
    norm = PackedNorm(nn.Parameter(torch.full((8,), 2.0)), 1e-6)
    assert norm(torch.empty(1, 0, 8)).shape == (1, 0, 8)
    assert norm(torch.zeros(1, 2, 8)).tolist() == torch.zeros(1, 2, 8).tolist()
    # sqrt(mean(1, 1, ..., 9)) = sqrt(2)
    row = torch.tensor([[[1.0] * 7 + [3.0]]])
    assert torch.allclose(norm(row), row * 2 / 2**0.5)


@in_bfloat16
@pytest.mark.parametrize(
    ("config", "counts"),
    # Gemma's activation is GELU, and its norm multiplies by 1 + weight
    [(LLAMA, [2, 5]), (QWEN2, [2, 5]), (TIED, [2, 5]), (GemmaConfig(**SIZES, head_dim=16), [0, 0])],
    ids=["llama", "qwen2 with biases", "tied llama", "gemma"],
)
def test_packed_model_is_as_exact_as_the_original(config, counts):
    model, packed, plain = distance(config)
    assert packed <= 1.1 * plain
    layers = kinds(model)
    assert [layers.count(kind) for kind in (PackedMlp, PackedNorm)] == counts
    assert PackedLinear in layers
    if config.tie_word_embeddings:
        assert model.lm_head.weight is model.get_input_embeddings().weight
    else:
        assert nn.Linear not in layers


@torch.inference_mode()
@pytest.mark.parametrize("config", [LLAMA, QWEN2], ids=["llama", "qwen2 with biases"])
def test_packed_float32_differs_only_by_rounding(config):
    model, ids = packable_model(config, torch.float32), torch.arange(40)[None]
    expected = model(ids).logits
    pack(model)
    assert [kinds(model).count(kind) for kind in (PackedMlp, nn.Linear)] == [2, 0]
    assert (model(ids).logits - expected).abs().max() <= EXACT


def test_float16_is_not_packed():
    model = packable_model(dtype=torch.float16)
    before = kinds(model)
    pack(model)
    assert kinds(model) == before


CANDIDATES = (5, 17, 60)


def errors(head, hidden):
    """Largest error of the candidates' logits, and of the others."""
    weight = head.linear.weight
    exact = hidden.double() @ (weight.to_dense() if weight.is_mkldnn else weight).double().T
    wrong = (head(hidden).double() - exact).abs()
    others = [token for token in range(wrong.shape[-1]) if token not in CANDIDATES]
    return wrong[:, list(CANDIDATES)].max().item(), wrong[:, others].max().item()


@torch.inference_mode()
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("tied", [False, True])
def test_candidate_logits_are_exact(dtype, tied):
    model = packable_model(TIED if tied else LLAMA, dtype)
    head = install_head(model)
    hidden = (torch.randn(8, 64) * 30).to(dtype)
    head.compute_exactly(CANDIDATES[:1])
    head.compute_exactly(CANDIDATES)
    exact, rounded = errors(head, hidden)
    assert exact < 1e-4 < rounded
    others = [token for token in range(100) if token not in CANDIDATES]
    assert torch.equal(head(hidden)[:, others], head.linear(hidden).float()[:, others])
    assert model(torch.arange(6)[None]).logits.dtype == torch.float32
    if tied:
        assert model.lm_head.weight is model.get_input_embeddings().weight


@torch.inference_mode()
@in_bfloat16
def test_packed_head_is_unpacked_for_exact_logits():
    model = packable_model()
    plain = model.lm_head
    plain.bias = nn.Parameter(torch.randn(100, dtype=torch.bfloat16))
    model.set_output_embeddings(PackedLinear(plain))
    head = install_head(model)
    hidden = (torch.randn(8, 64) * 30).bfloat16()
    head.compute_exactly(CANDIDATES)
    exact = hidden.double() @ plain.weight.double().T + plain.bias.double()
    assert (head(hidden).double() - exact)[:, list(CANDIDATES)].abs().max() < 1e-4


def test_head_is_installed_once_and_not_for_float32():
    model = packable_model()
    assert install_head(model) is install_head(model)
    assert isinstance(model.get_output_embeddings(), OutputHead)
    assert install_head(packable_model(dtype=torch.float32)) is None
