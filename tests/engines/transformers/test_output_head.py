"""Logits of candidates are in float32 where the model is not."""

import pytest
import torch
from transformers import LlamaConfig, set_seed
from transformers.models.auto.modeling_auto import AutoModelForCausalLM

from judgelm.engines.transformers.layers import OutputHead, PackedLinear, install_head

CANDIDATES = (5, 17, 60)


def model_of(dtype, *, tied=False):
    set_seed(0)
    sizes = LlamaConfig(
        vocab_size=100, hidden_size=64, intermediate_size=128, num_hidden_layers=1, num_attention_heads=4,
        tie_word_embeddings=tied,
    )  # fmt: skip
    return AutoModelForCausalLM.from_config(sizes).to(dtype).eval()


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
def test_logits_of_candidates_are_exact_and_others_as_before(dtype, tied):
    model = model_of(dtype, tied=tied)
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
@pytest.mark.skipif(
    not (torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()),
    reason="this processor or build of torch has no bfloat16 kernels to pack for",
)
def test_a_packed_head_gives_its_rows_back():
    model = model_of(torch.bfloat16)
    model.lm_head.bias = torch.nn.Parameter(torch.randn(100, dtype=torch.bfloat16))
    plain = model.lm_head
    model.set_output_embeddings(PackedLinear(plain))
    head = install_head(model)
    hidden = (torch.randn(8, 64) * 30).bfloat16()
    head.compute_exactly(CANDIDATES)
    exact = hidden.double() @ plain.weight.double().T + plain.bias.double()
    chosen = list(CANDIDATES)
    assert (head(hidden).double() - exact)[:, chosen].abs().max() < 1e-4


def test_a_second_engine_takes_the_same_head_and_float32_needs_none():
    model = model_of(torch.bfloat16)
    assert install_head(model) is install_head(model)
    assert isinstance(model.get_output_embeddings(), OutputHead)
    assert install_head(model_of(torch.float32)) is None
