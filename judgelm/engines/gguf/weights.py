"""Dequantise GGUF weights into a checkpoint, with transformers' conversion, and check what it leaves out."""

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import AutoModelForCausalLM

from judgelm.engines.gguf.header import GgufFile
from judgelm.engines.weights import all_parameters, first_not_finite
from judgelm.errors import ModelError, first_line
from judgelm.machine import usable_gpus

Progress = Callable[[float], None]
"""Called with the completed fraction (0 to 1)."""
_WAY_OUT = "use the model's safetensors, or a llama.cpp server with --engine openai"
_CONVERSION_ERRORS = (
    OSError, ValueError, KeyError, IndexError, RuntimeError, NotImplementedError, AttributeError, TypeError,
)  # fmt: skip


class _NotFiniteError(Exception):
    """The weight with this name contains NaN or infinity."""


def write_weights(file: GgufFile, target: Path, dtype: str, progress: Progress) -> str:
    """Write the weights and config to an empty folder. Return the dtype, which is float32 if float16 would overflow."""
    _check_rope(file)
    progress(0.0)
    try:
        _convert(file, target, getattr(torch, dtype))
    except _NotFiniteError as error:
        if dtype != "float16":
            raise ModelError(f"{file.path}: {error} contains NaN or infinity; download it again") from error
        return write_weights(file, target, "float32", progress)
    progress(1.0)
    return dtype


def _convert(file: GgufFile, target: Path, dtype: torch.dtype) -> None:
    if not usable_gpus():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # saving imports deepspeed, which warns if there is no GPU
    kind: Any = AutoModelForCausalLM
    configure = getattr(transformers, "GgufConfig", None)  # without it, older versions always dequantise
    quantization = {} if configure is None else {"quantization_config": configure(dequantize=True)}
    source = target / "source"
    source.mkdir()
    try:
        # use an empty folder, so that transformers does not load other files as parts of the model
        (source / file.path.name).symlink_to(file.path.resolve())
        model, info = kind.from_pretrained(
            source, gguf_file=file.path.name, dtype=dtype, output_loading_info=True, **quantization
        )
    except _CONVERSION_ERRORS as error:
        raise _refusal(file, error) from error
    finally:
        shutil.rmtree(source)
    _check_names(file, model.config, sorted(info["missing_keys"]))
    if name := first_not_finite(model.named_parameters()):
        raise _NotFiniteError(name)
    model.save_pretrained(target)


def _refusal(file: GgufFile, error: Exception) -> ModelError:
    finding = f"transformers cannot convert this {file.architecture} model: {first_line(error)}"
    return ModelError(f"{file.path}: {finding}; {_WAY_OUT}")


def _check_names(file: GgufFile, config: Any, missing: list[str]) -> None:
    if missing:
        some = ", ".join(sorted(missing)[:3])
        raise ModelError(f"{file.path}: {len(missing)} weights are missing ({some}, ...); use another file")
    weights = all_parameters(config)
    if weights != file.weights:  # transformers 5.19 skips unknown tensors and does not check shapes
        finding = f"the file has {file.weights:,} weights, but transformers' {file.architecture} model has {weights}"
        raise ModelError(f"{file.path}: {finding}; {_WAY_OUT}")


def _check_rope(file: GgufFile) -> None:
    """Reject RoPE scaling, which transformers 5.19 ignores."""
    scaling = file.metadata.get(f"{file.architecture}.rope.scaling.type", "none")
    tensors = [tensor.name for tensor in file.tensors if tensor.name.startswith("rope_")]
    if tensors or (scaling != "none" and file.architecture != "gpt-oss"):
        finding = f"the tensor {tensors[0]}" if tensors else f"rope.scaling.type {scaling}"
        finding = f"transformers does not convert RoPE scaling ({finding})"
        raise ModelError(f"{file.path}: {finding}; {_WAY_OUT}")
