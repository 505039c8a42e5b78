"""GGUF files as models: found, checked, dequantised once into the cache, then loaded as any checkpoint is.

The checkpoint is stored in float16 unless the file's own weights are in another format: the blocks of all quantised
formats hold a float16 scale and a few bits a weight, of which rounding to float16's 11 bits moves each value by at most
1 part in 2,048, far less than the quantisation did, in half of float32's space. Weights beyond float16's range make it
float32. Engines and training then read the same numbers, in whatever format they compute.

The tokenizer is compared with the file's statements and repaired where it differs: transformers 5.19 reads vocabulary
and merges, but ignores `add_bos_token` and `add_space_prefix`, and splits text as GPT-2 does where it does not know the
file's splitting. A Gemma model without its begin token predicts text at 5.0 nats a token instead of 1.7.
"""

import fcntl
import hashlib
import json
import os
import re
import shutil
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch
from gguf import GGMLQuantizationType, GGUFReader
from huggingface_hub import hf_hub_download
from huggingface_hub.errors import EntryNotFoundError, HfHubHTTPError, HFValidationError, LocalEntryNotFoundError
from jinja2 import TemplateError
from packaging.version import Version
from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked_dataclass
from tokenizers import decoders, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from judgelm.engines.model_cache import CACHE_VARIABLE, cache_root, gguf_folder
from judgelm.engines.weights import all_parameters, first_not_finite, is_lfs_pointer
from judgelm.errors import ConfigError, ModelError, RunError, first_line
from judgelm.prompts.sanitization import render_chat

