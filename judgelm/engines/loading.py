"""Loads a causal language model and its tokenizer from a folder or the hub, or says what is wrong with it."""

import hashlib
import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import try_to_load_from_cache
from safetensors import SafetensorError
from transformers import AutoModelForCausalLM, AutoTokenizer, BitsAndBytesConfig
from transformers.utils import logging as hf_logging

from judgelm.engines.base import EngineOptions, require
from judgelm.engines.packed_attention import ATTENTION_NAME
from judgelm.errors import ConfigError, ModelError

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "tekken.json")
_DTYPES = {"auto": "auto", "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_ATTENTION_LAYERS = {"full_attention", "sliding_attention"}
_WHOLE_BYTES = 64 << 20
_PIECES, _PIECE_BYTES = 256, 64 << 10


@dataclass(frozen=True, slots=True, kw_only=True)
class Loaded:
    """A model ready to run, its tokenizer, window, ids that end a reply, and where it came from."""

    model: Any
    tokenizer: Any
    window: int
    eos_ids: frozenset[int]
    quantization: str | None
    identity: dict[str, Any]


def load(options: EngineOptions) -> Loaded:
    """Load model, tokenizer and adapter.

    Raises:
        ModelError: what is missing or wrong, and what to do.
        ConfigError: an option that does not exist.
    """
    base, adapter = _split_adapter(options)
    with _without_progress_bars():
        return _load(base, adapter, options)


@contextmanager
def _without_progress_bars() -> Iterator[None]:
    """Keep transformers from drawing bars into the run's own; its setting is put back."""
    shown = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            hf_logging.enable_progress_bar()  # type: ignore[no-untyped-call]


def _load(base: str, adapter: str | None, options: EngineOptions) -> Loaded:
    tokenizer = _load_tokenizer(adapter if adapter and _has_tokenizer(adapter) else base, options)
    device = _device(options.device)
    model = _load_model(base, options, device)
    if adapter is not None:
        require("peft", extra="train")
        from judgelm.engines.adapters import put_adapter

        model = put_adapter(model, adapter, merge=options.quantization is None)
    model.eval()
    _check_attention(model, base)
    return Loaded(
        model=model,
        tokenizer=tokenizer,
        window=_window(model, tokenizer, options),
        eos_ids=_eos_ids(model, tokenizer),
        quantization=options.quantization,
        identity=_identity(base, adapter, options),
    )


def _split_adapter(options: EngineOptions) -> tuple[str, str | None]:
    """Base model and adapter; a folder that holds only an adapter names its own base."""
    folder = Path(options.model)
    config = folder / "adapter_config.json"
    if folder.is_dir() and config.is_file() and not (folder / "config.json").is_file():
        try:
            base = json.loads(config.read_text(encoding="utf-8")).get("base_model_name_or_path")
        except ValueError as error:
            raise ModelError(f"{config}: not JSON: {error}; restore the adapter's folder") from error
        if not base:
            raise ModelError(f"{config}: names no base model; pass the base as --model and this folder as --adapter")
        return str(base), options.model
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise ModelError(f"{options.model}: no config.json in this folder; it is not a model saved by transformers")
    return options.model, options.adapter


def _has_tokenizer(folder: str) -> bool:
    return any((Path(folder) / name).is_file() for name in _TOKENIZER_FILES)


def _load_tokenizer(source: str, options: EngineOptions) -> Any:
    if Path(source).is_dir() and not _has_tokenizer(source):
        raise ModelError(f"{source}: no tokenizer in this folder; copy tokenizer.json of the base model into it")
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            source, revision=options.revision, trust_remote_code=options.trust_remote_code
        )
    except (OSError, ValueError) as error:
        raise ModelError(f"{source}: cannot load the tokenizer: {_first_line(error)}") from error
    if not tokenizer.is_fast:
        raise ModelError(f"{source}: has only a slow tokenizer; save it once with tokenizer.json (a fast tokenizer)")
    return tokenizer


def _load_model(source: str, options: EngineOptions, device: str) -> Any:
    if options.dtype not in _DTYPES:
        raise ConfigError(f"dtype {options.dtype!r} does not exist; there are: {', '.join(_DTYPES)}")
    try:
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source,
            revision=options.revision,
            trust_remote_code=options.trust_remote_code,
            use_safetensors=True,
            dtype=_DTYPES[options.dtype],
            device_map={"": device} if options.quantization else None,  # needs accelerate, as bitsandbytes does
            attn_implementation=ATTENTION_NAME,
            quantization_config=_quantization(options.quantization),
            output_loading_info=True,
        )
    except (OSError, ValueError, KeyError, ImportError, RuntimeError, AssertionError, SafetensorError) as error:
        raise ModelError(f"{source}: cannot load the model: {_first_line(error)}{_load_hint(source)}") from error
    model, info = loaded
    if info["missing_keys"]:
        some = ", ".join(sorted(info["missing_keys"])[:3])
        raise ModelError(f"{source}: {len(info['missing_keys'])} weights are missing ({some}, ...); the folder is torn")
    return model if options.quantization else model.to(device)


