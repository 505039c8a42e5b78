"""Step `facts`: the machine, its software, and its peaks."""

import importlib.util
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version

import torch

from benchmarks.dummy_model import SHAPES
from benchmarks.gpu.peak_flops import copy_bandwidth, layer_flops, square_flops
from benchmarks.gpu.step import Save, Setting
from judgelm.machine import look_at_devices

_PACKAGES = ("torch", "transformers", "accelerate", "peft", "trl", "datasets", "tokenizers", "numpy", "triton")
_ATTENTION = ("flash_attn", "flash_attn_interface", "kernels", "xformers")
_TOKENS = 8192  # of a pass of the transformers engine on CUDA


def measure(setting: Setting, save: Save) -> None:
    """Look at the machine, then measure."""
    save({"devices": asdict(look_at_devices()), "cuda_build": torch.version.cuda, "versions": _versions()})
    save({"attention_packages": [name for name in _ATTENTION if importlib.util.find_spec(name)]})
    block_s = 0.02 if setting.tiny else 0.5
    dtype = str(setting.dtype).removeprefix("torch.")
    square = square_flops(setting.device, setting.dtype, 5 * block_s)
    save({"dtype": dtype, "square_product_flops": square})
    names = ["tiny"] if setting.tiny else [name for name in SHAPES if name != "tiny"]
    tokens = 256 if setting.tiny else _TOKENS
    layers = {
        name: layer_flops(SHAPES[name], tokens, setting.device, setting.dtype, block_s) for name in names
    }  # fmt: skip
    save({"layer_products_flops": layers, "layer_products_tokens": tokens})
    count = 1 << (24 if setting.tiny else 32)
    save({"copy_bytes_per_s": copy_bandwidth(count, setting.device, block_s), "copy_bytes": count})


def _versions() -> dict[str, str | None]:
    versions: dict[str, str | None] = {}
    for name in _PACKAGES:
        try:
            versions[name] = version(name)
        except PackageNotFoundError:
            versions[name] = None
    return versions
