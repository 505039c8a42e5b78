"""Dequantise GGUF weights into a checkpoint, one shard at a time.

The result is identical to transformers' own conversion, which keeps all weights in memory.
"""

import json
import os
import shutil
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from math import prod
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch
from gguf import GGUFWriter
from gguf.quants import dequantize
from huggingface_hub import split_torch_state_dict_into_shards
from safetensors.torch import save_file
from transformers import AutoConfig, AutoModelForCausalLM, GenerationConfig
from transformers import modeling_gguf_pytorch_utils as conversion

from judgelm.engines.gguf.header import GgufFile, GgufTensor
from judgelm.engines.weights import all_parameters, first_not_finite
from judgelm.errors import ModelError, first_line
from judgelm.machine import usable_gpus

Progress = Callable[[float], None]
"""Called with the completed fraction (0 to 1)."""
SHARD_BYTES = 1 << 30
_SLICE_WEIGHTS = 1 << 18
"""Small enough to fit in the CPU cache."""
_WAY_OUT = "use the model's safetensors, or a llama.cpp server with --engine openai"
_PLAIN = conversion.TensorProcessor
_TENSOR_BY_TENSOR = frozenset({_PLAIN, conversion.LlamaTensorProcessor, conversion.Gemma2TensorProcessor})
_VOCABULARY = frozenset({"tokenizer.ggml.tokens", "tokenizer.ggml.merges"})
_CONVERSION_ERRORS = (
    OSError, ValueError, KeyError, IndexError, RuntimeError, NotImplementedError, AttributeError, TypeError,
)  # fmt: skip


class _NotFiniteError(Exception):
    """The weight with this name contains NaN or infinity."""


def write_weights(file: GgufFile, target: Path, dtype: str, progress: Progress) -> str:
    """Write the weights and config to an empty folder. Return the dtype, which is float32 if float16 would overflow."""
    _check_rope(file)
    by_tensor = conversion.TENSOR_PROCESSORS.get(file.architecture, _PLAIN) in _TENSOR_BY_TENSOR
    write = _write_by_tensor if by_tensor else _write_by_transformers
    try:
        write(file, target, getattr(torch, dtype), progress)
    except _NotFiniteError as error:
        if dtype != "float16":
            raise ModelError(f"{file.path}: {error} contains NaN or infinity; download it again") from error
        for shard in target.glob("*.safetensors"):
            shard.unlink()
        return write_weights(file, target, "float32", progress)
    return dtype


def _write_by_tensor(file: GgufFile, target: Path, dtype: torch.dtype, progress: Progress) -> None:
    model, processor, names = _outline_of(file, target, dtype)
    tensors = {names[tensor.name]: tensor for tensor in file.tensors if tensor.name in names}
    wanted = dict(model.named_parameters())
    _check_names(file, model.config, [name for name in wanted if name not in tensors])
    for name, weight in wanted.items():
        if tuple(weight.shape) != tensors[name].shape:
            finding = f"{tensors[name].name} is {tensors[name].shape}, but transformers expects {tuple(weight.shape)}"
            raise ModelError(f"{file.path}: {finding}; use the model's safetensors")
    shards = split_torch_state_dict_into_shards(wanted, max_shard_size=SHARD_BYTES)
    done = 0
    with ThreadPoolExecutor(max(1, torch.get_num_threads())) as pool:
        for shard, shard_names in shards.filename_to_tensors.items():
            values = {}
            for name in shard_names:
                values[name] = _values(file, tensors[name], processor, dtype, pool)
                if first_not_finite([(name, values[name])]):
                    raise _NotFiniteError(name)
                done += values[name].numel()
                progress(done / file.weights)
            save_file(values, target / shard, metadata={"format": "pt"})
    if shards.is_sharded:
        index = {"metadata": shards.metadata, "weight_map": shards.tensor_to_filename}
        (target / "model.safetensors.index.json").write_text(json.dumps(index, indent=2) + "\n", encoding="utf-8")
    model.config.architectures, model.config.dtype = [type(model).__name__], dtype
    model.config.save_pretrained(target)
    GenerationConfig.from_model_config(model.config).save_pretrained(target)


