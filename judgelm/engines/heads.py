"""Linear heads on the state of a layer, and models without the layers after it."""

from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file

from judgelm.engines.base import EngineOptions, HeadFile
from judgelm.errors import ModelError, RunError, first_line

SCORE = "score.weight"
"""Name of the weight in a sequence-classification model of transformers."""


def write_head(path: str | Path, weights: Any) -> None:
    """Write weights of shape (rows, hidden size) or (hidden size,)."""
    rows = torch.as_tensor(weights, dtype=torch.float32)
    save_file({SCORE: rows.reshape(-1, rows.shape[-1]).contiguous()}, path)


def read_head(head: HeadFile, config: Any) -> torch.Tensor:
    """Load the weights, shape (rows, hidden size), and check that they match the model's config."""
    try:
        weights = load_file(head.path)[SCORE]
    except (OSError, SafetensorError, KeyError) as error:
        raise ModelError(f"{head.path}: cannot load the head: {first_line(error)}; run judgelm tune again") from error
    text = config.get_text_config()
    if weights.shape != (head.rows, text.hidden_size) or not weights.is_floating_point():
        shape = " x ".join(map(str, weights.shape))
        needed = f"{head.rows} x {text.hidden_size}"
        finding = f"the head has {shape} weights ({weights.dtype}), but the model needs {needed}"
        raise ModelError(f"{head.path}: {finding}; restore the model that it was tuned for, or run judgelm tune again")
    if not torch.isfinite(weights).all():
        raise ModelError(f"{head.path}: the weights contain NaN or infinity; run judgelm tune again")
    if not 1 <= head.layer <= text.num_hidden_layers:
        finding = f"the head uses layer {head.layer}, but the model has {text.num_hidden_layers} layers"
        raise ModelError(f"{head.path}: {finding}; restore the model that it was tuned for, or run judgelm tune again")
    return weights


def keep_layers(config: Any, layers: int, outputs: int) -> None:
    """Change a config to a sequence classifier with the first `layers` layers."""
    text = config.get_text_config()
    before = text.num_hidden_layers
    for name, value in list(vars(text).items()):
        if isinstance(value, list) and len(value) == before:  # one entry per layer
            setattr(text, name, value[:layers])
    text.num_hidden_layers = layers
    config.num_labels = text.num_labels = outputs


def write_checkpoint(options: EngineOptions, folder: Path) -> None:
    """Write the first layers and the head as a sequence classifier of transformers, with its tokenizer.

    Raises:
        ModelError: the model cannot be loaded, or the head does not fit.
    """
    from judgelm.engines.transformers.loaded_model import load_classifier

    model, tokenizer = load_classifier(options)
    if model.config.pad_token_id is None:
        model.config.pad_token_id = tokenizer.pad_token_id or tokenizer.eos_token_id
    try:
        model.save_pretrained(folder)
        tokenizer.save_pretrained(folder)
    except OSError as error:
        raise RunError(f"{folder}: cannot write: {error.strerror}") from error
