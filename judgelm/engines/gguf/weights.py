"""The weights of a GGUF file as a transformers model, refused where the conversion would leave something out."""

from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForCausalLM, GgufConfig

from judgelm.engines.gguf.files import GgufFile
from judgelm.engines.weights import all_parameters, first_not_finite
from judgelm.errors import ModelError, first_line


def load_weights(file: GgufFile, folder: Path, dtype: str) -> Any:
    """The model in a file, dequantised to a dtype, or to float32 where a weight exceeds its range.

    Args:
        file: its header.
        folder: holds the file as `file.path.name`.
        dtype: `float16`, `bfloat16` or `float32`.

    Raises:
        ModelError: transformers cannot convert it, or would change what the model computes.
    """
    _check_rope(file)
    model = _load(file, folder, getattr(torch, dtype))
    if dtype == "float16" and first_not_finite(model.named_parameters()):
        model = _load(file, folder, torch.float32)
    if name := first_not_finite(model.named_parameters()):
        raise ModelError(f"{file.path}: {name} holds NaN or infinity; download it again")
    return model


def _load(file: GgufFile, folder: Path, dtype: torch.dtype) -> Any:
    configure: Any = GgufConfig  # its constructor is untyped
    kind: Any = AutoModelForCausalLM
    try:
        model, info = kind.from_pretrained(
            folder,
            gguf_file=file.path.name,
            quantization_config=configure(dequantize=True),
            dtype=dtype,
            output_loading_info=True,
        )
    except (OSError, ValueError, KeyError, IndexError, RuntimeError, NotImplementedError, AttributeError) as error:
        raise ModelError(
            f"{file.path}: transformers cannot convert this {file.architecture} model: {first_line(error)}; use the "
            "model's safetensors, or a server of llama.cpp with --engine openai"
        ) from error
    if info["missing_keys"]:
        some = ", ".join(sorted(info["missing_keys"])[:3])
        raise ModelError(
            f"{file.path}: {len(info['missing_keys'])} weights are missing ({some}, ...); use another file"
        )
    weights = all_parameters(model.config)
    if weights != file.weights:  # transformers 5.19 skips tensors that it does not know, and compares no shapes
        raise ModelError(
            f"{file.path}: holds {file.weights:,} weights, but transformers' {file.architecture} model has {weights}; "
            "use the model's safetensors, or a server of llama.cpp with --engine openai"
        )
    return model


def _check_rope(file: GgufFile) -> None:
    """Refuse scaled positions, which transformers 5.19 ignores: every prompt would be read wrongly."""
    scaling = file.metadata.get(f"{file.architecture}.rope.scaling.type", "none")
    tensors = [name for name in file.tensors if name.startswith("rope_")]
    if tensors or (scaling != "none" and file.architecture != "gpt-oss"):
        finding = f"the tensor {tensors[0]}" if tensors else f"rope.scaling.type {scaling}"
        raise ModelError(
            f"{file.path}: scales its positions ({finding}), which transformers does not convert from GGUF; use the "
            "model's safetensors, or a server of llama.cpp with --engine openai"
        )
