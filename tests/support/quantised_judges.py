"""The tiny judge in the formats of quantised checkpoints, written as their own tools write them."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file

_GROUP = 32
_AWQ_ORDER = (0, 2, 4, 6, 1, 3, 5, 7)
"""The order in which AWQ packs eight neighbours into one word."""


def quantise_to_int8(judge: Path, folder: Path) -> Path:
    """The judge as a compressed-tensors checkpoint: int8 weights, a scale per row, int8 activations at run time."""
    weights = {}
    for name, weight in load_file(judge / "model.safetensors").items():
        if not name.endswith("_proj.weight"):
            weights[name] = weight
            continue
        scale = weight.abs().amax(1, keepdim=True) / 127
        weights[name] = (weight / scale).round().to(torch.int8)
        weights[f"{name}_scale"] = scale
    numbers = {"num_bits": 8, "type": "int", "symmetric": True}
    group = {
        "targets": ["Linear"],
        "weights": numbers | {"strategy": "channel", "dynamic": False},
        "input_activations": numbers | {"strategy": "token", "dynamic": True},
    }
    method = {"quant_method": "compressed-tensors", "format": "int-quantized", "ignore": ["lm_head"]}
    return _write(judge, folder, weights, method | {"config_groups": {"group_0": group}})


def quantise_to_gptq(judge: Path, folder: Path) -> tuple[Path, Path]:
    """The judge in GPTQ's format, rounded to 4 bits in groups of 32 inputs; and the same values as whole weights."""
    projections, weights = _bfloat16_weights(judge)
    whole = dict(weights)
    for name, weight in projections.items():
        codes, scales, whole[name] = _four_bits(weight)
        layer = name.removesuffix(".weight")
        weights[f"{layer}.qweight"] = _packed(codes.T).T.contiguous()  # eight inputs in a word
        weights[f"{layer}.qzeros"] = _packed(torch.full_like(scales, 7).int())  # one less than the zero of 8
        weights[f"{layer}.scales"] = scales.half()
        weights[f"{layer}.g_idx"] = (torch.arange(codes.shape[0]) // _GROUP).int()
    method = {"quant_method": "gptq", "bits": 4, "group_size": _GROUP, "desc_act": False, "sym": True}
    packed = _write(judge, folder / "gptq", weights, method, dtype=torch.bfloat16)
    return packed, _write(judge, folder / "whole", whole, dtype=torch.bfloat16)


def quantise_to_awq(judge: Path, folder: Path) -> tuple[Path, Path]:
    """As `quantise_to_gptq`, in AWQ's format."""
    projections, weights = _bfloat16_weights(judge)
    whole = dict(weights)
    for name, weight in projections.items():
        codes, scales, whole[name] = _four_bits(weight)
        layer = name.removesuffix(".weight")
        weights[f"{layer}.qweight"] = _packed(codes, _AWQ_ORDER)  # eight outputs in a word
        weights[f"{layer}.qzeros"] = _packed(torch.full_like(scales, 8).int(), _AWQ_ORDER)
        weights[f"{layer}.scales"] = scales.half()
    method = {"quant_method": "awq", "bits": 4, "group_size": _GROUP, "zero_point": True, "version": "gemm"}
    packed = _write(judge, folder / "awq", weights, method, dtype=torch.bfloat16)
    return packed, _write(judge, folder / "whole", whole, dtype=torch.bfloat16)


def _bfloat16_weights(judge: Path) -> tuple[dict[str, torch.Tensor], dict[str, torch.Tensor]]:
    """The projections in float32, and all other weights in bfloat16."""
    weights = load_file(judge / "model.safetensors")
    projections = {name: weight.float() for name, weight in weights.items() if name.endswith("_proj.weight")}
    return projections, {name: weight.bfloat16() for name, weight in weights.items() if name not in projections}


def _four_bits(weight: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Codes 0 to 15 of shape (inputs, outputs), scales of shape (groups, outputs), and the weight that they make."""
    outputs, inputs = weight.shape
    groups = weight.T.reshape(inputs // _GROUP, _GROUP, outputs)
    scales = (groups.abs().amax(1, keepdim=True) / 7).half().float()
    codes = (groups / scales).round().clamp(-8, 7)
    whole = (codes * scales).reshape(inputs, outputs).T.bfloat16().contiguous()
    return (codes + 8).int().reshape(inputs, outputs), scales.squeeze(1), whole


def _packed(codes: torch.Tensor, order: tuple[int, ...] = tuple(range(8))) -> torch.Tensor:
    """Eight neighbours of the last dimension in one 32-bit word."""
    words = torch.zeros(codes.shape[0], codes.shape[1] // 8, dtype=torch.int64)
    for place, neighbour in enumerate(order):
        words |= codes[:, neighbour::8].long() << (4 * place)
    return torch.where(words >= 1 << 31, words - (1 << 32), words).int()


def _write(
    judge: Path,
    folder: Path,
    weights: dict[str, torch.Tensor],
    method: dict[str, object] | None = None,
    *,
    dtype: torch.dtype = torch.float32,
) -> Path:
    """The judge's folder with these weights, and the method in its config."""
    shutil.copytree(judge, folder)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    config = json.loads(path.read_text()) | {"dtype": str(dtype).removeprefix("torch.")}
    path.write_text(json.dumps(config | ({"quantization_config": method} if method else {})))
    return folder
