"""Convert GGUF tokenizers and correct transformers' conversion errors.

transformers 5.19 ignores `add_bos_token` and `add_space_prefix`, and splits text like GPT-2 if it does not recognise
`tokenizer.ggml.pre`.
"""

from pathlib import Path
from typing import Any

from jinja2 import TemplateError
from tokenizers import decoders, pre_tokenizers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from judgelm.engines.gguf.header import GgufFile
from judgelm.errors import ModelError
from judgelm.prompts.chat_rendering import render_chat

_BEGIN_BY_DEFAULT = frozenset(
    {"llama3", "llama-v3", "llama-bpe", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "tekken", "chameleon"}
)
"""`tokenizer.ggml.pre` values for which llama.cpp adds a BOS token."""
_SINGLE_DIGITS = frozenset({"smollm", "starcoder", "refact", "command-r", "codeshell"})
"""`tokenizer.ggml.pre` values that split off single digits before splitting text like GPT-2."""
_AS_GPT2 = frozenset({"default", "gpt-2", "gpt2", "phi-2", "jina-es", "jina-de", "mpt", "olmo", "jais", "trillion"})
_USE_OTHER = "use another GGUF file for this model"
_PROBE = "Scores: 10 7.5\n\n  Two  spaces, 1234 naïve 東京 \U0001f600</s>"


def convert_tokenizer(file: GgufFile) -> tuple[Any, list[str]]:
    """Convert the tokenizer, and return it with a list of repairs."""
    from transformers.integrations.gguf.gguf_tokenizer_mapping import convert_gguf_tokenizer, get_gguf_tokenizer

    try:
        architecture, parts, named = get_gguf_tokenizer(str(file.path))
        backend, _ = convert_gguf_tokenizer(architecture, parts)
    except Exception as error:  # the tokenizers library raises plain exceptions
        finding = f"cannot convert the tokenizer: {error or type(error).__name__}"
        raise ModelError(f"{file.path}: {finding}; {_USE_OTHER}") from error
    # the architecture's class would build a different tokenizer from the saved files
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, **named)  # type: ignore[no-untyped-call]
    return tokenizer, [*_repair_splitting(tokenizer, file), *_repair_begin(tokenizer, file)]


def adds_begin(file: GgufFile) -> bool:
    """Return True if the tokenizer adds a BOS token."""
    stated = file.metadata.get("tokenizer.ggml.add_bos_token")
    if stated is not None:
        return bool(stated)
    sentencepiece = file.metadata.get("tokenizer.ggml.model") == "llama"
    return sentencepiece or file.metadata.get("tokenizer.ggml.pre") in _BEGIN_BY_DEFAULT


def _repair_begin(tokenizer: Any, file: GgufFile) -> list[str]:
    if not (wanted := adds_begin(file)):
        if tokenizer.bos_token_id is None or tokenizer("a")["input_ids"][:1] != [tokenizer.bos_token_id]:
            return []
        tokenizer.add_bos_token = False
        return [f"removed BOS token {tokenizer.bos_token}"]
    if tokenizer.bos_token_id is None:
        raise ModelError(f"{file.path}: requires a BOS token, but tokenizer.ggml.bos_token_id is missing; {_USE_OTHER}")
    repairs = []
    if tokenizer("a")["input_ids"][:1] != [tokenizer.bos_token_id]:
        tokenizer.add_bos_token = wanted
        repairs.append(f"added BOS token {tokenizer.bos_token} to texts")
    if tokenizer.chat_template and not _sample_chat(tokenizer, file).startswith(tokenizer.bos_token):
        tokenizer.chat_template = "{{ bos_token }}" + tokenizer.chat_template
        repairs.append(f"added BOS token {tokenizer.bos_token} to chats")
    return repairs


def _sample_chat(tokenizer: Any, file: GgufFile) -> str:
    try:
        return render_chat(tokenizer, [{"role": "user", "content": "a"}])
    except (TemplateError, ValueError) as error:
        raise ModelError(f"{file.path}: the chat template could not be applied: {error}; {_USE_OTHER}") from error


def _repair_splitting(tokenizer: Any, file: GgufFile) -> list[str]:
    from transformers.integrations.gguf.gguf_tokenizer_mapping import GGUF_PRE_TOKENIZER_SPLITS

    backend, split = tokenizer.backend_tokenizer, file.metadata.get("tokenizer.ggml.pre", "default")
    if isinstance(backend.pre_tokenizer, pre_tokenizers.Metaspace):
        if file.metadata.get("tokenizer.ggml.add_space_prefix", True):
            return []
        backend.pre_tokenizer = pre_tokenizers.Metaspace(replacement="\u2581", prepend_scheme="never", split=False)
        backend.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
        return ["removed space before the first word"]
    if file.metadata.get("tokenizer.ggml.model") != "gpt2" or split in _AS_GPT2 or split in GGUF_PRE_TOKENIZER_SPLITS:
        return []
    if split in _SINGLE_DIGITS:
        digits = pre_tokenizers.Digits(individual_digits=True)
        backend.pre_tokenizer = pre_tokenizers.Sequence([digits, pre_tokenizers.ByteLevel(add_prefix_space=False)])
        return [f"text is split as for {split}, one digit at a time"]
    return [f"text is split as for GPT-2 because transformers does not support {split}; some tokens may differ"]


def check_saved(tokenizer: Any, folder: Path, file: GgufFile) -> None:
    """Check that saving does not change the tokenizer."""
    saved = AutoTokenizer.from_pretrained(folder)
    if [saved(text)["input_ids"] for text in ("a", _PROBE)] != [tokenizer(text)["input_ids"] for text in ("a", _PROBE)]:
        raise ModelError(f"{file.path}: the tokenizer changes when it is saved; please report this file")
