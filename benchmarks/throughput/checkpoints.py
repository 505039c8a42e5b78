"""The judge's checkpoint in the forms that peers read: GGUF for llama.cpp, compressed-tensors W8A8 for vLLM."""

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gguf
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor
from transformers import AutoConfig

_LINEAR = re.compile(r"model\.layers\.\d+\..*_proj\.weight")
_ROTATED = re.compile(r"\.(q|k)_proj\.weight$")
_ARCHITECTURES = {"llama": gguf.MODEL_ARCH.LLAMA, "qwen2": gguf.MODEL_ARCH.QWEN2}
_ROUNDED = gguf.GGMLQuantizationType


def write_w8a8(folder: Path, out: Path) -> None:
    """Write the linear layers' weights in 8 bits, a scale for each output channel; vLLM rounds each token as it comes.

    Args:
        folder: of the judge, in safetensors.
        out: made here.
    """
    shutil.copytree(folder, out, ignore=shutil.ignore_patterns("*.safetensors*"))
    tensors = {}
    for name, tensor in _tensors(folder):
        if not _LINEAR.fullmatch(name):
            tensors[name] = tensor
            continue
        scale = tensor.float().abs().amax(1, keepdim=True).clamp_min(1e-8) / 127
        tensors[name] = (tensor.float() / scale).round().to(torch.int8)
        tensors[f"{name}_scale"] = scale
    save_file(tensors, out / "model.safetensors", {"format": "pt"})
    eight_bits = {"num_bits": 8, "type": "int", "symmetric": True}
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    config["quantization_config"] = {
        "quant_method": "compressed-tensors",
        "format": "int-quantized",
        "quantization_status": "compressed",
        "ignore": ["lm_head"],
        "config_groups": {
            "group_0": {
                "targets": ["Linear"],
                "weights": eight_bits | {"strategy": "channel", "dynamic": False},
                "input_activations": eight_bits | {"strategy": "token", "dynamic": True},
            }
        },
    }
    (out / "config.json").write_text(json.dumps(config, indent=1), encoding="utf-8")


def write_gguf(folder: Path, out: Path, kind: str) -> None:
    """Write a Llama or a Qwen2 as GGUF without a tokenizer: it is to be given token ids.

    Args:
        folder: of the judge, in safetensors.
        out: the file.
        kind: `Q8_0` or `F16`, of the matrices; vectors stay in float32.
    """
    config: Any = AutoConfig.from_pretrained(folder)
    writer = gguf.GGUFWriter(out, config.model_type)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_context_length(config.max_position_embeddings)
    writer.add_embedding_length(config.hidden_size)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    writer.add_head_count_kv(config.num_key_value_heads)
    writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    writer.add_rope_dimension_count(config.hidden_size // config.num_attention_heads)
    writer.add_rope_freq_base(config.rope_parameters["rope_theta"])
    writer.add_vocab_size(config.vocab_size)
    writer.add_tokenizer_model("none")
    names = gguf.get_tensor_name_map(_ARCHITECTURES[config.model_type], config.num_hidden_layers)
    heads = {"q": config.num_attention_heads, "k": config.num_key_value_heads}
    for name, tensor in _tensors(folder):
        own = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert own is not None, f"GGUF has no name for {name}"
        if config.model_type == "llama" and (rotated := _ROTATED.search(name)):
            tensor = _interleaved(tensor, heads[rotated[1]])
        rounding = _ROUNDED.F32 if tensor.ndim == 1 else _ROUNDED[kind]
        writer.add_tensor(own, gguf.quantize(tensor.float().numpy(), rounding), raw_dtype=rounding)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def _interleaved(weight: Tensor, heads: int) -> Tensor:
    """Rows of a head in llama.cpp's order, which rotates neighbours where transformers rotates halves."""
    rows, features = weight.shape
    return weight.view(heads, 2, rows // heads // 2, features).transpose(1, 2).reshape(rows, features).contiguous()


def _tensors(folder: Path) -> Iterator[tuple[str, Tensor]]:
    """Names and tensors of all safetensors files of a folder."""
    for path in sorted(folder.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            for name in file.keys():  # noqa: SIM118 - it is no mapping
                yield name, file.get_tensor(name)
