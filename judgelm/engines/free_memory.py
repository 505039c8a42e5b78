"""How much room there is for keys and values, and which errors say that there is none."""

from typing import Any

import torch

_MEMORY_SHARE = 0.5


def storable_tokens(model: Any, device: torch.device) -> int:
    """How many tokens of keys and values fit into half of the memory that is free now."""
    config = model.config.get_text_config()
    heads = getattr(config, "num_key_value_heads", None) or config.num_attention_heads
    size = getattr(config, "head_dim", None) or config.hidden_size // config.num_attention_heads
    per_token = 2 * config.num_hidden_layers * heads * size * model.dtype.itemsize
    free = torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else _free_memory()
    return max(1, int(_MEMORY_SHARE * free / per_token))


def is_out_of_memory(error: BaseException) -> bool:
    """Whether a pass failed for want of memory; on the CPU torch has no error of its own for it."""
    text = str(error)
    kinds = (torch.OutOfMemoryError, MemoryError)
    return isinstance(error, kinds) or "can't allocate memory" in text or "not enough memory" in text


def _free_memory() -> int:
    """Bytes that can be had without swapping, as Linux states it; 4 GiB where it does not."""
    try:
        with open("/proc/meminfo", encoding="ascii") as file:
            stated = dict(line.split(":", 1) for line in file)
        return int(stated["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        return 4 << 30