_PART = re.compile(r"-(\d{5})-of-(\d{5})\.gguf$", re.IGNORECASE)
_MAGIC = b"GGUF"
_OLDEST_TRANSFORMERS = "5.18"
_RECORD_NAME = "gguf.json"
_ITEM_BYTES = {"float16": 2, "bfloat16": 2, "float32": 4}
_OTHER_BYTES = 64 << 20
"""Tokenizer and configuration, at most."""
_BEGIN_BY_DEFAULT = frozenset(
    {"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "tekken", "chameleon"}
)
"""Values of `tokenizer.ggml.pre` for which llama.cpp adds a begin token where the file does not say."""
_SINGLE_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell"})
"""Values of `tokenizer.ggml.pre` that split each digit off, then split as GPT-2."""
_AS_GPT2 = frozenset({"default", "gpt-2", "gpt2", "phi-2", "jina-es", "jina-de", "mpt", "olmo", "jais", "trillion"})
_PROBE = "Scores: 10 7.5\n\n  Two  spaces, 1234 naïve 東京 \U0001f600</s>"


@dataclass(frozen=True, slots=True, kw_only=True)
class GgufFile:
    """The header of a GGUF file.

    Attributes:
        metadata: its keys; of lists of texts only the length.
        weights: their number.
        tensors: names of the tensors in the file.
        dtype: `float32`, `float16` or `bfloat16` where the weights are stored in it; None where they are quantised.
    """

    path: Path
    metadata: dict[str, Any]
    weights: int
    tensors: tuple[str, ...]
    dtype: str | None

    @property
    def architecture(self) -> str:
        """The model's architecture, by llama.cpp's name."""
        return str(self.metadata["general.architecture"])


def find_file(model: str, revision: str | None = None) -> Path:
    """The file that a name means: a path, or `owner/name/file.gguf` on the hub, which is downloaded.

    Raises:
        ModelError: no such file here, and not available from the hub.
    """
    path = Path(model)
    if path.is_file():
        return path
    if path.exists() or model.startswith((".", "/", "~")) or model.count("/") < 2:
        raise ModelError(f"{model}: no such file; a GGUF model is a local file or, on the hub, owner/name/file.gguf")
    owner, name, file = model.split("/", 2)
    try:
        return Path(hf_hub_download(f"{owner}/{name}", file, revision=revision))
    except LocalEntryNotFoundError as error:
        raise ModelError(
            f"{model}: no such file here, and the hub cannot be reached; check the path or the network"
        ) from error
    except EntryNotFoundError as error:
        raise ModelError(f"{model}: {owner}/{name} has no file {file}; look at its files on the hub") from error
    except (HfHubHTTPError, HFValidationError) as error:
        first = str(error).strip().splitlines()[0]
        raise ModelError(f"{model}: no such file here, and the hub says: {first}; check the name") from error


def read_header(path: Path) -> GgufFile:
    """Read the header of a file, and check that all of its tensors are there.

    Raises:
        ModelError: it is no GGUF file, a part of one, truncated, or of a kind that transformers cannot convert.
        ConfigError: the installed transformers is too old.
    """
    if Version(version("transformers")) < Version(_OLDEST_TRANSFORMERS):
        raise ConfigError(
            f"transformers {version('transformers')} is installed, and GGUF files need {_OLDEST_TRANSFORMERS}; run: "
            f"pip install 'transformers>={_OLDEST_TRANSFORMERS}'"
        )
    from transformers.integrations.gguf.reader import read_gguf_metadata

    _check_kind(path)
    try:
        metadata, _ = read_gguf_metadata(str(path))
        if int(metadata.get("split.count", 1)) > 1:
            raise ModelError(f"{path}: one of {metadata['split.count']} parts of a model; {_merge_hint(path)}")
        if metadata.get("general.type", "model") != "model":
            raise ModelError(f"{path}: holds a model's {metadata['general.type']}; use the model's own file")
        tensors = GGUFReader(path).tensors
    except (ValueError, IndexError, KeyError, struct.error, OverflowError, MemoryError) as error:
        raise ModelError(
            f"{path}: truncated or damaged ({first_line(error)}); {path.stat().st_size:,} bytes; download it again"
        ) from error
    return GgufFile(
        path=path,
        metadata=metadata,
        weights=sum(int(tensor.n_elements) for tensor in tensors),
        tensors=tuple(tensor.name for tensor in tensors),
        dtype=_dtype({tensor.tensor_type for tensor in tensors}),
    )


def _dtype(kinds: set[GGMLQuantizationType]) -> str | None:
    """The format of unquantised weights, beside which norms may be in float32; None for quantised ones."""
    halves = {GGMLQuantizationType.BF16: "bfloat16", GGMLQuantizationType.F16: "float16"}
    return {frozenset(): "float32", **{frozenset({kind}): name for kind, name in halves.items()}}.get(
        frozenset(kinds - {GGMLQuantizationType.F32})
    )


def _check_kind(path: Path) -> None:
    """Refuse by name and first bytes a file that is no whole GGUF file."""
    if (part := _PART.search(path.name)) and int(part[2]) > 1:
        raise ModelError(f"{path}: part {int(part[1])} of {int(part[2])} of a model; {_merge_hint(path)}")
    if is_lfs_pointer(path):
        raise ModelError(f"{path}: a Git LFS pointer instead of the file; run: git lfs pull")
    with path.open("rb") as file:
        if file.read(len(_MAGIC)) != _MAGIC:
            raise ModelError(f"{path}: not a GGUF file (it does not begin with GGUF); download it again")


def _merge_hint(path: Path) -> str:
    first = _PART.sub(r"-00001-of-\2.gguf", path.name)
    return f"join the parts with llama.cpp: llama-gguf-split --merge {first} OUT.gguf"


@checked_dataclass(frozen=True, slots=True, kw_only=True, config=ConfigDict(extra="forbid"))
class GgufRecord:
    """`gguf.json` of a checkpoint: the file that it was made from, and how.

    Attributes:
        file: name of the file.
        sha256: of the file, hex.
        architecture: by llama.cpp's name.
        quantised: whether the file's weights are blocks of a few bits each.
        dtype: of the checkpoint's weights.
        weight_bytes: size of the checkpoint's weights.
        repairs: differences between the file's statements and the conversion that were corrected.
        versions: of the libraries that converted it.
    """

    file: str
    sha256: str
    architecture: str
    quantised: bool
    dtype: str
    weight_bytes: int
    repairs: tuple[str, ...] = ()
    versions: dict[str, str] = field(default_factory=dict)


_RECORD = TypeAdapter(GgufRecord)


def gguf_checkpoint(model: str, revision: str | None = None) -> str:
    """The folder of the checkpoint of a GGUF file, dequantised now if the cache has it not.

    Args:
        model: the file's path, or `owner/name/file.gguf` on the hub.
        revision: of the hub's repository.

    Raises:
        ModelError: no such file, or one that cannot be converted.
        RunError: the cache cannot be written.
    """
    return str(checkpoint_of(find_file(model, revision)))


def checkpoint_of(file: Path) -> Path:
    """The folder of the checkpoint of a local GGUF file; processes that ask at the same time convert it once.

    Raises: see `gguf_checkpoint`.
    """
    try:
        sha256 = _sha256_of(file)
        folder = gguf_folder(sha256)
        if not _is_whole(folder):
            with _locked(folder):
                if not _is_whole(folder):  # nor did another process make it meanwhile
                    _write_checkpoint(file, sha256, folder)
    except OSError as error:
        raise RunError(
            f"{error.filename or cache_root()}: {error.strerror or error}; {file.name} is dequantised into the cache; "
            f"set {CACHE_VARIABLE} to a folder that has room and can be written"
        ) from error
    return folder


def gguf_record(folder: str | Path) -> GgufRecord | None:
    """The record of a checkpoint in the cache; None for any other model.

    Raises:
        ModelError: it is damaged.
    """
    path = Path(folder) / _RECORD_NAME
    if not path.is_file():
        return None
    try:
        return _RECORD.validate_json(path.read_bytes())
    except ValidationError as error:
        raise ModelError(f"{path}: damaged; remove the folder, and use the GGUF file as a model again") from error


def gguf_note(folder: str | Path) -> str:
    """A line for the user on a GGUF file's checkpoint; empty for any other model."""
    record = gguf_record(folder)
    if record is None:
        return ""
    repairs = "".join(f"; {repair}" for repair in record.repairs)
    size = f"{record.weight_bytes / 1e6:,.0f} MB in {record.dtype}"
    return f"GGUF: {record.file}, dequantised once into {folder} ({size}){repairs}"


def _sha256_of(file: Path) -> str:
    """The file's sha256; remembered in the cache as long as its size and time stay the same."""
    path, stat = file.resolve(), file.stat()
    state = [str(path), stat.st_size, stat.st_mtime_ns]
    known = cache_root() / "gguf" / "hashes" / f"{hashlib.sha256(str(path).encode()).hexdigest()[:32]}.json"
    try:
        *before, sha256 = json.loads(known.read_bytes())
        if before == state:
            return str(sha256)
    except (OSError, ValueError, TypeError):
        pass  # not hashed before, or damaged
    with path.open("rb") as content:
        sha256 = hashlib.file_digest(content, "sha256").hexdigest()
    known.parent.mkdir(parents=True, exist_ok=True)
    known.write_text(json.dumps([*state, sha256]), encoding="utf-8")
    return sha256


def _is_whole(folder: Path) -> bool:
    """True if the cache has the checkpoint, with weights of the recorded size."""
    try:
        record = gguf_record(folder)
    except ModelError:
        return False
    return record is not None and _weight_bytes(folder) == record.weight_bytes


def _weight_bytes(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.glob("*.safetensors"))


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the lock of a checkpoint that is about to be made; waits for another process that holds it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _write_checkpoint(file: Path, sha256: str, folder: Path) -> None:
    """Dequantise into a partial folder, which takes the checkpoint's name once it is whole."""
    header = read_header(file)
    dtype = header.dtype or "float16"
    _check_room(header, folder.parent, _ITEM_BYTES[dtype])
    partial, source = folder.with_suffix(".partial"), folder.with_suffix(".source")
    try:
        for scratch in (partial, source):
            shutil.rmtree(scratch, ignore_errors=True)  # of a process that was killed
            scratch.mkdir()
        # alone in its folder, so that no other file there is taken for a part of the model
        (source / file.name).symlink_to(file.resolve())
        dtype, repairs = _convert(header, source, partial, dtype)
        record = GgufRecord(
            file=file.name,
            sha256=sha256,
            architecture=header.architecture,
            quantised=header.dtype is None,
            dtype=dtype,
            weight_bytes=_weight_bytes(partial),
            repairs=tuple(repairs),
            versions={name: version(name) for name in ("transformers", "gguf")},
        )
        (partial / _RECORD_NAME).write_text(json.dumps(asdict(record), indent=2) + "\n", encoding="utf-8")
        if folder.exists():
            shutil.rmtree(folder)  # damaged
        partial.rename(folder)
    finally:
        for scratch in (partial, source):
            shutil.rmtree(scratch, ignore_errors=True)


def _convert(header: GgufFile, source: Path, target: Path, dtype: str) -> tuple[str, list[str]]:
    """Write model and tokenizer; the dtype of the weights, and the repairs."""
    if not torch.cuda.is_available():
        os.environ.setdefault("DS_ACCELERATOR", "cpu")  # saving loads deepspeed, which else warns that there is no GPU
    tokenizer, repairs = convert_tokenizer(header)
    model: Any = load_weights(header, source, dtype)
    tokenizer.save_pretrained(target)
    check_saved(tokenizer, target, header)
    model.save_pretrained(target)
    return str(model.dtype).removeprefix("torch."), repairs


def _check_room(header: GgufFile, folder: Path, item_bytes: int) -> None:
    needed, free = header.weights * item_bytes + _OTHER_BYTES, shutil.disk_usage(folder).free
    if needed > free:
        raise RunError(
            f"{folder}: {free / 1e9:.1f} GB free, and {header.path.name} takes {needed / 1e9:.1f} GB dequantised; free "
            f"some, or set {CACHE_VARIABLE} to a folder on another disk"
        )


def load_weights(file: GgufFile, folder: Path, dtype: str) -> Any:
    """The model in a file, dequantised to a dtype, or to float32 where a weight exceeds its range.

    Args:
        file: its header.
        folder: holds the file as `file.path.name`.
        dtype: `float16`, `bfloat16` or `float32`.

    Raises:
        ModelError: transformers cannot convert it, or would change what the model computes.
    """
    _check_rope(file)
    model = _load(file, folder, getattr(torch, dtype))
    if dtype == "float16" and first_not_finite(model.named_parameters()):
        model = _load(file, folder, torch.float32)
    if name := first_not_finite(model.named_parameters()):
        raise ModelError(f"{file.path}: {name} holds NaN or infinity; download it again")
    return model


def _load(file: GgufFile, folder: Path, dtype: torch.dtype) -> Any:
    from transformers import AutoModelForCausalLM, GgufConfig  # not in the oldest supported transformers

    configure: Any = GgufConfig  # its constructor is untyped
    kind: Any = AutoModelForCausalLM
    try:
        model, info = kind.from_pretrained(
            folder,
            gguf_file=file.path.name,
            quantization_config=configure(dequantize=True),
            dtype=dtype,
            output_loading_info=True,
        )
    except (OSError, ValueError, KeyError, IndexError, RuntimeError, NotImplementedError, AttributeError) as error:
        raise ModelError(
            f"{file.path}: transformers cannot convert this {file.architecture} model: {first_line(error)}; use the "
            "model's safetensors, or a server of llama.cpp with --engine openai"
        ) from error
    if info["missing_keys"]:
        some = ", ".join(sorted(info["missing_keys"])[:3])
        raise ModelError(
            f"{file.path}: {len(info['missing_keys'])} weights are missing ({some}, ...); use another file"
        )
    weights = all_parameters(model.config)
    if weights != file.weights:  # transformers 5.19 skips tensors that it does not know, and compares no shapes
        raise ModelError(
            f"{file.path}: holds {file.weights:,} weights, but transformers' {file.architecture} model has {weights}; "
            "use the model's safetensors, or a server of llama.cpp with --engine openai"
        )
    return model


def _check_rope(file: GgufFile) -> None:
    """Refuse scaled positions, which transformers 5.19 ignores: every prompt would be read wrongly."""
    scaling = file.metadata.get(f"{file.architecture}.rope.scaling.type", "none")
    tensors = [name for name in file.tensors if name.startswith("rope_")]
    if tensors or (scaling != "none" and file.architecture != "gpt-oss"):
        finding = f"the tensor {tensors[0]}" if tensors else f"rope.scaling.type {scaling}"
        raise ModelError(
            f"{file.path}: scales its positions ({finding}), which transformers does not convert from GGUF; use the "
            "model's safetensors, or a server of llama.cpp with --engine openai"
        )


def convert_tokenizer(file: GgufFile) -> tuple[Any, list[str]]:
    """The tokenizer of a file, and the repairs that it needed, one sentence each.

    Raises:
        ModelError: transformers cannot build it, or it cannot do what the file states.
    """
    from transformers.integrations.gguf.gguf_tokenizer_mapping import convert_gguf_tokenizer, get_gguf_tokenizer

    try:
        architecture, parts, named = get_gguf_tokenizer(str(file.path))
        backend, _ = convert_gguf_tokenizer(architecture, parts)
    except Exception as error:  # the tokenizers library raises Exception itself
        raise ModelError(
            f"{file.path}: cannot convert its tokenizer: {error or type(error).__name__}; use another file of the model"
        ) from error
    # a class of the architecture's own would build another tokenizer from the saved files
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **named)  # type: ignore[no-untyped-call]
    return tokenizer, [*_repair_splitting(tokenizer, file), *_repair_begin(tokenizer, file)]


