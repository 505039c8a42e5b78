"""The dtype that a finished judge is written in: what engines read it in, not the float32 of its master weights.

Checkpoints to go on from keep what training has. An adapter is small and is written as it was trained.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedModel, Trainer

from judgelm.errors import ConfigError

SAVE_DTYPES = ("auto", "bfloat16", "float16", "float32")


def save_dtype_of(asked: str, args: Any) -> torch.dtype | None:
    """The dtype of a finished judge's weights; None leaves them as they were trained.

    Args:
        asked: `save_dtype`; `auto` is bfloat16 where training computed in it, else as trained.
        args: the trainer's arguments.

    Raises:
        ConfigError: no such dtype, or one that DeepSpeed cannot gather.
    """
    if asked not in SAVE_DTYPES:
        raise ConfigError(f"save_dtype {asked!r} does not exist; available: {', '.join(SAVE_DTYPES)}")
    if asked == "auto":
        return torch.bfloat16 if args.bf16 else None
    if asked == "float32" and args.deepspeed_plugin is not None and (args.bf16 or args.fp16):
        raise ConfigError(
            "save_dtype is float32, but DeepSpeed gathers the weights in 16 bits; leave it out, and make float32 "
            "weights of a checkpoint with DeepSpeed's zero_to_fp32.py"
        )
    dtype: torch.dtype = getattr(torch, asked)
    return dtype


class SavesInDtype(Trainer):
    """To be put before a trainer's class: writes whole models in another dtype while `saving_in` says so."""

    _save_dtype: torch.dtype | None = None

    @contextmanager
    def saving_in(self, dtype: torch.dtype | None) -> Iterator[None]:
        """Write what is saved within in this dtype; None as it is."""
        self._save_dtype = dtype
        try:
            yield
        finally:
            self._save_dtype = None

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """Write model, configuration and tokenizer; `state_dict` holds gathered weights."""
        dtype, model = self._save_dtype, self.model
        if dtype is None or not isinstance(model, PreTrainedModel) or getattr(model, "hf_quantizer", None) is not None:
            super()._save(output_dir, state_dict)
            return
        weights = model.state_dict() if state_dict is None else state_dict
        exempt = {*(model._keep_in_fp32_modules_strict or ()), *(model._keep_in_fp32_modules or ())}
        super()._save(output_dir, cast_weights(weights, dtype, exempt))
        _write_dtype(Path(output_dir or str(self.args.output_dir)) / "config.json", dtype)


def cast_weights(weights: Mapping[str, Tensor], dtype: torch.dtype, exempt: set[str]) -> dict[str, Tensor]:
    """Floating-point weights in a dtype, on the CPU; shared ones stay shared.

    Args:
        weights: by name.
        dtype: the new one.
        exempt: names of modules that keep their dtype, since the model's authors keep them in float32.
    """
    done: dict[tuple[Any, ...], Tensor] = {}
    cast = {}
    for name, tensor in weights.items():
        if not tensor.is_floating_point() or not exempt.isdisjoint(name.split(".")):
            cast[name] = tensor
            continue
        key = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride())
        if key not in done:
            done[key] = tensor.to("cpu", dtype)
        cast[name] = done[key]
    return cast


def _write_dtype(path: Path, dtype: torch.dtype) -> None:
    """State the dtype in the model's configuration: transformers writes that of the weights in memory."""
    config = json.loads(path.read_text(encoding="utf-8"))
    for part in (config, *(value for value in config.values() if isinstance(value, dict))):
        if "dtype" in part:
            part["dtype"] = str(dtype).removeprefix("torch.")
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    partial.replace(path)
