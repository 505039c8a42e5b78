"""Load, check, and hash model files."""

import hashlib
import math
import re
import struct
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import transformers
from huggingface_hub import hf_hub_download, try_to_load_from_cache
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError, StrictDataclassError
from safetensors import SafetensorError
from transformers import AutoConfig, AutoTokenizer
from transformers.modeling_layers import GenericForSequenceClassification
from transformers.utils import logging as hf_logging

from judgelm.bounds import read_text
from judgelm.engines.base import EngineOptions
from judgelm.engines.gguf.checkpoint import gguf_checkpoint, gguf_record
from judgelm.engines.model_cache import cache_root, gguf_folder
from judgelm.engines.weights import is_lfs_pointer, pickled_files
from judgelm.errors import CardError, ModelError, first_line
from judgelm.jsonl import parse_json
from judgelm.prompts.judge_card import Card, GgufBase, find_card, is_gguf, weights_of
from judgelm.prompts.truncation import Truncator
from judgelm.records import MAX_TEMPERATURE, MAX_TOKENS

LOAD_ERRORS = (
    OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, ArithmeticError, AssertionError,
    ImportError, StrictDataclassError, SafetensorError, re.error, struct.error,
)  # fmt: skip
"""Errors that transformers raises for damaged model files."""
_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "tekken.json")
_TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json")
_REWARD_HEAD = "ForSequenceClassification"
_USE_REWARD = "use a reward model such as Skywork-Reward-V2"
_MAX_HASHED_BYTES = 64 << 20
_PIECES, _PIECE_BYTES = 256, 64 << 10


def split_adapter(options: EngineOptions) -> tuple[str, str | None]:
    """Return the base model and adapter. GGUF files are converted to checkpoints.

    For an adapter folder, the base model is taken from its config.
    """
    options = replace(options, model=weights_of(options.model))
    if is_gguf(options.model):
        base = gguf_checkpoint(options.model, options.revision)
        check_gguf_base(base, options.adapter)
        return base, options.adapter
    folder = Path(options.model)
    config = folder / "adapter_config.json"
    if folder.is_dir() and config.is_file() and not (folder / "config.json").is_file():
        card = find_card(options.model)
        if card is not None and card.base is not None:
            return cached_base(card.base, options.model), options.model
        try:
            base = parse_json(read_text(config)).get("base_model_name_or_path")
        except (OSError, ValueError, AttributeError) as error:
            raise ModelError(f"{config}: invalid adapter config: {error}; restore the adapter folder") from error
        if not base:
            raise ModelError(
                f"{config}: no base model is specified; pass the base model as --model and this folder as --adapter"
            )
        _check_base(str(base), options)
        return gguf_checkpoint(base) if is_gguf(base) else str(base), options.model
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise ModelError(f"{options.model}: config.json not found in this folder; use a model saved by transformers")
    check_gguf_base(options.model, options.adapter)
    return options.model, options.adapter


def _adapter_card(adapter: str) -> Card | None:
    return find_card(adapter) if Path(adapter).is_dir() else None


def check_gguf_base(base: str, adapter: str | None) -> None:
    """Reject an adapter trained on a different GGUF file."""
    record, card = gguf_record(base), None if adapter is None else _adapter_card(adapter)
    if record is None or card is None or card.base is None or card.base.gguf_sha256 == record.sha256:
        return
    raise ModelError(
        f"{adapter}: the adapter was trained on the GGUF file {card.base.file} "
        f"(sha256 {card.base.gguf_sha256[:12]}...), not on {record.file} ({record.sha256[:12]}...); "
        "pass the adapter's base model as --model"
    )


def cached_base(base: GgufBase, adapter: str) -> str:
    """Return the cached checkpoint of an adapter's GGUF base."""
    folder = gguf_folder(base.gguf_sha256)
    if not folder.is_dir():
        raise ModelError(
            f"{adapter}: the base model {base.file} (sha256 {base.gguf_sha256[:12]}...) is not in the cache "
            f"{cache_root()}; load this GGUF file once as a model, or install the judge with judgelm judges install"
        )
    return str(folder)


def _check_base(base: str, options: EngineOptions) -> None:
    try:
        find_card(base, options.revision)
    except CardError:
        return  # the adapter's card is used, not the base's
    except ModelError as error:
        way_out = f"pass the adapter's base model: --model BASE --adapter {options.model}"
        raise ModelError(f"{error}; {way_out}") from error


def has_tokenizer(folder: str) -> bool:
    """Return True if a local folder contains a tokenizer."""
    return any((Path(folder) / name).is_file() for name in _TOKENIZER_FILES)


def has_chat_template(options: EngineOptions) -> bool:
    """Return True if the model or adapter has a chat template."""
    base, adapter = split_adapter(options)
    return any(_has_template(source, options.revision) for source in (adapter, base) if source is not None)


