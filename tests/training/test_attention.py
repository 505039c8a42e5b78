"""The choice of attention for training, and rows packed without padding: losses and gradients of padded rows."""

import json
from dataclasses import replace
from functools import partial
from math import nan
from types import SimpleNamespace

import pytest
import torch
import transformers
from torch.nn.functional import cross_entropy
from trl import ModelConfig, SFTConfig
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from judgelm.engines.transformers.attention import ATTENTION_NAME, trained_rows
from judgelm.errors import ConfigError, EngineError
from judgelm.training.attention import best_attention, choose_attention, named_attention, supports_flash_attention
from judgelm.training.padding import packing_obstacle, settle_padding
from judgelm.training.preference import PreferenceArguments, preference_attention
from judgelm.training.score_line_loss import ScoreLineObjective, ScoreLineTrees
from judgelm.training.word_loss import WordObjective, WordTokens, WordWeights
from tests.support.tiny_judges import TEMPLATE


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, "flash_attention_2"),
        ({"installed": (2, 3, 4)}, "flash_attention_2"),  # the others are made for later GPUs
        ({"generation": 9, "installed": (2, 3, 4)}, "flash_attention_3"),
        ({"generation": 9}, "flash_attention_2"),
        ({"generation": 10, "installed": (2, 3, 4)}, "flash_attention_4"),
        ({"generation": 12}, "flash_attention_2"),
        ({"generation": None}, "sdpa (not on a CUDA GPU)"),
        ({"generation": 7}, "sdpa (FlashAttention requires an Ampere or later GPU)"),
        ({"half": False}, "sdpa (FlashAttention requires bf16: true)"),
        ({"installed": ()}, "sdpa (flash-attn is not installed)"),
        ({"supported": False}, "sdpa (the model does not support FlashAttention)"),
    ],
)
def test_the_fastest_that_is_installed_for_the_gpu_is_taken_else_sdpa_and_why_is_told(options, expected):
    facts = {"generation": 8, "installed": (2,), "supported": True, "half": True} | options
    implementation = None if expected.startswith("sdpa") else expected
    assert best_attention(facts.pop("generation"), facts.pop("installed"), **facts) == (implementation, expected)


def test_what_a_recipe_names_is_taken_and_what_it_downloads_is_told():
    assert named_attention("eager", (2,), kernels=False) == ("eager", "eager, as requested")
    hub = named_attention("kernels-community/flash-attn2", (2,), kernels=False)
    assert hub.note.endswith("as requested, a kernel from the hub")
    assert "loads the kernel from the hub" in named_attention("flash_attention_3", (2,), kernels=True).note
    with pytest.raises(ConfigError, match=r"flash_attention_3 is not available"):
        named_attention("flash_attention_3", (2,), kernels=False)


def test_a_cpu_takes_sdpa_whatever_is_installed_and_preferences_a_mask_of_their_own(tiny_model):
    base, args = ModelConfig(model_name_or_path=str(tiny_model)), SFTConfig(use_cpu=True, bf16=False)
    assert choose_attention(base, args) == (None, "sdpa (not on a CUDA GPU)")
    assert preference_attention(PreferenceArguments(train_data=[]), base, args).implementation == "sdpa"
    base.attn_implementation = "flash_attention_2"
    with pytest.raises(ConfigError, match="sdpa or eager"):
        preference_attention(PreferenceArguments(train_data=[]), base, args)


def test_whether_a_model_supports_it_is_read_from_its_configuration(tiny_model, tmp_path):
    assert supports_flash_attention(str(tiny_model))
    shape = {"hidden_size": 1024, "num_attention_heads": 2}  # heads of 512
    wide = transformers.LlamaConfig(**shape, architectures=["LlamaForCausalLM"])
    own = {"model_type": "own", "auto_map": {"AutoConfig": "own.Own"}, "architectures": ["Own"]}
    for config in (wide.to_dict(), transformers.GPT2Config(architectures=["NoSuchModel"]).to_dict(), own):
        (tmp_path / "config.json").write_text(json.dumps(config))
        assert not supports_flash_attention(str(tmp_path))


SHAPE = {
    "vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 128, "pad_token_id": 0, "eos_token_id": 1, "bos_token_id": 1,
}  # fmt: skip
GROUPED = transformers.LlamaConfig(**SHAPE)
"""Two query heads share each key head."""
CAUSAL = {
    "grouped heads": GROUPED,
    "qwen2": transformers.Qwen2Config(**SHAPE),
    "a window shorter than rows": transformers.MistralConfig(**SHAPE, sliding_window=8),
    "bounded scores and a window": transformers.Gemma2Config(**SHAPE, head_dim=8, sliding_window=8),
}