def _outline_of(file: GgufFile, target: Path, dtype: torch.dtype) -> tuple[Any, Any, dict[str, str]]:
    outline = target / "outline"
    outline.mkdir()
    kind: Any = AutoModelForCausalLM
    try:
        _write_outline(file, outline / "outline.gguf")
        config = AutoConfig.from_pretrained(outline, gguf_file="outline.gguf")
        if "tokenizer.ggml.tokens" in file.metadata:
            config.vocab_size = int(file.metadata.get(_vocab_key(file), file.metadata["tokenizer.ggml.tokens"]))
        with torch.device("meta"):
            model = kind.from_config(config, dtype=dtype)
        change: Any = conversion.TENSOR_PROCESSORS.get(file.architecture, _PLAIN)  # untyped
        processor = change(config=config.to_dict())
        return model, processor, _names_in(model, processor)
    except _CONVERSION_ERRORS as error:
        raise _refusal(file, error) from error
    finally:
        shutil.rmtree(outline)


def _names_in(model: Any, processor: Any) -> dict[str, str]:
    """Map weight names. transformers' submodule tables take 5 seconds to build and are rarely needed."""
    whole = SimpleNamespace(config=model.config, state_dict=model.state_dict, named_children=list)
    names: dict[str, str] = conversion.get_gguf_hf_weights_map(whole, processor)
    if all(name in names.values() for name, _ in model.named_parameters()):
        return names
    return dict(conversion.get_gguf_hf_weights_map(model, processor))


def _write_outline(file: GgufFile, path: Path) -> None:
    writer = GGUFWriter(path, file.architecture)
    add: dict[type, Any] = {
        bool: writer.add_bool, int: writer.add_int64, float: writer.add_float64, str: writer.add_string,
        list: writer.add_array,
    }  # fmt: skip
    metadata = {_vocab_key(file): file.metadata.get("tokenizer.ggml.tokens")} | file.metadata
    for key, value in metadata.items():
        is_vocabulary = key in _VOCABULARY or (key.startswith("tokenizer.") and isinstance(value, list))
        if key != "general.architecture" and not is_vocabulary and value not in (None, []):
            add[type(value)](key, value)
    for tensor in file.tensors:
        writer.add_tensor(tensor.name, np.zeros(1, np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _vocab_key(file: GgufFile) -> str:
    return f"{file.architecture}.vocab_size"


def _values(
    file: GgufFile, tensor: GgufTensor, processor: Any, dtype: torch.dtype, pool: ThreadPoolExecutor
) -> torch.Tensor:
    probe = np.broadcast_to(np.float32(0), tensor.shape)
    unchanged = processor.process(weights=probe, name=tensor.name).weights is probe
    values = torch.empty(prod(tensor.shape), dtype=dtype if unchanged else torch.float32)
    content = np.memmap(file.path, np.uint8, "c", offset=tensor.start, shape=(tensor.size,))

    def fill(place: slice) -> None:
        scale = tensor.size / prod(tensor.shape)
        packed = content[round(place.start * scale) : round(place.stop * scale)]
        values[place] = torch.from_numpy(dequantize(packed.reshape(1, -1), tensor.kind).reshape(-1))

    list(pool.map(fill, _slices(values.numel())))
    if unchanged:
        return values.reshape(tensor.shape)
    changed = processor.process(weights=values.reshape(tensor.shape).numpy(), name=tensor.name).weights
    return torch.from_numpy(np.ascontiguousarray(changed)).to(dtype)


def _slices(weights: int) -> Iterator[slice]:
    for start in range(0, weights, _SLICE_WEIGHTS):
        yield slice(start, min(weights, start + _SLICE_WEIGHTS))


def _write_by_transformers(file: GgufFile, target: Path, dtype: torch.dtype, progress: Progress) -> None:
    from transformers import GgufConfig  # not available in the oldest supported version

    if not usable_gpus():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # saving imports deepspeed, which warns if there is no GPU
    configure: Any = GgufConfig  # its constructor is untyped
    kind: Any = AutoModelForCausalLM
    source = target / "source"
    source.mkdir()
    try:
        # use an empty folder, so that transformers does not load other files as parts of the model
        (source / file.path.name).symlink_to(file.path.resolve())
        model, info = kind.from_pretrained(
            source, gguf_file=file.path.name, dtype=dtype, output_loading_info=True,
            quantization_config=configure(dequantize=True),
        )  # fmt: skip
    except _CONVERSION_ERRORS as error:
        raise _refusal(file, error) from error
    finally:
        shutil.rmtree(source)
    _check_names(file, model.config, sorted(info["missing_keys"]))
    if name := first_not_finite(model.named_parameters()):
        raise _NotFiniteError(name)
    model.save_pretrained(target)
    progress(1.0)


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
