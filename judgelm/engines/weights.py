"""Weight files, checked before a library reads them; and the numeric format that `--dtype auto` gives them.

A pickle can run any function while it is read. torch's `weights_only` unpickler builds tensors and plain containers and
calls nothing else. transformers, PEFT and vLLM use it too, but their errors do not name the file. They also open any
path that an index of shards names, in the folder or not. Adapters are read without peft, which vLLM does not need.

`auto` is the checkpoint's own format, with two exceptions. On a CUDA device a float32 checkpoint runs in bfloat16, in
half of the memory and several times faster. A CPU without instructions for bfloat16 or float16 emulates them, several
times slower than float32: there a few products of the model's shape are measured, and float32 is taken where it is
clearly faster and fits into memory. On a CPU nothing is rounded to fewer bits than the checkpoint has, except a float16
checkpoint whose float32 form does not fit, and weights that were blocks of a few bits in a GGUF file: bfloat16 moves
them by at most 1 part in 256, far less than their quantisation did, and is the fast format of most devices.
"""

import os
import pickle
import re
import struct
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path, PureWindowsPath
from typing import Any

import psutil
import torch
from huggingface_hub import hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, HFValidationError
from safetensors import SafetensorError, safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText

from judgelm.engines.base import INT8, EngineOptions
from judgelm.engines.gguf import gguf_record
from judgelm.engines.model_cache import read_speeds
from judgelm.errors import ModelError
from judgelm.jsonl import parse_json

_FINITE_FORMATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
_SAFETENSORS, _PICKLED = "adapter_model.safetensors", "adapter_model.bin"
_VOCABULARY = re.compile(
    r"\.(?P<layer>embed_tokens|lm_head|wte|embed_in|embed_out|word_embeddings)\."
    r"(?P<part>weight|base_layer\.weight|lora_embedding_A|lora_B\.weight)$"
)
_KINDS = (("model*.safetensors", "pytorch_model*.bin"), ("adapter_model.safetensors", "adapter_model.bin"))
_IN_ORDER = (
    "model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json",
)  # fmt: skip
"""The files of which transformers reads the first; an index that it does not read may name files that are not there."""
_BLOCKED = re.compile(r"GLOBAL (\S+)|function (<.+?>)")
_POINTER = b"version https://git-lfs"


def prefill_parameters(config: Any) -> int:
    """Number of weights that each prompt token is multiplied with.

    All weights of the model, except the input embedding, which is a lookup, and the output head, which only the last
    position uses; of a mixture's experts the share that a token visits.
    """
    build: Any = AutoModelForCausalLM.from_config  # untyped in transformers
    with torch.device("meta"):
        model = build(config)
    apart = {
        id(layer.weight) for layer in (model.get_input_embeddings(), model.get_output_embeddings()) if layer is not None
    }
    text = config.get_text_config()
    visited = getattr(text, "num_experts_per_tok", None)
    experts = getattr(text, "num_local_experts", None) or getattr(text, "num_experts", None)
    share = visited / experts if visited and experts else 1.0
    named = [(name, weight.numel()) for name, weight in model.named_parameters() if id(weight) not in apart]
    return sum(round(size * share) if ".experts." in name else size for name, size in named)


def first_not_finite(weights: Iterable[tuple[str, torch.Tensor]]) -> str | None:
    """Name of the first weight that holds NaN or infinity; None where there is none. Formats of 8 bits are left out."""
    for name, weight in weights:
        if weight.numel() and not weight.is_meta and weight.dtype in _FINITE_FORMATS:
            low, high = torch.aminmax(weight.detach())  # one pass without a copy; NaN goes into both
            if not bool(torch.isfinite(low) & torch.isfinite(high)):
                return name
    return None


def all_parameters(config: Any, *, trust_remote_code: bool = False) -> int | None:
    """Number of weights of the whole model, shared ones counted once; None for an unknown model type."""
    for kind in (AutoModelForCausalLM, AutoModelForImageTextToText):
        build: Any = kind.from_config  # untyped in transformers
        try:
            with torch.device("meta"):
                model = build(config, trust_remote_code=trust_remote_code)
            return sum(int(weight.numel()) for weight in model.parameters())
        except (OSError, ValueError, KeyError, AttributeError, ImportError):
            continue
    return None


def parameters_of_described(described: Mapping[str, Any]) -> int | None:
    """`prefill_parameters` of an engine's model; None for an unknown model type.

    Args:
        described: the `describe()` of an engine that runs a model on this machine.
    """
    model = described["model"]
    try:
        return prefill_parameters(AutoConfig.from_pretrained(model["path"], revision=model.get("revision")))
    except (OSError, ValueError, KeyError):
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class AdapterVocabulary:
    """The embeddings that an adapter holds or adapts.

    Attributes:
        rows: tokens of each, by the layer's name; of all of them those that the model had in training.
        saved: layers whose embeddings the adapter holds whole.
    """

    rows: dict[str, int]
    saved: frozenset[str]


