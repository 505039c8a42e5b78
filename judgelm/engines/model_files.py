"""Model files for the engines that load them: tokenizer, config, window, adapter, and the model's identity."""

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

LOAD_ERRORS = (
    OSError, ValueError, LookupError, TypeError, AttributeError, RuntimeError, ArithmeticError, AssertionError,
    ImportError, StrictDataclassError, SafetensorError, re.error, struct.error,
)  # fmt: skip
"""Errors of transformers where a model's files are damaged or contradict each other."""

_TOKENIZER_FILES = ("tokenizer.json", "tokenizer.model", "tokenizer_config.json", "vocab.json", "tekken.json")
_TEMPLATE_FILES = ("chat_template.jinja", "chat_template.json")
_REWARD_HEAD = "ForSequenceClassification"
_WHOLE_BYTES = 64 << 20
_PIECES, _PIECE_BYTES = 256, 64 << 10


def split_adapter(options: EngineOptions) -> tuple[str, str | None]:
    """Base model and adapter; a folder with only an adapter names its base, one with only a card its model.

    The base of a GGUF file is its checkpoint in the cache, which is made now if it is not there.

    Raises:
        ModelError: the folder holds no model, the GGUF file cannot be converted, or the one that its adapter was
            trained on is not in the cache.
        RunError: the cache cannot be written.
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
            raise ModelError(f"{config}: not an adapter's JSON: {error}; restore the adapter's folder") from error
        if not base:
            raise ModelError(f"{config}: names no base model; pass the base as --model and this folder as --adapter")
        _check_base(str(base), options)
        return gguf_checkpoint(base) if is_gguf(base) else str(base), options.model
    if folder.is_dir() and not (folder / "config.json").is_file():
        raise ModelError(f"{options.model}: no config.json in this folder; it is not a model saved by transformers")
    check_gguf_base(options.model, options.adapter)
    return options.model, options.adapter


def _adapter_card(adapter: str) -> Card | None:
    return find_card(adapter) if Path(adapter).is_dir() else None


def check_gguf_base(base: str, adapter: str | None) -> None:
    """Refuse an adapter on the checkpoint of another GGUF file than it was trained on.

    Raises:
        ModelError: the files differ.
    """
    record, card = gguf_record(base), None if adapter is None else _adapter_card(adapter)
    if record is None or card is None or card.base is None or card.base.gguf_sha256 == record.sha256:
        return
    raise ModelError(
        f"{adapter}: trained on another base, the GGUF file {card.base.file} (sha256 {card.base.gguf_sha256[:12]}...), "
        f"than {record.file} ({record.sha256[:12]}...); pass the adapter's own base as --model"
    )


def cached_base(base: GgufBase, adapter: str) -> str:
    """The checkpoint of the GGUF file that an adapter was trained on.

    Raises:
        ModelError: the file was not dequantised on this machine.
    """
    folder = gguf_folder(base.gguf_sha256)
    if not folder.is_dir():
        raise ModelError(
            f"{adapter}: its base, the GGUF file {base.file} (sha256 {base.gguf_sha256[:12]}...), is not in the cache "
            f"{cache_root()}; use the file once as a model, or install the judge that the adapter belongs to "
            "(judgelm judges)"
        )
    return str(folder)


def _check_base(base: str, options: EngineOptions) -> None:
    """Check that the base which an adapter names is available.

    Raises:
        ModelError: there is no such folder, and the hub does not have it or cannot be reached.
    """
    try:
        find_card(base, options.revision)
    except CardError:
        return  # its card is not used; the adapter has its own
    except ModelError as error:
        raise ModelError(
            f"{error}; it is the base of the adapter {options.model}: pass the base's location as --model BASE "
            f"--adapter {options.model}"
        ) from error


def has_tokenizer(folder: str) -> bool:
    """True if a local folder holds a tokenizer."""
    return any((Path(folder) / name).is_file() for name in _TOKENIZER_FILES)


def has_chat_template(options: EngineOptions) -> bool:
    """True if the tokenizer of a model, or of its adapter, comes with a chat template.

    Raises:
        ModelError: as `split_adapter`.
    """
    base, adapter = split_adapter(options)
    return any(_has_template(source, options.revision) for source in (adapter, base) if source is not None)


def _has_template(source: str, revision: str | None) -> bool:
    if any(_file_text(source, name, revision) for name in _TEMPLATE_FILES):
        return True
    return bool(_json_of(source, "tokenizer_config.json", revision).get("chat_template"))


def _file_text(source: str, name: str, revision: str | None) -> str | None:
    """A file of a folder or of a hub's repository; None where it cannot be had."""
    try:
        path = Path(source) / name if Path(source).is_dir() else hf_hub_download(source, name, revision=revision)
        return read_text(path, errors="replace")
    except (OSError, EntryNotFoundError, HfHubHTTPError, HFValidationError):
        return None


