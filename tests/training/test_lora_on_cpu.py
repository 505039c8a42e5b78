"""The faster LoRA layers on a CPU match PEFT's."""

from types import SimpleNamespace

import pytest
import torch
from peft import LoraConfig, get_peft_model
from torch import nn
from transformers import AutoModelForCausalLM

from judgelm.training.lora_on_cpu import speed_up_lora


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
    tokens, base = torch.arange(6)[None], AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    with torch.no_grad(), model.disable_adapter():
        assert torch.equal(model(input_ids=tokens).logits, base(input_ids=tokens).logits)


@pytest.mark.parametrize(
    ("options", "facts"),
    [
        ({"lora_dropout": 0.1}, {}), ({"use_dora": True}, {}),
        ({}, {"is_deepspeed_enabled": True}), ({}, {"is_fsdp_enabled": True}),
    ],
)  # fmt: skip
def test_layers_with_more_than_two_products_and_sharded_models_stay_pefts(tiny_model, options, facts):
    assert speed_up_lora(trainer(adapted(tiny_model, **options), **facts)) == 0
