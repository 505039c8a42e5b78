"""The folder of what judgelm makes of model files: `$JUDGELM_CACHE`, else `~/.cache/judgelm`. Light: loads no model.

It also keeps the speeds that `judgelm doctor --speed` measured, by which `auto` chooses engine and numeric format.
"""

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from judgelm.package import VERSION

CACHE_VARIABLE = "JUDGELM_CACHE"
_LIBRARIES = ("torch", "transformers", "vllm")
_ENVIRONMENT = ("OMP_NUM_THREADS", "ONEDNN_MAX_CPU_ISA", "CUDA_VISIBLE_DEVICES")
"""Variables that change the speed of an engine."""


def cache_root() -> Path:
    """The cache's folder, which need not exist."""
    return Path(os.environ.get(CACHE_VARIABLE) or "~/.cache/judgelm").expanduser()


def gguf_folder(sha256: str) -> Path:
    """Folder of the dequantised checkpoint of a GGUF file; where it exists, it is whole.

    Args:
        sha256: of the file, hex.
    """
    return cache_root() / "gguf" / sha256


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredSpeed:
    """Speed of an engine with one judge.

    Attributes:
        engine: its name.
        dtype: numeric format.
        quantization: as `EngineOptions` has it.
        prompt_tokens_per_s: of pairs judged in both orders, shared prefixes counted in each prompt, without loading.
    """

    engine: str
    dtype: str
    quantization: str | None
    prompt_tokens_per_s: float


def write_speeds(model: str, adapter: str | None, speeds: Sequence[MeasuredSpeed]) -> Path:
    """Keep the speeds of a judge for `read_speeds`; the file that has them.

    Args:
        model: folder, file or hub id, as in `EngineOptions`.
        adapter: its adapter, as there.
        speeds: all that were measured; earlier ones are forgotten.
    """
    path = _file_of(model, adapter)
    path.parent.mkdir(parents=True, exist_ok=True)
    record = {"model": model, "adapter": adapter, "speeds": [asdict(speed) for speed in speeds]}
    path.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    return path


def read_speeds(model: str, adapter: str | None) -> list[MeasuredSpeed]:
    """The speeds of a judge on this machine and with these libraries; none where they were not measured."""
    try:
        record = json.loads(_file_of(model, adapter).read_text(encoding="utf-8"))
        return [MeasuredSpeed(**speed) for speed in record["speeds"]]
    except (OSError, ValueError, KeyError, TypeError):
        return []  # not measured, or by another version


def _file_of(model: str, adapter: str | None) -> Path:
    """The file of a judge on this machine; new libraries, cores or instruction sets make it another file."""
    cpuinfo = Path("/proc/cpuinfo")
    lines = cpuinfo.read_text(encoding="utf-8", errors="replace").splitlines() if cpuinfo.is_file() else []
    processor = sorted({line for line in lines if line.startswith(("model name", "flags", "Features", "CPU part"))})
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    key = [
        [_location(model), adapter and _location(adapter)],
        [processor, cores, *map(os.environ.get, _ENVIRONMENT)],
        [VERSION, *map(_version, _LIBRARIES)],
    ]
    return cache_root() / "speed" / f"{hashlib.sha256(json.dumps(key).encode()).hexdigest()}.json"


def _location(model: str) -> str:
    return str(Path(model).resolve()) if Path(model).exists() else model


def _version(library: str) -> str | None:
    try:
        return version(library)
    except PackageNotFoundError:
        return None