def has_reward_head(options: EngineOptions) -> bool:
    """True if a model, or its adapter, gives one number for a chat instead of text.

    Raises:
        ModelError: as `split_adapter`; or it does with several numbers, or by code from the hub.
    """
    base, adapter = split_adapter(options)
    if adapter is not None and _json_of(adapter, "adapter_config.json", options.revision).get("task_type") == "SEQ_CLS":
        return True
    config = _json_of(base, "config.json", options.revision)
    names, mapped = config.get("architectures"), config.get("auto_map")
    name = str(names[0]) if isinstance(names, list) and names else ""
    own = isinstance(mapped, dict) and "AutoModelForSequenceClassification" in mapped
    if not (own or name.endswith(_REWARD_HEAD) or "Reward" in name):
        return False
    if not name.endswith(_REWARD_HEAD) or not hasattr(transformers, name):
        raise ModelError(
            f"{base}: its head {name} needs code from the hub, which judgelm does not run; use a reward model with "
            "transformers' own sequence-classification head, such as Skywork-Reward-V2"
        )
    if not issubclass(getattr(transformers, name), GenericForSequenceClassification):
        raise ModelError(
            f"{base}: {name} is no causal language model with a head, the only kind of reward model that judgelm "
            "reads; use one such as Skywork-Reward-V2"
        )
    labels = config.get("id2label")
    if (count := len(labels) if isinstance(labels, dict) else config.get("num_labels", 2)) != 1:
        raise ModelError(
            f"{base}: its head {name} has {count} outputs, and a reward is one number; use a model with one output"
        )
    return True


def _json_of(source: str, name: str, revision: str | None) -> dict[str, Any]:
    """A JSON object of a folder or repository; empty where there is none, which loading the model says."""
    try:
        value = parse_json(_file_text(source, name, revision) or "{}")
    except ValueError:
        return {}
    return value if isinstance(value, dict) else {}


def load_tokenizer(base: str, adapter: str | None, options: EngineOptions) -> Any:
    """The adapter's fast tokenizer where it has one, else the model's.

    Raises:
        ModelError: there is no tokenizer, or only a slow one.
    """
    source = adapter if adapter and has_tokenizer(adapter) else base
    if Path(source).is_dir() and not has_tokenizer(source):
        raise ModelError(f"{source}: no tokenizer in this folder; copy tokenizer.json of the base model into it")
    try:
        tokenizer = AutoTokenizer.from_pretrained(
            source, revision=options.revision, trust_remote_code=options.trust_remote_code
        )
    except Exception as error:  # the tokenizers library raises Exception itself
        raise ModelError(f"{source}: cannot load the tokenizer: {tokenizer_finding(source, error)}") from error
    if not tokenizer.is_fast:
        raise ModelError(f"{source}: has only a slow tokenizer; save it once with tokenizer.json (a fast tokenizer)")
    return tokenizer


def check_vocabulary(source: str, tokenizer: Any, model: Any) -> None:
    """Refuse a tokenizer whose own tokens a model has no embeddings for; added ones are kept out of prompts.

    Raises:
        ModelError: it is one.
    """
    rows, tokens = int(model.get_input_embeddings().weight.shape[0]), int(tokenizer.vocab_size)
    if tokens > rows:
        raise ModelError(
            f"{source}: its tokenizer has {tokens:,} tokens, and the model embeddings of {rows:,}; use the "
            "tokenizer that the model was trained with"
        )


def load_config(base: str, options: EngineOptions) -> Any:
    """The model's config.

    Raises:
        ModelError: it cannot be read, or holds sizes that no model has.
    """
    try:
        config = AutoConfig.from_pretrained(
            base, revision=options.revision, trust_remote_code=options.trust_remote_code
        )
    except LOAD_ERRORS as error:
        raise ModelError(f"{base}: cannot read the model's config: {first_line(error)}") from error
    check_config(base, config)
    return config


def check_config(base: str, config: Any) -> None:
    """Refuse a config with values that no model has; libraries compute with them.

    Raises:
        ModelError: a size below 1, or NaN.
    """
    for part in (config, config.get_text_config()):
        for name in ("vocab_size", "hidden_size", "num_hidden_layers", "num_attention_heads"):
            value = getattr(part, name, None)
            if isinstance(value, int) and value < 1:
                raise ModelError(f"{base}: config.json: {name} is {value}; copy or download the model again")
    if (place := nan_in(config.to_dict().items())) is not None:
        raise ModelError(f"{base}: config.json: {place} is NaN; copy or download the model again")


def nan_in(items: Iterable[tuple[Any, Any]]) -> str | None:
    """Path of the first value that is NaN."""
    for key, value in items:
        if isinstance(value, float) and math.isnan(value):
            return str(key)
        nested = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        if (place := nan_in(nested)) is not None:
            return f"{key}.{place}"
    return None