def weights_file(adapter: Path) -> Path | None:
    """The weights in an adapter's folder: safetensors before a pickle; None where there are none."""
    paths = (adapter / _SAFETENSORS, adapter / _PICKLED)
    return next((path for path in paths if path.is_file()), None)


def check_weights(adapter: str) -> None:
    """Refuse an adapter without weights, with pickled ones that hold more than tensors, or with NaN or infinity.

    Raises:
        ModelError: there are no weights, torch refuses to read them, or they are no numbers.
    """
    path = _weights(adapter)
    check_pickled(adapter)
    try:
        name = first_not_finite(_tensors(path))
    except (SafetensorError, OSError):
        return  # loading them gives the error
    if name is not None:
        raise ModelError(f"{adapter}: {name} holds NaN or infinity; take another copy, or train it again")


def adapter_vocabulary(adapter: str) -> AdapterVocabulary:
    """The embeddings in an adapter's weights, which `check_weights` has checked.

    Raises:
        ModelError: there are no weights.
    """
    rows, saved = dict[str, int](), set[str]()
    try:
        for name, tensor in _tensors(_weights(adapter)):
            if tensor.ndim == 2 and (match := _VOCABULARY.search(name)) is not None:
                rows[match["layer"]] = tensor.shape[1 if match["part"] == "lora_embedding_A" else 0]
                if "lora" not in match["part"]:
                    saved.add(match["layer"])
    except (SafetensorError, OSError):
        pass  # loading them gives the error
    return AdapterVocabulary(rows=rows, saved=frozenset(saved))


def _weights(adapter: str) -> Path:
    path = weights_file(Path(adapter)) if Path(adapter).is_dir() else _download(adapter)
    if path is None:
        raise ModelError(f"{adapter}: no weights ({_SAFETENSORS} or {_PICKLED}); use the folder that PEFT saved")
    return path


def _tensors(path: Path) -> Iterator[tuple[str, torch.Tensor]]:
    if path.name == _PICKLED:
        weights = torch.load(path, map_location="cpu", weights_only=True)
        for name, value in weights.items() if isinstance(weights, dict) else ():
            if isinstance(value, torch.Tensor):  # loading them says what else is there
                yield str(name), value
        return
    with safe_open(path, "pt") as file:
        for name in file.keys():  # noqa: SIM118  # no mapping
            yield name, file.get_tensor(name)


def _download(adapter: str) -> Path | None:
    """The weights of a hub id in the cache; None where the hub has none."""
    for name in (_SAFETENSORS, _PICKLED):
        try:
            return Path(hf_hub_download(adapter, name))
        except EntryNotFoundError:
            continue
        except (OSError, HFValidationError) as error:
            raise ModelError(f"{adapter}: no such folder here, and not available from the hub: {error}") from error
    return None


def pickled_files(folder: Path) -> list[Path]:
    """The pickled weights in the folder of a model or adapter; none where there are safetensors."""
    return [
        path
        for safe, pickled in _KINDS
        if not any(folder.glob(safe))
        for path in sorted(folder.glob(pickled))
        if path.is_file()
    ]


def check_pickled(source: str, revision: str | None = None) -> None:
    """Refuse pickled weights that hold more than tensors, and an index of other files, before a library reads them.

    Reads the structure of each file and no tensor data, except for files of torch 1.5 and older, which are read whole.
    Of a hub id the cached files are checked; transformers is kept from asking the hub to convert them.

    Args:
        source: folder or hub id of a model or an adapter.
        revision: of the hub id.

    Raises:
        ModelError: torch does not read a file with `weights_only`; nothing in it was executed. Or an index is damaged,
            or names a file outside of its folder or one that a local folder lacks; none was opened.
    """
    os.environ.setdefault("DISABLE_SAFETENSORS_CONVERSION", "1")
    folder = _folder(source, revision)
    weights = next((folder / name for name in _IN_ORDER if (folder / name).is_file()), None)
    if weights is not None and weights.suffix == ".json":
        _check_index(weights, local=folder == Path(source))
    for path in pickled_files(folder):
        try:
            torch.load(path, map_location="meta", weights_only=True)
        except pickle.UnpicklingError as error:
            raise ModelError(f"{path}: {_finding(path, error)}") from error
        except (
            OSError, EOFError, RuntimeError, ValueError, LookupError, TypeError, AttributeError, struct.error,
        ) as error:  # fmt: skip
            raise ModelError(f"{path}: damaged or incomplete; download it again") from error