def model_of(config, attention="sdpa"):
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config, attn_implementation=attention).train()


def arguments(padding_free=None, torch_compile=False):
    return SimpleNamespace(padding_free=padding_free, torch_compile=torch_compile)


def batch_of_rows(*, padding_free):
    draw = torch.Generator().manual_seed(0)
    rows = [torch.randint(2, 64, (length,), generator=draw).tolist() for length in (30, 5, 1, 17)]
    collator = DataCollatorForLanguageModeling(0, padding_free=padding_free)
    return collator([{"input_ids": row, "labels": row} for row in rows])


def loss_and_gradients(model, loss):
    model.zero_grad()
    loss.backward()
    return loss.item(), {name: weight.grad.clone() for name, weight in model.named_parameters()}


def collated(model, *, padding_free):
    batch = batch_of_rows(padding_free=padding_free)
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

    def kernel(query, key, value, *_, **__):
        seen.append({query.dtype, key.dtype, value.dtype})
        return query

    segments = replace(trained_rows([30, 5, 1, 17]), kernel_for=lambda *_: kernel)
    with torch.autocast("cpu", dtype):
        model(**batch_of_rows(padding_free=True), segments=[segments], use_cache=False).loss.backward()
    assert seen == [{dtype}] * GROUPED.num_hidden_layers  # RoPE gave float32, which no such kernel takes


def test_padded_rows_are_refused_by_the_packed_attention_rather_than_read_across():
    model = model_of(GROUPED)
    settle_padding(model, arguments())
    with pytest.raises(EngineError, match="packing"):
        collated(model, padding_free=False)


def preferred(objective, model, examples):
    batch = objective(examples)
    outputs = model(**objective.model_inputs(batch, model.dtype), use_cache=False)
    losses, metrics = objective.losses(outputs.logits, batch)
    return *loss_and_gradients(model, losses.mean()), {name: value.tolist() for name, value in metrics.items()}


def pairs():
    prompts = [[number + 2, *range(5, 9 + 7 * number)] for number in range(6)]
    return [
        {"prompt_ids": first, "second_ids": second, "preference": preference, "first_right": nan, "second_right": 1.0}
        for first, second, preference in zip(prompts[::2], prompts[1::2], (0.2, 0.5, 0.8), strict=True)
    ]


@pytest.mark.parametrize("both_orders", [False, True])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_score_lines_after_each_prompt_have_the_padded_losses(tiny_model, tokenizer, both_orders, checkpointing):
    load = partial(transformers.AutoModelForCausalLM.from_pretrained, dtype=torch.float32)
    model = load(tiny_model, attn_implementation="sdpa").train()
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
def test_words_after_each_prompt_have_the_padded_losses(reading, case):
    model = model_of(CAUSAL[case])
    words, weights = WordTokens(reading=reading, ids=((7, 9), (8,))), WordWeights(consistency=1, word=1, pointwise=1)
    padded = preferred(WordObjective(words, weights), model, pairs())
    settle_padding(model, arguments())
    assert_alike(preferred(WordObjective(words, weights, padding_free=True), model, pairs()), padded)


MOE = transformers.GptOssConfig(**SHAPE, head_dim=8, num_local_experts=2, num_experts_per_tok=1)
FALCON = transformers.FalconConfig(vocab_size=64, hidden_size=32, num_hidden_layers=1, num_attention_heads=4)
GPT2 = transformers.GPT2Config(vocab_size=64, n_embd=32, n_layer=1, n_head=4)
CANNOT = {
    "attention is eager": (GROUPED, "eager", "the attention implementation is eager, not sdpa"),
    "sinks": (MOE, "sdpa", "gpt_oss layers use attention sinks"),
    "no interface": (FALCON, "sdpa", "the attention of falcon layers cannot be replaced"),
    "dropout": (transformers.LlamaConfig(**SHAPE, attention_dropout=0.1), "sdpa", r"dropout \(attention_dropout\)"),
    "dropout by another name": (GPT2, "sdpa", "attn_pdrop"),
}


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
    assert "sliding-window attention" in packing_obstacle(sliding, arguments(), trees=True)
    assert "torch_compile" in settle_padding(model_of(GROUPED), arguments(torch_compile=True))
    assert settle_padding(model_of(GROUPED), arguments(False)) == "padded rows (padding_free is false)"


def test_flash_attention_reads_rows_as_they_are_but_no_score_lines():
    model = model_of(GROUPED)
    model.config._attn_implementation = "flash_attention_2"
    notes = settle_padding(model, arguments()), model.config._attn_implementation
    assert notes == ("no padding", "flash_attention_2")
    assert "flash_attention_2, not sdpa" in settle_padding(model, arguments(), trees=True)
