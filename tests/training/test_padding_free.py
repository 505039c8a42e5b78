"""Rows one behind another, without padding: losses and gradients of padded rows, and the models that cannot."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import (
    AutoModelForCausalLM,
    FalconConfig,
    Gemma2Config,
    GPT2Config,
    GptOssConfig,
    LlamaConfig,
    MistralConfig,
    Qwen2Config,
)
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from judgelm.engines.transformers.attention import ATTENTION_NAME, trained_rows
from judgelm.errors import ConfigError, EngineError
from judgelm.training.padding import packing_obstacle, settle_padding
from judgelm.training.score_line_loss import ScoreLineObjective, ScoreLineTrees
from judgelm.training.word_loss import WordObjective, WordTokens, WordWeights
from tests.support.tiny_judges import TEMPLATE

SHAPE = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1,
}  # fmt: skip
GROUPED = LlamaConfig(**SHAPE)
"""Two query heads share each key head."""
CAUSAL = {
    "grouped heads": GROUPED,
    "qwen2": Qwen2Config(**SHAPE),
    "a window shorter than rows": MistralConfig(**SHAPE, sliding_window=8),
    "bounded scores and a window": Gemma2Config(**SHAPE, head_dim=8, sliding_window=8),
}


def model_of(config, attention="sdpa"):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, attn_implementation=attention).train()


def arguments(padding_free=None, torch_compile=False):
    return SimpleNamespace(padding_free=padding_free, torch_compile=torch_compile)


def rows():
    draw = torch.Generator().manual_seed(0)
    rows = [torch.randint(2, 64, (length,), generator=draw).tolist() for length in (30, 5, 1, 17)]
    return [{"input_ids": row, "labels": row} for row in rows]


def loss_and_gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return loss.item(), {name: weight.grad.clone() for name, weight in model.named_parameters()}


def collated(model, *, padding_free):
    batch = DataCollatorForLanguageModeling(0, padding_free=padding_free)(rows())
    labels = batch.pop("labels")[:, 1:]
    logits = model(**batch, use_cache=False).logits[:, :-1]
    return loss_and_gradients(model, cross_entropy(logits.transpose(1, 2), labels))


def assert_alike(first, second):
    assert first[0] == pytest.approx(second[0], abs=1e-5)
    for name, gradient in first[1].items():
        torch.testing.assert_close(gradient, second[1][name], atol=1e-5, rtol=1e-4)


@pytest.mark.parametrize("checkpointing", [False, True])
@pytest.mark.parametrize("case", CAUSAL)
def test_loss_and_gradients_are_those_of_padded_rows(case, checkpointing):
    model = model_of(CAUSAL[case], "eager")  # transformers' sdpa leaves Gemma 2's bound out
    padded = collated(model, padding_free=False)
    model.config._attn_implementation = "sdpa"
    args = arguments()
    assert (settle_padding(model, args), args.padding_free) == ("no padding", True)
    assert model.config._attn_implementation == ATTENTION_NAME
    if checkpointing:
        model.gradient_checkpointing_enable()
    assert_alike(collated(model, padding_free=True), padded)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_float32_weights_under_autocast_reach_the_kernel_in_16_bits(dtype):
    model, seen = model_of(GROUPED), []
    settle_padding(model, arguments())
    batch = DataCollatorForLanguageModeling(0, padding_free=True)(rows())

    def kernel(query, key, value, *_, **__):
        seen.append({query.dtype, key.dtype, value.dtype})
        return query

    segments = replace(trained_rows([30, 5, 1, 17]), kernel_for=lambda *_: kernel)
    with torch.autocast("cpu", dtype):
        model(**batch, segments=[segments], use_cache=False).loss.backward()
    assert seen == [{dtype}] * GROUPED.num_hidden_layers  # RoPE gave float32, which no such kernel takes


def test_padded_rows_are_refused_by_the_packed_attention_rather_than_read_across():
    model = model_of(GROUPED)
    settle_padding(model, arguments())
    with pytest.raises(EngineError, match="does not support packing"):
        collated(model, padding_free=False)


def preferred(objective, model, examples):
    batch = objective(examples)
    outputs = model(**objective.model_inputs(batch, model.dtype), use_cache=False)
    losses, metrics = objective.losses(outputs.logits, batch)
    return *loss_and_gradients(model, losses.mean()), {name: value.tolist() for name, value in metrics.items()}


def pairs(count=3):
    prompts = iter([[number + 2, *range(5, 9 + 7 * number)] for number in range(2 * count)])
    return [
        {"prompt_ids": next(prompts), "second_ids": next(prompts), "preference": 0.2 + 0.3 * number}
        | {"first_right": float("nan"), "second_right": 1.0}
        for number in range(count)
    ]


@pytest.mark.parametrize("both_orders", [False, True])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_score_lines_behind_each_prompt_have_the_losses_of_padded_prompts(
    tiny_model, tokenizer, both_orders, checkpointing
):
    model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32, attn_implementation="sdpa").train()
    examples = pairs() if both_orders else [pair | {"second_ids": []} for pair in pairs()]
    trees = ScoreLineTrees(tokenizer, TEMPLATE, (9, 11))  # 10 and 11 are two tokens, so the tree has further levels
    padded = preferred(ScoreLineObjective(trees, 0.5, 0.1), model, examples)
    settle_padding(model, arguments(), trees=True)
    if checkpointing:
        model.gradient_checkpointing_enable()
    free = preferred(ScoreLineObjective(trees, 0.5, 0.1, padding_free=True), model, examples)
    assert_alike(free, padded)
    for name, values in padded[2].items():
        assert free[2][name] == pytest.approx(values, abs=1e-5)


@pytest.mark.parametrize("reading", ["letters", "yes-no"])
@pytest.mark.parametrize("case", ["grouped heads", "a window shorter than rows"])
def test_words_behind_each_prompt_have_the_losses_of_padded_prompts(reading, case):
    model = model_of(CAUSAL[case])
    words, weights = WordTokens(reading=reading, ids=((7, 9), (8,))), WordWeights(consistency=1, word=1, pointwise=1)
    padded = preferred(WordObjective(words, weights), model, pairs())
    settle_padding(model, arguments())
    assert_alike(preferred(WordObjective(words, weights, padding_free=True), model, pairs()), padded)


MOE = GptOssConfig(**SHAPE, head_dim=8, num_local_experts=2, num_experts_per_tok=1)
CANNOT = {
    "attention is eager": (GROUPED, "eager", "the attention implementation is eager, not sdpa"),
    "sinks": (MOE, "sdpa", "gpt_oss layers use attention sinks"),
    "no interface": (FalconConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=4), "sdpa",
                     "the attention of falcon layers cannot be replaced"),
    "dropout": (LlamaConfig(**SHAPE, attention_dropout=0.1), "sdpa", r"attention dropout \(attention_dropout\)"),
    "dropout by another name": (GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=4), "sdpa", "attn_pdrop"),
}  # fmt: skip


@pytest.mark.parametrize("case", CANNOT)
def test_a_model_that_cannot_is_padded_with_the_reason_and_refused_on_request(case):
    config, attention, reason = CANNOT[case]
    model, args = model_of(config, "eager"), arguments()
    model.config._attn_implementation = attention
    with pytest.raises(ConfigError, match=f"padding_free is true, but .*{reason}.*remove padding_free"):
        settle_padding(model, arguments(padding_free=True))
    assert settle_padding(model, args).startswith("padded rows (")
    assert (args.padding_free, model.config._attn_implementation) == (False, attention)


def test_score_lines_and_compilation_have_obstacles_of_their_own():
    sliding = model_of(CAUSAL["a window shorter than rows"])
    assert packing_obstacle(sliding, arguments()) == ""
    assert packing_obstacle(sliding, arguments(), trees=True) == "score lines do not support sliding-window attention"
    assert "torch_compile" in settle_padding(model_of(GROUPED), arguments(torch_compile=True))
    assert settle_padding(model_of(GROUPED), arguments(False)) == "padded rows (padding_free is false)"


def test_flash_attention_reads_rows_as_they_are_but_no_score_lines():
    model = model_of(GROUPED)
    model.config._attn_implementation = "flash_attention_2"
    assert settle_padding(model, arguments()) == "no padding"
    assert model.config._attn_implementation == "flash_attention_2"
    assert "flash_attention_2, not sdpa" in settle_padding(model, arguments(), trees=True)
