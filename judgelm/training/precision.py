"""Choose dtypes for training on a CPU, and configure TF32.

TRL 1.16 trains in bf16 by default, which is slow on CPUs without bfloat16 instructions. On these CPUs, `bf16` is off by
default. A resumed run keeps its dtypes.
"""

import os
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig
from trl import ModelConfig  # type: ignore[attr-defined]  # trl loads its names lazily, which mypy cannot see

from judgelm.engines.base import EngineOptions
from judgelm.engines.dtype import (
    measure_products,
    requested_dtype,
    resolve_dtype,
    slowness,
    stored_dtype,
    this_cpu_flags,
)
from judgelm.engines.weights import all_parameters
from judgelm.training.arguments import base_name
from judgelm.training.checkpoints import checkpoints_in, flaw_of, read_state
from judgelm.training.process_group import broadcast_from_rank0

_TRAINED_BYTES = 12
"""Bytes for each trained weight: the gradient and the two states of AdamW."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """Precision settings: `bf16` for matrix products and `dtype` for the base weights."""

    bf16: bool
    dtype: str | None
    notes: tuple[str, ...] = ()


def settle_precision(judge: Any, args: Any, model: ModelConfig) -> tuple[str, ...]:
    """Choose dtypes that the config does not set, and return notes for the user."""
    if args.device.type != "cpu":
        return ()
    settled = broadcast_from_rank0(lambda: _settled(judge, args, model))
    if args.bf16 and not settled.bf16:
        args.bf16, args.mixed_precision = False, "no"
    model.dtype = settled.dtype
    return settled.notes


def _settled(judge: Any, args: Any, model: ModelConfig) -> Precision:
    is_open = getattr(args, "bf16_is_open", False) and args.deepspeed_plugin is None
    recorded = _recorded(judge, args)
    quantized = model.load_in_4bit or model.load_in_8bit
    bf16, dtype = bool(args.bf16), model.dtype
    if recorded:  # if they differ from the config, resuming fails later
        bf16 = bool(recorded.get("bf16", bf16)) if is_open else bf16
        dtype = recorded.get("dtype", dtype) if dtype == "auto" else dtype
        is_open = False
    try:
        options = {"revision": model.model_revision, "trust_remote_code": args.trust_remote_code}
        config = AutoConfig.from_pretrained(base_name(model), **options)
    except (OSError, ValueError, KeyError):
        return Precision(bf16=bf16, dtype=dtype)  # the error is reported when the model is loaded
    notes = []
    if not quantized and not recorded:
        dtype, note = _weights(model, config, args)
        notes.append(note)
    if bf16:
        finding = slowness("bfloat16", measure_products(config), this_cpu_flags())
        if finding and is_open:
            bf16 = False
            notes.append(f"bf16: false ({finding} than float32)")
        elif finding:
            notes.append(f"bf16: true, as configured ({finding} than float32; bf16: false is faster)")
    return Precision(bf16=bf16, dtype=dtype, notes=tuple(note for note in notes if note))


def _weights(model: ModelConfig, config: Any, args: Any) -> tuple[str | None, str]:
    if model.dtype is None:
        return None, ""
    if model.dtype != "auto":
        choice = requested_dtype(model.dtype, this_cpu_flags(), partial(measure_products, config))
        return model.dtype, choice.note
    if stored_dtype(base_name(model), config) == "float32":
        return "float32", ""
    trained = 0 if model.use_peft else _TRAINED_BYTES
    weights = all_parameters(config, trust_remote_code=args.trust_remote_code) or 0
    base = base_name(model)
    options = EngineOptions(model=base, trust_remote_code=args.trust_remote_code)
    choice = resolve_dtype(base, config, options, device="cpu", reserved_bytes=trained * weights)
    return choice.dtype, "" if choice.dtype == "auto" else choice.note


def _recorded(judge: Any, args: Any) -> dict[str, Any]:
    if judge.overwrite_output_dir:
        return {}
    states = (read_state(folder) for folder in checkpoints_in(Path(str(args.output_dir))) if not flaw_of(folder))
    return next((dict(state.settings) for state in states if state is not None and state.resumable), {})


def agree_on_tf32() -> None:
    """Make torch's old TF32 switch match the new one.

    transformers 5.19 sets only the new switch. With torch 2.9 and later, `torch_compile` then fails because of the old
    switch.
    """
    if getattr(torch.backends, "fp32_precision", None) == "tf32":
        torch.set_float32_matmul_precision("high")
        os.environ.setdefault("VLLM_FLOAT32_MATMUL_PRECISION", "high")


class PrecisionMixin:
    """Mixin for TRL's configs. Records whether `bf16` was set, and configures TF32."""

    bf16: bool | None
    fp16: bool
    bf16_is_open: bool

    def __post_init__(self) -> None:
        self.bf16_is_open = self.bf16 is None and not self.fp16
        super().__post_init__()  # type: ignore[misc]  # TRL's config is next in the MRO
        agree_on_tf32()
