"""Main memory: how much room there is for keys and values, and keeping what was freed for the next pass."""

import ctypes
from typing import Any

import torch

_MEMORY_SHARE = 0.5

_TRIM_THRESHOLD, _MMAP_THRESHOLD, _ARENA_MAX = -1, -3, -8  # of malloc.h
_MOST_BYTES = 2**31 - 1


def storable_tokens(model: Any, device: torch.device) -> int:
    """How many tokens of keys and values fit into half of the memory that is free now."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    per_token = 2 * config.num_hidden_layers * heads * size * model.dtype.itemsize
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else _free_memory()
    return max(1, int(_MEMORY_SHARE * free / per_token))


def _free_memory() -> int:
    """Bytes that can be had without swapping, as Linux states it; 4 GiB where it does not."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            stated = dict(line.split(":", 1) for line in file)
        return int(stated["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 4 << 30


def keep_freed_memory() -> bool:
    """Have this process keep what it frees, instead of giving large pieces back to the system; whether it will.

    A pass makes hundreds of tensors of megabytes. By default glibc asks the system for each of them and gives it back,
    and the system clears every page of it anew: on the CPU that takes a quarter of the time. All threads share one
    store of memory, or each would keep its own. Other C libraries than glibc are left as they are.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is None:
        return False
    settings = ((_ARENA_MAX, 1), (_MMAP_THRESHOLD, 2**30), (_TRIM_THRESHOLD, _MOST_BYTES))
    return all([mallopt(name, value) for name, value in settings])
