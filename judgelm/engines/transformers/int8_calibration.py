"""Turns a loaded model's linear layers into 8-bit ones, by the activations of a short text."""

import json
from collections.abc import Iterable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from judgelm.engines.dtype import this_cpu_flags
from judgelm.engines.transformers.int8_layers import Int8Linear, Smoothing, best_smoothing, runs_int8
from judgelm.engines.transformers.kv_cache import KVCache
from judgelm.engines.transformers.packed_attention import PromptSegment
from judgelm.errors import ConfigError
from judgelm.package import EVERYDAY_PAIRS
from judgelm.prompts.truncation import Tokenizer

_SAMPLED_TOKENS = 256
_LARGEST_ERROR = 0.03
_EVERY = 4
"""Share of the everyday pairs: some thousand tokens are enough."""


def check_int8(device: str) -> None:
    """Refuse a device that cannot run 8-bit products.

    Raises:
        ConfigError: it is no x86 CPU.
    """
    if device != "cpu" or not runs_int8():
        raise ConfigError(f"--quantization int8 is for x86 CPUs, not for {device}; on a GPU take 8bit or 4bit")


@torch.inference_mode()
def quantise(model: Any, tokenizer: Tokenizer) -> str:
    """Quantise a model on the CPU in place, except its head and the layers whose output would change too much.

    Returns:
        A note for the user.
    """
    head = model.get_output_embeddings()
    layers = {
        (parent, name): child
        for parent in model.modules()
        for name, child in parent.named_children()
        if type(child) is nn.Linear and child is not head
    }
    smoothings = _calibrated(model, layers.values(), tokenizer)
    exact_enough = {
        slot: smoothing.factors
        for slot, layer in layers.items()
        if (smoothing := smoothings.get(layer)) is not None and smoothing.error <= _LARGEST_ERROR
    }
    for (parent, name), factors in exact_enough.items():
        setattr(parent, name, Int8Linear(layers[parent, name], factors, this_cpu_flags()))
    limit = f"the others would be off by more than {_LARGEST_ERROR:.0%}, or were not used by the calibration text"
    return f"int8: {len(exact_enough)} of {len(layers)} linear layers" + (
        f"; {limit}" if len(exact_enough) < len(layers) else ""
    )


def _calibrated(model: Any, layers: Iterable[nn.Linear], tokenizer: Tokenizer) -> dict[nn.Module, Smoothing]:
    """The factors of each layer that the model uses, found while it reads the calibration text."""
    smoothings: dict[nn.Module, Smoothing] = {}

    def calibrate(layer: nn.Module, arguments: tuple[Tensor, ...], flags: frozenset[str]) -> None:
        assert isinstance(layer, nn.Linear)
        rows = arguments[0].reshape(-1, layer.in_features)
        step = max(1, len(rows) // _SAMPLED_TOKENS)
        smoothings[layer] = best_smoothing(layer, rows[::step], flags)

    hook = partial(calibrate, flags=this_cpu_flags())
    hooks = [layer.register_forward_pre_hook(hook) for layer in layers]
    try:
        _read(model, calibration_ids(tokenizer))
    finally:
        for registered in hooks:
            registered.remove()
    return smoothings


def calibration_ids(tokenizer: Tokenizer) -> list[list[int]]:
    """Token ids of everyday questions with two answers each; labels have no part in it."""
    rows = [json.loads(line) for line in EVERYDAY_PAIRS.read_text(encoding="utf-8").splitlines()[::_EVERY]]
    texts = ["\n\n".join((row["question"], row["answer_1"], row["answer_2"])) for row in rows]
    return list(tokenizer(texts, add_special_tokens=True)["input_ids"])


def _read(model: Any, sequences: list[list[int]]) -> None:
    """One pass over all sequences, packed."""
    model(
        input_ids=torch.tensor([[token for ids in sequences for token in ids]]),
        position_ids=torch.tensor([[position for ids in sequences for position in range(len(ids))]]),
        use_cache=False,
        logits_to_keep=1,
        segments=[PromptSegment(KVCache(), len(ids)) for ids in sequences],
    )
