"""Create a small base model without downloads: a trained tokenizer and a Llama with random weights.

Used for tests, demos, and replications. Only the tokenizer is trained here; the caller trains the model.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import torch
from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from judgelm.errors import ConfigError

EOS = "</s>"
PAD = "<pad>"

# Whole words with leading space (matching text is learned by copying, which needs one token per word), single digits
# (arithmetic and scores), and one piece per marker of the compact prompt.
_PIECES = r"\[[QRS12]\]| ?\p{L}+| ?\d| ?[^\s\p{L}\d]+|\s+(?!\S)|\s+"
_BYTES = len(pre_tokenizers.ByteLevel.alphabet())


def make_tokenizer(texts: Iterable[str], *, vocab_size: int, max_positions: int) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE tokenizer; words in the texts become tokens, other text becomes bytes.

    Args:
        texts: read once; a few thousand suffice if every word of the data occurs twice.
        vocab_size: upper bound, including special tokens and the 256 bytes.
        max_positions: the model's window, in tokens.

    Raises:
        ConfigError: `vocab_size` is too small for the bytes and the special tokens.
    """
    if vocab_size < _BYTES + 2:
        raise ConfigError(f"vocab_size={vocab_size} is too small; the minimum is {_BYTES} bytes and 2 special tokens")
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_PIECES), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab_size,
        min_frequency=2,
        special_tokens=[EOS, PAD],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return PreTrainedTokenizerFast(  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        tokenizer_object=tokenizer,
        eos_token=EOS,
        pad_token=PAD,
        model_max_length=max_positions,
        padding_side="right",
        clean_up_tokenization_spaces=False,
    )


def make_base(
    texts: Iterable[str],
    folder: Path,
    *,
    hidden_size: int,
    layers: int,
    heads: int,
    vocab_size: int,
    max_positions: int,
    seed: int,
    dtype: torch.dtype = torch.float32,
) -> None:
    """Write a randomly initialised Llama and its tokenizer, for `AutoModelForCausalLM` and `AutoTokenizer`.

    The embeddings are tied, and the gated MLP is 8/3 as wide as the model. Texts end in `</s>`, without a start token.

    Args:
        texts: training text for the tokenizer, read once.
        folder: created if missing; existing files are overwritten.
        hidden_size: a multiple of `2 * heads`.
        layers: transformer blocks.
        heads: attention heads, each with separate keys and values.
        vocab_size: upper bound; the model uses the tokenizer's size.
        max_positions: the window, in tokens.
        seed: seed for the weights; the global random state is unchanged.
        dtype: dtype of the saved weights.

    Raises:
        ConfigError: `hidden_size` and `heads` do not match, or `vocab_size` is too small.
    """
    if hidden_size % (2 * heads):
        raise ConfigError(f"hidden_size={hidden_size} must be a multiple of 2 * heads (heads={heads})")
    tokenizer = make_tokenizer(texts, vocab_size=vocab_size, max_positions=max_positions)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=hidden_size * 8 // 3,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads,
        max_position_embeddings=max_positions,
        # The usual 0.02 suits far wider models; this keeps a layer's output as large as its input at any width.
        initializer_range=hidden_size**-0.5,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype=dtype,
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model: Any = LlamaForCausalLM(config)  # type: ignore[no-untyped-call]  # transformers leaves it untyped
        model.to(dtype)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
