"""The tiny judge as a quantised checkpoint, as llm-compressor writes it."""

import json
import shutil
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file


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
    shutil.copytree(judge, folder)
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    quantization = method | {"config_groups": {"group_0": group}}
    path.write_text(json.dumps(json.loads(path.read_text()) | {"quantization_config": quantization}))
    return folder
