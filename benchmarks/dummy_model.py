"""A judge of any size that writes score lines and reasons without having learnt anything, to measure speed with.

Its weights are random, its matrix products full-sized; but what the layers add is small, so that the next token hangs
on the last one alone, and the output head is made to say which: behind a prompt a score, then another, the end of the
line, and after it words without end. Scores are as spread as in the table below, so the judge is not sure of any.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from benchmarks.tiny_model import make_tokenizer
from judgelm.prompts.catalog import get_template
from judgelm.records import Sample

TEMPLATE = "judgelm-v1"
_TOKENIZER_TOKENS, _POSITIONS = 4096, 4096
_SPREAD = {"1": 0.01, "2": 0.02, "3": 0.04, "4": 0.05, "5": 0.10, "6": 0.12, "7": 0.20, "8": 0.30, "9": 0.16}
_SURE = 20.0  # logit of a certain next token, against about 0 for the others
_LAYERS_SAY = 0.02  # the layers' outputs against a usual initialisation


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """A Llama's sizes; without `key_value_heads` every head has keys and values of its own."""

    hidden: int
    inner: int
    layers: int
    heads: int
    vocabulary: int
    key_value_heads: int | None = None


SHAPES = {
    "tiny": Shape(hidden=128, inner=352, layers=2, heads=4, vocabulary=4096),
    "214M": Shape(hidden=1024, inner=2816, layers=16, heads=16, vocabulary=4096),
    "0.5B": Shape(hidden=896, inner=4864, layers=24, heads=14, key_value_heads=2, vocabulary=151_936),
    "1B": Shape(hidden=2048, inner=5504, layers=24, heads=16, vocabulary=32000),
    "7B": Shape(hidden=4096, inner=11008, layers=32, heads=32, vocabulary=32000),
    "13B": Shape(hidden=5120, inner=13824, layers=40, heads=40, vocabulary=32000),
}
"""0.5B has the matrices of Qwen2.5-0.5B, 1B those of Sheared-LLaMA-1.3B, 7B and 13B those of Llama and JudgeLM."""


def make_dummy_model(samples: Sequence[Sample], folder: Path, shape: Shape, dtype: torch.dtype, device: str) -> None:
    """Write the judge and its tokenizer into a folder, made if missing.

    Args: see `build_dummy_model`.
    """
    model, tokenizer = build_dummy_model(samples, shape, dtype, device)
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def build_dummy_model(
    samples: Sequence[Sample], shape: Shape, dtype: torch.dtype, device: str
) -> tuple[LlamaForCausalLM, PreTrainedTokenizerFast]:
    """Build the judge on the device, in its numeric format from the start, and a tokenizer from the samples' prompts.

    Args:
        samples: what it will judge; their texts train the tokenizer.
        shape: its sizes; `vocabulary` must have room for the tokenizer's at most 4,096 tokens.
        dtype: of the weights.
        device: where the weights are drawn.
    """
    lines = [f"{digit} {digit}\n" * 2 for digit in _SPREAD]
    texts = [*map(prompt_of, samples), *lines]
    tokenizer = make_tokenizer(texts, vocab_size=_TOKENIZER_TOKENS, max_positions=_POSITIONS)
    config = LlamaConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.hidden,
        intermediate_size=shape.inner,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.key_value_heads or shape.heads,
        max_position_embeddings=_POSITIONS,
        initializer_range=shape.hidden**-0.5,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype=dtype,
    )
    with torch.random.fork_rng(), torch.device(device):
        torch.manual_seed(0)
        build: Any = LlamaForCausalLM._from_config  # untyped in transformers
        model: LlamaForCausalLM = build(config, dtype=dtype).eval()
        followers = _followers(tokenizer, prompt_of(samples[0]))
        with torch.no_grad():
            _speak(model, followers)
    return model, tokenizer


def prompt_of(sample: Sample, template: str = TEMPLATE, order: tuple[int, int] = (0, 1)) -> str:
    """The prompt of a pair."""
    return "".join(span.text for span in get_template(template).render(sample, order, None).spans)


def distinct(samples: Iterable[Sample], mark: str) -> list[Sample]:
    """The samples with questions that begin with other words, so that no prefix cache knows their prompts."""
    return [replace(sample, question=f"{mark}. {sample.question}") for sample in samples]


def made_up_pairs(count: int, seed: int = 0, most_words: int = 200) -> Iterable[Sample]:
    """Pairs of made-up words, no two alike; answers of 20 to `most_words`, so that lengths differ as real ones do."""
    draw = random.Random(seed)
    words = ["".join(draw.choices(_SYLLABLES, k=draw.randint(1, 3))) for _ in range(3000)]
    for index in range(count):
        lengths = (draw.randint(10, 60), draw.randint(20, most_words), draw.randint(20, most_words))
        question, *answers = (" ".join(draw.choices(words, k=length)) for length in lengths)
        yield Sample(id=str(index), question=question, answers=tuple(answers))


def _followers(tokenizer: Any, prompt: str) -> dict[int, dict[int, float]]:
    """For each token the tokens that follow it, with their probabilities."""

    def only(text: str) -> int:
        ids = tokenizer(text, add_special_tokens=False)["input_ids"]
        assert len(ids) == 1, f"the tokenizer splits {text!r}"
        return int(ids[0])

    first = {only(digit): share for digit, share in _SPREAD.items()}
    second = {only(f" {digit}"): share for digit, share in _SPREAD.items()}
    line_end, prompt_end = only("\n"), int(tokenizer(prompt)["input_ids"][-1])
    special = {line_end, prompt_end, *first, *second, *tokenizer.all_special_ids}
    words = [token for token in range(len(tokenizer)) if token not in special]
    random.Random(0).shuffle(words)
    chain = {word: {following: 1.0} for word, following in zip(words, words[1:] + words[:1], strict=True)}
    scores = {prompt_end: first} | dict.fromkeys(first, second) | {token: {line_end: 1.0} for token in second}
    return chain | scores | {line_end: {words[0]: 1.0}}


def _speak(model: Any, followers: dict[int, dict[int, float]]) -> None:
    """Make the output head name the followers of the last token, and the layers nearly silent."""
    for layer in model.model.layers:
        layer.self_attn.o_proj.weight.mul_(_LAYERS_SAY)
        layer.mlp.down_proj.weight.mul_(_LAYERS_SAY)
    embedding: Tensor = model.model.embed_tokens.weight
    embedding.normal_()
    width = embedding.shape[1]
    head = torch.zeros(embedding.shape, dtype=torch.float32)
    for token, following in followers.items():
        direction = embedding[token].float() / width
        for follower, share in following.items():
            head[follower] += (_SURE + torch.tensor(share).log()) * direction
    model.lm_head.weight.copy_(head)


_SYLLABLES = ("ba", "den", "fo", "gi", "ha", "ker", "lu", "ma", "no", "per", "ri", "so", "ta", "ven", "wi", "zu")


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