def _quantization(name: str | None) -> Any:
    if name is None:
        return None
    make: Any = BitsAndBytesConfig  # its constructor is untyped
    if name == "4bit":
        return make(
            load_in_4bit=True,
            bnb_4bit_quant_type="nf4",
            bnb_4bit_use_double_quant=True,
            bnb_4bit_compute_dtype=torch.bfloat16,
        )
    if name == "8bit":
        return make(load_in_8bit=True)
    raise ConfigError(f"quantization {name!r} does not exist; there are: 4bit, 8bit")


def _load_hint(source: str) -> str:
    folder = Path(source)
    if not folder.is_dir():
        return "; check the hub id and the network, or give a local folder"
    if not any(folder.glob("*.safetensors")) and any(folder.glob("*.bin")):
        return "; pickled weights (.bin) are never loaded, save the model as safetensors"
    return ""


def _first_line(error: BaseException) -> str:
    text = str(error).strip()
    return text.splitlines()[0].rstrip(".") if text else type(error).__name__


def _check_attention(model: Any, source: str) -> None:
    """Refuse models whose layers keep a state other than keys and values."""
    config = model.config.get_text_config()
    layers = set(getattr(config, "layer_types", None) or ())
    if not getattr(model, "_supports_attention_backend", False) or layers - _ATTENTION_LAYERS:
        kind = getattr(config, "model_type", "this kind of model")
        raise ModelError(f"{source}: the transformers engine cannot run {kind} models packed; use --engine vllm")


def _device(name: str) -> str:
    if name == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ConfigError(f"device {name!r} does not exist; try auto, cpu, cuda or cuda:0") from error
    if device.type == "cuda" and (device.index or 0) >= torch.cuda.device_count():
        raise ConfigError(
            f"device {name!r} is not there: torch sees {torch.cuda.device_count()} CUDA devices; try auto"
        )
    return name


def _window(model: Any, tokenizer: Any, options: EngineOptions) -> int:
    """The shortest of what the model's config, its tokenizer and the user say."""
    stated = (
        getattr(model.config.get_text_config(), "max_position_embeddings", None),
        tokenizer.model_max_length,
        options.window_tokens,
    )
    known = [int(tokens) for tokens in stated if tokens and tokens < 10**9]
    if not known:
        raise ModelError(f"{options.model}: neither config nor tokenizer says the window; pass --window-tokens")
    return min(known)


def _eos_ids(model: Any, tokenizer: Any) -> frozenset[int]:
    ids: set[int] = set()
    for stated in (model.generation_config.eos_token_id if model.generation_config else None, tokenizer.eos_token_id):
        ids.update(stated if isinstance(stated, list) else [stated] if stated is not None else [])
    return frozenset(ids)


def _identity(base: str, adapter: str | None, options: EngineOptions) -> dict[str, Any]:
    """What tells this model from another: for a folder a hash of its files, for the hub id and revision."""
    found: dict[str, Any] = {"path": base, "sha": _folder_sha(base), "revision": options.revision}
    cached = None if found["sha"] else try_to_load_from_cache(base, "config.json", revision=options.revision)
    if isinstance(cached, str):
        found["commit"] = Path(cached).parent.name
    if adapter is not None:
        found |= {"adapter": adapter, "adapter_sha": _folder_sha(adapter)}
    return {key: value for key, value in found.items() if value is not None}


def _folder_sha(source: str) -> str | None:
    """sha256 over config, tokenizer and weight files; of large ones size and 256 pieces spread over the file."""
    folder = Path(source)
    if not folder.is_dir():
        return None
    digest = hashlib.sha256()
    for path in sorted(folder.iterdir()):
        if path.suffix not in {".json", ".safetensors", ".model", ".jinja"} or path.name == "trainer_state.json":
            continue
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            if size <= _WHOLE_BYTES:
                digest.update(file.read())
                continue
            for piece in range(_PIECES):
                file.seek((size - _PIECE_BYTES) * piece // (_PIECES - 1))
                digest.update(file.read(_PIECE_BYTES))
    return digest.hexdigest()