@contextmanager
def safe_unpickling(source: str, revision: str | None = None) -> Iterator[None]:
    """Context in which a library loads weights; an error names the file that torch refuses.

    Raises:
        ModelError: as `check_pickled`, also for files that are only downloaded in this context.
    """
    check_pickled(source, revision)
    try:
        yield
    except pickle.UnpicklingError as error:
        check_pickled(source, revision)
        raise ModelError(
            f"{source}: its pickled weights hold more than tensors and are refused; use a copy of the model in "
            "safetensors"
        ) from error


def _folder(source: str, revision: str | None) -> Path:
    """The folder with the files; of a hub id the one in the cache."""
    if Path(source).is_dir():
        return Path(source)
    for name in ("config.json", "adapter_config.json"):
        try:
            cached = try_to_load_from_cache(source, name, revision=revision)
        except ValueError:  # neither a folder nor a hub id; loading it says so
            break
        if isinstance(cached, str):
            return Path(cached).parent
    return Path(source)


def _check_index(index: Path, *, local: bool) -> None:
    for name in sorted(set(_shards(index))):
        path = PureWindowsPath(name)  # takes both kinds of slashes apart
        if path.drive or path.root or ".." in path.parts or not path.name or "\0" in name:
            raise ModelError(
                f"{index}: names the file {name!r}, which is not in this folder; nothing was opened; use another copy "
                "of the model"
            )
        if local and not (index.parent / name).is_file():
            raise ModelError(
                f"{index}: names {name}, which is missing in this folder; copy or download the model again"
            )


def _shards(index: Path) -> list[str]:
    """The files that an index names."""
    try:
        files: list[Any] = list(parse_json(index.read_text(encoding="utf-8"))["weight_map"].values())
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{index}: no index of weights (weight_map); copy or download the model again") from error
    if not files or not all(isinstance(file, str) for file in files):
        raise ModelError(f"{index}: weight_map names no files; copy or download the model again")
    return files


def is_lfs_pointer(path: Path) -> bool:
    """True if a file was cloned without its content."""
    with path.open("rb") as file:
        return file.read(len(_POINTER)) == _POINTER


def _finding(path: Path, error: pickle.UnpicklingError) -> str:
    if blocked := _BLOCKED.search(str(error)):
        return (
            f"refused, and nothing in it was executed: reading this pickle would call {blocked[1] or blocked[2]}, and "
            "weights hold tensors alone; use a copy of the model in safetensors, or report it where you got it"
        )
    if is_lfs_pointer(path):
        return "a Git LFS pointer instead of the weights; run: git lfs pull"
    return "not a checkpoint that torch can read safely (weights_only); download it again, or use a copy in safetensors"


class WeightsCheck:
    """Looks at the weights where they are, after vLLM loaded them."""

    model_runner: Any

    def first_weight_not_finite(self) -> str | None:
        """Name of the first weight of this worker that holds NaN or infinity."""
        return first_not_finite(self.model_runner.get_model().named_parameters())


_FLAGS = {
    "bfloat16": {"avx512_bf16", "amx_bf16", "bf16"},
    "float16": {"avx512_fp16", "amx_fp16", "asimdhp"},
}
"""Linux' names of the instructions for products of a format, on x86-64 and Arm."""
_STORED = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
_CLEARLY = 1.5
"""Minimum speed-up of another format."""
_WEIGHTS_SHARE = 0.8
"""Of the free memory; keys, values and activations need the rest."""
_ROWS, _SIDES, _ROUNDS = 128, (256, 1024), 5
_WIDE_BYTES = 1 << 30