def adds_begin(file: GgufFile) -> bool:
    """True if text begins with the begin token: as the file states, else as llama.cpp assumes for its vocabulary."""
    stated = file.metadata.get("tokenizer.ggml.add_bos_token")
    if stated is not None:
        return bool(stated)
    sentencepiece = file.metadata.get("tokenizer.ggml.model") == "llama"
    return sentencepiece or file.metadata.get("tokenizer.ggml.pre") in _BEGIN_BY_DEFAULT


def _repair_begin(tokenizer: Any, file: GgufFile) -> list[str]:
    """Have text and chats begin with the begin token, or text without it, as the file states."""
    if not (wanted := adds_begin(file)):
        if tokenizer.bos_token_id is None or tokenizer("a")["input_ids"][:1] != [tokenizer.bos_token_id]:
            return []
        tokenizer.add_bos_token = False
        return [f"begin token {tokenizer.bos_token} left out"]
    if tokenizer.bos_token_id is None:
        raise ModelError(
            f"{file.path}: states that text begins with a begin token, but names none (tokenizer.ggml.bos_token_id); "
            "use another file of the model"
        )
    repairs = []
    if tokenizer("a")["input_ids"][:1] != [tokenizer.bos_token_id]:
        tokenizer.add_bos_token = wanted
        repairs.append(f"begin token {tokenizer.bos_token} added to texts")
    if tokenizer.chat_template and not _sample_chat(tokenizer, file).startswith(tokenizer.bos_token):
        tokenizer.chat_template = "{{ bos_token }}" + tokenizer.chat_template
        repairs.append(f"begin token {tokenizer.bos_token} added to chats")
    return repairs