def _has_template(source: str, revision: str | None) -> bool:
    if any(_file_text(source, name, revision) for name in _TEMPLATE_FILES):
        return True
    return bool(_json_of(source, "tokenizer_config.json", revision).get("chat_template"))


def _file_text(source: str, name: str, revision: str | None) -> str | None:
    try:
        path = Path(source) / name if Path(source).is_dir() else hf_hub_download(source, name, revision=revision)
        return read_text(path, errors="replace")
    except (OSError, EntryNotFoundError, HfHubHTTPError, HFValidationError):
        return None


def has_reward_head(options: EngineOptions) -> bool:
    """Return True for reward models. Raise a ModelError if the head is not supported."""
    if options.head is not None:
        return not options.head.whole
    base, adapter = split_adapter(options)
    if adapter is not None and _json_of(adapter, "adapter_config.json", options.revision).get("task_type") == "SEQ_CLS":
        return True
    config = _json_of(base, "config.json", options.revision)
    names, mapped = config.get("architectures"), config.get("auto_map")
    name = str(names[0]) if isinstance(names, list) and names else ""
    own = isinstance(mapped, dict) and "AutoModelForSequenceClassification" in mapped
    if not (own or name.endswith(_REWARD_HEAD) or "Reward" in name):
        return False
    if not issubclass(getattr(transformers, name, object), GenericForSequenceClassification):
        raise ModelError(f"{base}: {name} is not a causal language model with a reward head; {_USE_REWARD}")
    labels = config.get("id2label")
    if (count := len(labels) if isinstance(labels, dict) else config.get("num_labels", 2)) != 1:
        raise ModelError(f"{base}: the reward head {name} has {count} outputs instead of one; {_USE_REWARD}")
    return True