TORCH_HAS_BFLOAT16: Callable[[], bool] = partial(torch.cuda.is_bf16_supported, including_emulation=False)
"""True if torch's CUDA device computes in bfloat16; starts CUDA in this process."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DtypeChoice:
    """The format to load (`auto` where the checkpoint's is not known), and a note for the user, often empty."""

    dtype: str
    note: str = ""


def resolve_dtype(
    base: str,
    config: Any,
    options: EngineOptions,
    *,
    device: str,
    reserved_bytes: int = 0,
    engine: str | None = None,
    has_bfloat16: Callable[[], bool] = TORCH_HAS_BFLOAT16,
) -> DtypeChoice:
    """The format for `options.dtype` on this machine; on a CPU it measures for a tenth of a second.

    Where `judgelm doctor --speed` measured the engine with this judge in both formats, the faster is taken.

    Args:
        base: the model's folder or hub id.
        config: the model's.
        options: its `dtype`, `quantization` and `trust_remote_code` count.
        device: torch's name of the device.
        reserved_bytes: memory that the engine takes besides the weights.
        engine: the engine that judges; None for other work, for which no speed was measured.
        has_bfloat16: whether the CUDA device computes in bfloat16; called for float32 checkpoints alone.
    """
    stored = stored_dtype(base, config)
    quantized = options.quantization not in (None, INT8) or getattr(config, "quantization_config", None) is not None
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
    measured = None if engine is None else _measured_choice(stored, options, engine)
    fits = weights is not None and 4 * weights <= _WEIGHTS_SHARE * free_bytes
    if measured is not None and (measured.dtype == stored or fits):
        return measured
    return choose_cpu_dtype(stored, measure_products(config), flags, weights=weights, free_bytes=free_bytes)


def _measured_choice(stored: str, options: EngineOptions, engine: str) -> DtypeChoice | None:
    """The faster of the checkpoint's format and float32, as measured with this judge; None where one was not."""
    rates = {
        speed.dtype: speed.prompt_tokens_per_s
        for speed in read_speeds(options.model, options.adapter)
        if (speed.engine, speed.quantization) == (engine, options.quantization)
    }
    if not {stored, "float32"} <= rates.keys():
        return None
    fast, slow = sorted(("float32", stored), key=lambda dtype: -rates[dtype])
    ratio = rates[fast] / rates[slow]
    return DtypeChoice(dtype=fast, note=f"dtype: {fast} ({ratio:.1f}x the speed of {slow} on this machine, measured)")


def requested_dtype(dtype: str, flags: frozenset[str], measure: Callable[[], Mapping[str, float]]) -> DtypeChoice:
    """The format that the user requested for a CPU, with a note where the CPU emulates it.

    Args:
        dtype: the format.
        flags: the CPU's, empty where they are not known.
        measure: seconds of the same product by format; called where the flags leave the speed open.
    """
    if dtype not in _FLAGS or not flags or flags & _FLAGS[dtype]:
        return DtypeChoice(dtype=dtype)
    finding = slowness(dtype, measure(), flags)
    return DtypeChoice(dtype=dtype, note=f"dtype: {dtype}, as asked ({finding} than float32)" if finding else "")


def choose_gpu_dtype(stored: str | None, has_bfloat16: Callable[[], bool]) -> DtypeChoice:
    """The format on a CUDA device: the checkpoint's, but bfloat16 for float32.

    Args:
        stored: the checkpoint's format; None where it is not known before it is loaded.
        has_bfloat16: whether the device computes in bfloat16; called for float32 alone.
    """
    if stored != "float32":
        return DtypeChoice(dtype=stored or "auto")
    if not has_bfloat16():
        return DtypeChoice(
            dtype="float32",
            note="dtype: float32, the checkpoint's (this GPU has no bfloat16; --dtype float16 takes half the memory)",
        )
    return DtypeChoice(
        dtype="bfloat16", note="dtype: bfloat16 (the checkpoint's float32, rounded; --dtype float32 keeps it)"
    )


def choose_cpu_dtype(
    stored: str, seconds: Mapping[str, float], flags: frozenset[str], *, weights: int | None, free_bytes: int
) -> DtypeChoice:
    """The format on a CPU for a checkpoint in 16 bits.

    Args:
        stored: `bfloat16` or `float16`.
        seconds: time of the same product in `float32`, `bfloat16` and `float16`.
        flags: the CPU's, empty where they are not known.
        weights: their number; None where it is not known, which keeps the stored format.
        free_bytes: memory for them.
    """
    measured = slowness(stored, seconds, flags)
    if not measured:
        speed = seconds["float32"] / seconds[stored]
        return DtypeChoice(dtype=stored, note=f"dtype: {stored} ({speed:.1f}x the speed of float32 on this CPU)")
    if weights is not None and 4 * weights <= _WEIGHTS_SHARE * free_bytes:
        hint = ""
        if stored == "float16" and (faster := seconds["float32"] / seconds["bfloat16"]) >= _CLEARLY:
            hint = f"; --dtype bfloat16 rounds the weights and is {faster:.1f}x faster"
        return DtypeChoice(dtype="float32", note=f"dtype: float32 ({measured}{hint})")
    size = "an unknown size" if weights is None else f"{4 * weights / 1e9:.1f} GB"
    unfit = f"{measured} than float32, which takes {size} where {max(0, free_bytes) / 1e9:.1f} GB are free"
    if stored == "float16" and seconds["float16"] / seconds["bfloat16"] >= _CLEARLY:
        return DtypeChoice(dtype="bfloat16", note=f"dtype: bfloat16, which rounds the weights ({unfit})")
    return DtypeChoice(dtype=stored, note=f"dtype: {stored} ({unfit})")


def slowness(dtype: str, seconds: Mapping[str, float], flags: frozenset[str]) -> str:
    """A format's slowdown against float32 on a CPU, and the reason; empty where it is not clear."""
    slower = seconds[dtype] / seconds["float32"]
    if slower < _CLEARLY:
        return ""
    why = f"this CPU has no {dtype} instructions; " if flags and not flags & _FLAGS[dtype] else ""
    return f"{why}{dtype} products measured {slower:.1f}x slower"


def wide_note(half: str | None, weights: int | None) -> str:
    """Note on a large float32 checkpoint that a 16-bit format would halve; empty otherwise.

    Args:
        half: the result of `half_format`.
        weights: number of weights; None where it is not known.
    """
    if half is None or weights is None or 4 * weights < _WIDE_BYTES:
        return ""
    return (
        f"dtype: float32, the checkpoint's: {4 * weights / 1e9:.1f} GB of weights; --dtype {half} takes "
        f"{2 * weights / 1e9:.1f} GB and is faster, and so is a checkpoint that is saved in it"
    )


def half_format(device: str, flags: frozenset[str]) -> str | None:
    """The 16-bit format that a CPU computes in, for messages; None where there is none."""
    return "bfloat16" if device == "cpu" and flags & _FLAGS["bfloat16"] else None


def stored_dtype(base: str, config: Any) -> str | None:
    """The checkpoint's format, by its config or its first weights; None where neither can be read.

    It is bfloat16 for weights dequantised from a GGUF file's blocks, whatever the cache holds them in.
    """
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
            return None  # loading it gives the error
        return next(filter(None, kinds), None)
    return None


def measure_products(config: Any) -> dict[str, float]:
    """Seconds of one matrix product of the model's shape in each format, the minimum of several on one thread.

    Measures the thread's own time, so that other processes do not count.
    """
    text = config.get_text_config()
    low, high = _SIDES
    width = min(high, max(low, int(getattr(text, "hidden_size", None) or high)))
    inner = min(high, max(low, int(getattr(text, "intermediate_size", None) or 4 * width)))
    rows, weight = torch.randn(_ROWS, width), torch.randn(inner, width)
    pairs = {
        name: (rows.to(dtype), weight.to(dtype))
        for name, dtype in (("float32", torch.float32), ("bfloat16", torch.bfloat16), ("float16", torch.float16))
    }
    precise = time.get_clock_info("thread_time").resolution < 1e-5  # on Windows it ticks 64 times a second
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
    """The flags of the first processor in the text of /proc/cpuinfo; empty where it has none."""
    for line in cpuinfo.splitlines():
        name, _, value = line.partition(":")
        if name.strip() in ("flags", "Features"):
            return frozenset(value.split())
    return frozenset()


def this_cpu_flags() -> frozenset[str]:
    """This processor's flags; empty where the system has no /proc/cpuinfo."""
    path = Path("/proc/cpuinfo")
    return cpu_flags(path.read_text(encoding="utf-8", errors="replace")) if path.is_file() else frozenset()


def available_bytes(root: Path = Path("/")) -> int:
    """Bytes that this process can have without swapping: the machine's, or what its control groups leave of them.

    Args:
        root: where `proc` and `sys` are mounted.
    """
    return max(0, min([int(psutil.virtual_memory().available), *_left_by_groups(root)]))


def _left_by_groups(root: Path) -> Iterator[int]:
    """Free bytes under each memory limit above this process; cached files count as free."""
    try:
        lines = (root / "proc/self/cgroup").read_text(encoding="utf-8").splitlines()
    except OSError:
        return
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            mount, names = root / "sys/fs/cgroup", ("memory.max", "memory.current", "inactive_file")
        elif "memory" in controllers.split(","):
            mount = root / "sys/fs/cgroup/memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        else:
            continue
        group = mount / path.lstrip("/")
        for folder in (group, *group.parents):
            if folder.is_relative_to(mount):  # in a container the path is often the host's, and only the mount exists
                yield from _left(folder, *names)


def _left(folder: Path, limit: str, used: str, cached: str) -> Iterator[int]:
    try:
        most, now = (int((folder / name).read_text(encoding="ascii")) for name in (limit, used))
        stat = dict(line.split() for line in (folder / "memory.stat").read_text(encoding="ascii").splitlines())
        yield most - now + int(stat.get(cached, 0))
    except (OSError, ValueError):
        return  # no limit ("max"), or no such group here