def _sample_chat(tokenizer: Any, file: GgufFile) -> str:
    try:
        return render_chat(tokenizer, [{"role": "user", "content": "a"}])
    except (TemplateError, ValueError) as error:
        raise ModelError(
            f"{file.path}: its chat template does not work: {error}; use another file of the model"
        ) from error


def _repair_splitting(tokenizer: Any, file: GgufFile) -> list[str]:
    """Split text before its merges as the file states: single digits, and no space before the first word."""
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    backend, split = tokenizer.backend_tokenizer, file.metadata.get("tokenizer.ggml.pre", "default")
    if isinstance(backend.pre_tokenizer, pre_tokenizers.Metaspace):
        if file.metadata.get("tokenizer.ggml.add_space_prefix", True):
            return []
        backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="never", split=False)
        backend.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
        return ["no space before the first word"]
    if file.metadata.get("tokenizer.ggml.model") != "gpt2" or split in _AS_GPT2 or split in GGUF_PRE_TOKENIZER_SPLITS:
        return []
    if split in _SINGLE_DIGITS:
        digits = pre_tokenizers.Digits(individual_digits=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
        return [f"text split as {split}: each digit by itself"]
    return [f"text split as GPT-2, since {split} is unknown to transformers: some tokens may differ"]


def check_saved(tokenizer: Any, folder: Path, file: GgufFile) -> None:
    """Check that the tokenizer reads text from its saved files as it does now.

    Raises:
        ModelError: it does not.
    """
    saved = AutoTokenizer.from_pretrained(folder)
    if [saved(text)["input_ids"] for text in ("a", _PROBE)] != [tokenizer(text)["input_ids"] for text in ("a", _PROBE)]:
        raise ModelError(f"{file.path}: its tokenizer changes when it is saved; please report this file")