def _json_of(source: str, name: str, revision: str | None) -> dict[str, Any]:
    try:
        value = parse_json(_file_text(source, name, revision) or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def _source_options(options: EngineOptions) -> dict[str, Any]:
    return {"revision": options.revision, "trust_remote_code": options.trust_remote_code}


def load_tokenizer(base: str, adapter: str | None, options: EngineOptions) -> Any:
    """Load the fast tokenizer, preferring the adapter's tokenizer."""
    source = adapter if adapter and has_tokenizer(adapter) else base
    if Path(source).is_dir() and not has_tokenizer(source):
        raise ModelError(f"{source}: no tokenizer found in this folder; copy tokenizer.json from the base model")
    try:
        tokenizer = AutoTokenizer.from_pretrained(source, **_source_options(options))
    except Exception as error:  # the tokenizers library raises plain exceptions
        raise ModelError(f"{source}: cannot load the tokenizer: {tokenizer_finding(source, error)}") from error
    if not tokenizer.is_fast:
        raise ModelError(f"{source}: slow tokenizers are not supported; save a fast tokenizer (tokenizer.json)")
    return tokenizer


def check_vocabulary(source: str, tokenizer: Any, model: Any) -> None:
    """Reject a tokenizer with more tokens than the model has embeddings."""
    rows, tokens = int(model.get_input_embeddings().weight.shape[0]), int(tokenizer.vocab_size)
    if tokens > rows:
        finding = f"the tokenizer has {tokens:,} tokens, but the model has only {rows:,} embeddings"
        raise ModelError(f"{source}: {finding}; use the tokenizer that the model was trained with")


def load_config(base: str, options: EngineOptions) -> Any:
    """Load the model's config."""
    try:
        config = AutoConfig.from_pretrained(base, **_source_options(options))
    except LOAD_ERRORS as error:
        raise ModelError(f"{base}: cannot load the model's config: {first_line(error)}") from error
    check_config(base, config)
    return config


def check_config(base: str, config: Any) -> None:
    """Reject invalid config values."""
    for part in (config, config.get_text_config()):
        for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"):
            value = getattr(part, name, None)
            if isinstance(value, int) and value < 1:
                raise ModelError(f"{base}: config.json: {name} is {value}; copy or download the model again")
    if (place := nan_in(config.to_dict().items())) is not None:
        raise ModelError(f"{base}: config.json: {place} is NaN; copy or download the model again")


def nan_in(items: Iterable[tuple[Any, Any]]) -> str | None:
    """Return the dotted path to the first NaN, if any."""
    for key, value in items:
        if isinstance(value, float) and math.isnan(value):
            return str(key)
        nested = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        if (place := nan_in(nested)) is not None:
            return f"{key}.{place}"
    return None


def tokenizer_finding(source: str, error: Exception) -> str:
    """Explain a tokenizer error. transformers reports errors from sentencepiece as tiktoken errors."""
    path = Path(source) / "tokenizer.model"
    if not path.is_file() or path.with_suffix(".json").is_file():
        return first_line(error)
    if is_lfs_pointer(path):
        return f"{path.name} is a Git LFS pointer; run: git lfs pull"
    return (
        f"{path.name} is damaged, or sentencepiece and protobuf are incompatible; run: pip install -U sentencepiece "
        "protobuf; if that does not help, download the file again"
    )


def window_of(config: Any, tokenizer: Any, options: EngineOptions) -> int:
    """Return the smallest configured context window, in tokens."""
    stated = {
        "config.json: max_position_embeddings": getattr(config.get_text_config(), "max_position_embeddings", None),
        "tokenizer_config.json: model_max_length": tokenizer.model_max_length,
        "--max-model-len": options.max_model_len,
    }
    for place, tokens in stated.items():
        if tokens is not None and not (isinstance(tokens, int | float) and tokens >= 0):  # also rejects NaN
            raise ModelError(f"{options.model}: {place} is {tokens!r}; expected a token count")
    known = [int(tokens) for tokens in stated.values() if tokens and tokens < 10**9]
    if not known:
        raise ModelError(f"{options.model}: the context window is unknown; set it with --max-model-len")
    return min(known)


def default_sampling(base: str, revision: str | None = None) -> dict[str, float]:
    """Return the valid values of `temperature`, `top_p`, and `top_k` in a model's `generation_config.json`."""
    stated = _json_of(base, "generation_config.json", revision)
    ranges = {"temperature": (0, MAX_TEMPERATURE), "top_p": (0, 1), "top_k": (0, MAX_TOKENS)}
    valid = {}
    for name, (low, high) in ranges.items():
        value = stated.get(name)
        if isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high:
            valid[name] = value
    return valid


def eos_ids(generation_config: Any, tokenizer: Any) -> frozenset[int]:
    """Return the token ids that end a reply."""
    ids: set[int] = set()
    for stated in (generation_config.eos_token_id if generation_config else None, tokenizer.eos_token_id):
        ids.update(stated if isinstance(stated, list) else [stated] if stated is not None else [])
    return frozenset(ids)


def identity_of(base: str, adapter: str | None, options: EngineOptions) -> dict[str, Any]:
    """Return the fields that identify a model."""
    identity: dict[str, Any] = {"path": base, "sha": _folder_sha(base), "revision": options.revision}
    cached = None if identity["sha"] else try_to_load_from_cache(base, "config.json", revision=options.revision)
    if isinstance(cached, str):
        identity["commit"] = Path(cached).parent.name
    if (record := gguf_record(base)) is not None:
        identity |= {"gguf": record.file, "gguf_sha256": record.sha256, "gguf_repairs": list(record.repairs)}
    if adapter is not None:
        identity |= adapter_identity(adapter)
        card = _adapter_card(adapter)
        # with different weights, it is a different judge
        if card is not None and card.base is not None and record is not None:
            identity["judge"] = card.name
    return {key: value for key, value in identity.items() if value is not None}


def adapter_identity(adapter: str) -> dict[str, Any]:
    """Return the fields that identify an adapter."""
    return {"adapter": adapter, "adapter_sha": _folder_sha(adapter)}


def _folder_sha(source: str) -> str | None:
    folder = Path(source)
    if not folder.is_dir():
        return None
    digest, pickled = hashlib.sha256(), pickled_files(folder)
    for path in sorted(folder.iterdir()):
        hashed = path.suffix in {".json", ".safetensors", ".model", ".jinja"} or path in pickled
        if not hashed or path.name == "trainer_state.json":
            continue
        size = path.stat().st_size
        digest.update(f"{path.name}\0{size}\0".encode())
        with path.open("rb") as file:
            if size <= _MAX_HASHED_BYTES:
                digest.update(file.read())
                continue
            for piece in range(_PIECES):
                file.seek((size - _PIECE_BYTES) * piece // (_PIECES - 1))
                digest.update(file.read(_PIECE_BYTES))
    return digest.hexdigest()


def adapter_truncator(truncator: Truncator, base: str, adapter: str) -> Truncator:
    """Return the truncator for an adapter's prompts."""
    check_gguf_base(base, adapter)
    tokenizer: Any = truncator.tokenizer
    if has_tokenizer(adapter):
        if (own := load_tokenizer(base, adapter, EngineOptions(model=base))).get_vocab() != tokenizer.get_vocab():
            finding = "its vocabulary differs from the base model's, so the two cannot share an engine"
            raise ModelError(f"{adapter}: {finding}; serve this adapter by itself")
        tokenizer = own
    card = find_card(adapter)
    window = truncator.window if card is None or card.window is None else min(card.window, truncator.window)
    return truncator.adapted(tokenizer, window)


@contextmanager
def without_progress_bars(*, report: bool = True) -> Iterator[None]:
    """Temporarily disable transformers' progress bars and, without `report`, its list of unused and missing weights."""
    shown, level = hf_logging.is_progress_bar_enabled(), hf_logging.get_verbosity()
    hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    if not report:
        hf_logging.set_verbosity_error()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        hf_logging.set_verbosity(level)
        if shown:
            hf_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