def tokenizer_finding(source: str, error: Exception) -> str:
    """The error of a tokenizer that transformers cannot load, and the way out.

    Where sentencepiece cannot read `tokenizer.model`, transformers takes it for a tiktoken file, and reports only that.
    """
    path = Path(source) / "tokenizer.model"
    if not path.is_file() or path.with_suffix(".json").is_file():
        return first_line(error)
    if is_lfs_pointer(path):
        return f"{path.name} is a Git LFS pointer; run: git lfs pull"
    return (
        f"{path.name} is damaged, or sentencepiece and protobuf do not fit each other; run: pip install -U "
        "sentencepiece protobuf; if that does not help, download the file again"
    )


def window_of(config: Any, tokenizer: Any, options: EngineOptions) -> int:
    """The smallest window that the model's config, its tokenizer and the user state, in tokens.

    Raises:
        ModelError: none of them states one, or one states what is no number of tokens.
    """
    stated = {
        "config.json: max_position_embeddings": getattr(config.get_text_config(), "max_position_embeddings", None),
        "tokenizer_config.json: model_max_length": tokenizer.model_max_length,
        "--max-model-len": options.max_model_len,
    }
    for place, tokens in stated.items():
        if tokens is not None and not (isinstance(tokens, int | float) and tokens >= 0):  # nor NaN
            raise ModelError(f"{options.model}: {place} is {tokens!r}, no number of tokens; correct it")
    known = [int(tokens) for tokens in stated.values() if tokens and tokens < 10**9]
    if not known:
        raise ModelError(f"{options.model}: neither config nor tokenizer states the window; pass --max-model-len")
    return min(known)


def eos_ids(generation_config: Any, tokenizer: Any) -> frozenset[int]:
    """Token ids that end a reply."""
    ids: set[int] = set()
    for stated in (generation_config.eos_token_id if generation_config else None, tokenizer.eos_token_id):
        ids.update(stated if isinstance(stated, list) else [stated] if stated is not None else [])
    return frozenset(ids)


def identity_of(base: str, adapter: str | None, options: EngineOptions) -> dict[str, Any]:
    """The model's identity: a hash of a folder's files, or hub id and revision; the names of judge and GGUF base."""
    identity: dict[str, Any] = {"path": base, "sha": _folder_sha(base), "revision": options.revision}
    cached = None if identity["sha"] else try_to_load_from_cache(base, "config.json", revision=options.revision)
    if isinstance(cached, str):
        identity["commit"] = Path(cached).parent.name
    if (record := gguf_record(base)) is not None:
        identity |= {"gguf": record.file, "gguf_sha256": record.sha256, "gguf_repairs": list(record.repairs)}
    if adapter is not None:
        identity |= adapter_identity(adapter)
        card = _adapter_card(adapter)
        if card is not None and card.base is not None and record is not None:  # on other weights it is another judge
            identity["judge"] = card.name
    return {key: value for key, value in identity.items() if value is not None}


def adapter_identity(adapter: str) -> dict[str, Any]:
    """The part of a model's identity that names its adapter; `adapter_sha` is None for one on the hub."""
    return {"adapter": adapter, "adapter_sha": _folder_sha(adapter)}


def _folder_sha(source: str) -> str | None:
    """sha256 of config, tokenizer and weight files; of large files the size and 256 pieces."""
    folder = Path(source)
    if not folder.is_dir():
        return None
    digest, pickled = hashlib.sha256(), pickled_files(folder)
    for path in sorted(folder.iterdir()):
        if path.suffix not in {".json", ".safetensors", ".model", ".jinja"} and path not in pickled:
            continue
        if path.name == "trainer_state.json":
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


def adapter_truncator(truncator: Truncator, base: str, adapter: str) -> Truncator:
    """The truncator for an adapter's prompts.

    Args:
        truncator: of the base.
        base: its folder or hub id.
        adapter: folder or hub id of the adapter.

    Raises:
        ModelError: the adapter was trained on another base, or with a tokenizer of another vocabulary.
    """
    check_gguf_base(base, adapter)
    tokenizer: Any = truncator.tokenizer
    if has_tokenizer(adapter):
        if (own := load_tokenizer(base, adapter, EngineOptions(model=base))).get_vocab() != tokenizer.get_vocab():
            raise ModelError(
                f"{adapter}: its tokenizer has another vocabulary than the base's, so both cannot share one engine; "
                "serve it alone"
            )
        tokenizer = own
    card = find_card(adapter)
    window = truncator.window if card is None or card.window is None else min(card.window, truncator.window)
    return truncator.adapted(tokenizer, window)


@contextmanager
def without_progress_bars() -> Iterator[None]:
    """Turn transformers' progress bars off; restores the setting."""
    shown = hf_logging.is_progress_bar_enabled()
    hf_logging.disable_progress_bar()  # type: ignore[no-untyped-call]
    try:
        yield
    finally:
        if shown:
            hf_logging.enable_progress_bar()  # type: ignore[no-untyped-call]
