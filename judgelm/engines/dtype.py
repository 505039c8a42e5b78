"""Resolve `--dtype auto`. The default is the checkpoint's dtype.

On CUDA devices, float32 checkpoints run in bfloat16. On CPUs, judgelm benchmarks matrix products. judgelm uses float32
if 16-bit products are clearly slower and the float32 weights fit in memory.
"""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from judgelm.engines.base import EngineOptions
from judgelm.engines.gguf.checkpoint import gguf_record
from judgelm.engines.memory import available_bytes as available_bytes  # for training
from judgelm.engines.weights import all_parameters

_FLAGS = {"bfloat16": {"avx512_bf16", "amx_bf16", "bf16"}, "float16": {"avx512_fp16", "amx_fp16", "asimdhp"}}
"""CPU feature flags on x86-64 and Arm."""
_STORED = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_MIN_SPEEDUP = 1.5
_WEIGHTS_SHARE = 0.8
"""Maximum share of free memory to use for weights."""
_ROWS, _SIDES, _ROUNDS = 128, (256, 1024), 5
_WIDE_BYTES = 1 << 30

TORCH_HAS_BFLOAT16: Callable[[], bool] = partial(torch.cuda.is_bf16_supported, including_emulation=False)
"""Calling this initialises CUDA in this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DtypeChoice:
    """The dtype to load the weights in (`auto` if unknown) and a note for the user."""

    dtype: str
    note: str = ""


def resolve_dtype(
    base: str,
    config: Any,
    options: EngineOptions,
    *,
    device: str,
    reserved_bytes: int = 0,
    has_bfloat16: Callable[[], bool] = TORCH_HAS_BFLOAT16,
) -> DtypeChoice:
    """Resolve `options.dtype` for this machine. On a CPU, this may run a benchmark that takes about 0.1 seconds.

    `reserved_bytes` are not available for weights.
    """
    stored = stored_dtype(base, config)
    quantized = options.quantization is not None or getattr(config, "quantization_config", None) is not None
    if options.dtype == "auto" and device.startswith("cuda"):
        return choose_gpu_dtype(stored, has_bfloat16)
    if quantized:
        return DtypeChoice(dtype=(stored or "auto") if options.dtype == "auto" else options.dtype)
    flags = this_cpu_flags()
    if options.dtype != "auto":
        if device != "cpu":
            return DtypeChoice(dtype=options.dtype)
        return requested_dtype(options.dtype, flags, partial(measure_products, config))
    if stored == "float32":
        half = half_format(device, flags)
        weights = all_parameters(config, trust_remote_code=options.trust_remote_code) if half else None
        return DtypeChoice(dtype=stored, note=wide_note(half, weights))
    if stored is None or device != "cpu":
        return DtypeChoice(dtype=stored or "auto")
    weights = all_parameters(config, trust_remote_code=options.trust_remote_code)
    free_bytes = available_bytes() - reserved_bytes
    return choose_cpu_dtype(stored, measure_products(config), flags, weights=weights, free_bytes=free_bytes)


def requested_dtype(dtype: str, flags: frozenset[str], measure: Callable[[], Mapping[str, float]]) -> DtypeChoice:
    """Return the requested dtype, with a note if it is slow because this CPU emulates it."""
    if dtype not in _FLAGS or not flags or flags & _FLAGS[dtype]:
        return DtypeChoice(dtype=dtype)
    finding = slowness(dtype, measure(), flags)
    return DtypeChoice(dtype=dtype, note=f"dtype: {dtype}, as requested ({finding})" if finding else "")


def choose_gpu_dtype(stored: str | None, has_bfloat16: Callable[[], bool]) -> DtypeChoice:
    """Return the checkpoint's dtype, or bfloat16 for float32 checkpoints if the GPU supports it."""
    if stored != "float32":
        return DtypeChoice(dtype=stored or "auto")
    if not has_bfloat16():
        note = "dtype: float32 (this GPU does not support bfloat16; use --dtype float16 to halve memory usage)"
        return DtypeChoice(dtype="float32", note=note)
    note = "dtype: bfloat16 (rounded from a float32 checkpoint; use --dtype float32 to keep full precision)"
    return DtypeChoice(dtype="bfloat16", note=note)


def choose_cpu_dtype(
    stored: str, seconds: Mapping[str, float], flags: frozenset[str], *, weights: int | None, free_bytes: int
) -> DtypeChoice:
    """Choose the dtype for a 16-bit checkpoint. `seconds` maps each dtype to its measured time."""
    measured = slowness(stored, seconds, flags)
    if not measured:
        speed = seconds["float32"] / seconds[stored]
        return DtypeChoice(dtype=stored, note=f"dtype: {stored} ({speed:.1f}x the speed of float32 on this CPU)")
    if weights is not None and 4 * weights <= _WEIGHTS_SHARE * free_bytes:
        hint = ""
        if stored == "float16" and (faster := seconds["float32"] / seconds["bfloat16"]) >= _MIN_SPEEDUP:
            hint = f"; --dtype bfloat16 rounds the weights and is {faster:.1f}x faster"
        return DtypeChoice(dtype="float32", note=f"dtype: float32 ({measured}{hint})")
    size = "an unknown amount of memory" if weights is None else f"{4 * weights / 1e9:.1f} GB"
    unfit = f"{measured}, which needs {size}; {max(0, free_bytes) / 1e9:.1f} GB are free"
    if stored == "float16" and seconds["float16"] / seconds["bfloat16"] >= _MIN_SPEEDUP:
        return DtypeChoice(dtype="bfloat16", note=f"dtype: bfloat16, which rounds the weights ({unfit})")
    return DtypeChoice(dtype=stored, note=f"dtype: {stored} ({unfit})")


def slowness(dtype: str, seconds: Mapping[str, float], flags: frozenset[str]) -> str:
    """Describe the slowdown relative to float32, if significant."""
    slower = seconds[dtype] / seconds["float32"]
    if slower < _MIN_SPEEDUP:
        return ""
    why = f"this CPU has no {dtype} instructions; " if flags and not flags & _FLAGS[dtype] else ""
    return f"{why}{dtype} matrix products are {slower:.1f}x slower than float32"


def wide_note(half: str | None, weights: int | None) -> str:
    """Suggest a 16-bit dtype for a large float32 checkpoint."""
    if half is None or weights is None or 4 * weights < _WIDE_BYTES:
        return ""
    return (
        f"dtype: float32, as in the checkpoint ({4 * weights / 1e9:.1f} GB of weights); --dtype {half} needs "
        f"{2 * weights / 1e9:.1f} GB and is faster, as is a checkpoint saved in {half}"
    )


def half_format(device: str, flags: frozenset[str]) -> str | None:
    """Return the 16-bit dtype with native CPU support, if any."""
    return "bfloat16" if device == "cpu" and flags & _FLAGS["bfloat16"] else None


def stored_dtype(base: str, config: Any) -> str | None:
    """Return the checkpoint's dtype. Quantised GGUF weights are treated as bfloat16."""
    if (gguf := gguf_record(base)) is not None and gguf.quantised:
        return "bfloat16"
    for part in (config, config.get_text_config()):
        if (dtype := getattr(part, "dtype", None)) is not None:
            return str(dtype).removeprefix("torch.")
    for path in sorted(Path(base).glob("*.safetensors")):
        try:
            with safe_open(path, "pt") as file:
                kinds = [_STORED.get(file.get_slice(name).get_dtype()) for name in file.keys()]  # noqa: SIM118
        except (OSError, SafetensorError):
            return None  # the error is reported when the weights are loaded
        return next(filter(None, kinds), None)
    return None


def measure_products(config: Any) -> dict[str, float]:
    """Return the minimum time in seconds for a typical single-threaded matrix product, by dtype."""
    text = config.get_text_config()
    low, high = _SIDES
    width = min(high, max(low, int(getattr(text, "hidden_size", None) or high)))
    inner = min(high, max(low, int(getattr(text, "intermediate_size", None) or 4 * width)))
    rows, weight = torch.randn(_ROWS, width), torch.randn(inner, width)
    dtypes = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
    pairs = {name: (rows.to(dtype), weight.to(dtype)) for name, dtype in dtypes.items()}
    precise = time.get_clock_info("thread_time").resolution < 1e-5  # Windows only has 64 ticks per second
    clock = time.thread_time if precise else time.perf_counter
    best = dict.fromkeys(pairs, float("inf"))
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with torch.inference_mode():
            for _ in range(_ROUNDS):
                for name, (row, matrix) in pairs.items():
                    began = clock()
                    torch.nn.functional.linear(row, matrix)
                    best[name] = min(best[name], max(clock() - began, 1e-9))
    finally:
        torch.set_num_threads(threads)
    return best


def cpu_flags(cpuinfo: str) -> frozenset[str]:
    """Parse the CPU flags from /proc/cpuinfo."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def this_cpu_flags() -> frozenset[str]:
    """Return this CPU's feature flags, if known."""
    path = Path("/proc/cpuinfo")
    return cpu_flags(path.read_text(encoding="utf-8", errors="replace")) if path.is_file() else frozenset()
