"""Speed of an engine against a plain matrix product."""

import pytest
from transformers import AutoConfig, LlamaConfig, MixtralConfig

from judgelm.doctor.speed import Probe, run_probe
from judgelm.engines.base import EngineOptions
from judgelm.engines.weights import prefill_parameters
from judgelm.errors import ConfigError, EngineError, ModelError

_SIZES = {
    "vocab_size": 100, "hidden_size": 8, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2,
    "num_key_value_heads": 1,
}  # fmt: skip
# a layer: queries and output 2 * 8 * 8, keys and values 2 * 8 * 4, two norms 2 * 8
_ATTENTION = 128 + 64 + 16
_MLP = 3 * 8 * 16


@pytest.mark.parametrize(
    ("config", "layer"),
    [
        (LlamaConfig(**_SIZES, tie_word_embeddings=True), _ATTENTION + _MLP),
        (LlamaConfig(**_SIZES, tie_word_embeddings=False), _ATTENTION + _MLP),
        # the router's 8 * 4 weights meet every token, two of the four experts do
        (MixtralConfig(**_SIZES, num_local_experts=4, num_experts_per_tok=2), _ATTENTION + 32 + 2 * _MLP),
    ],
    ids=["tied", "untied", "mixture"],
)
def test_parameters_count_that_a_token_visits_without_embedding_and_output_head(config, layer):
    # the last norm has 8 weights; 100 * 8 of the embedding, and as many of the head, are left out
    assert prefill_parameters(config) == 2 * layer + 8


@pytest.mark.parametrize(
    ("engine", "options", "error"),
    [
        ("scripted", {"model": "8 7"}, ConfigError),
        ("transformers", {"max_model_len": 8}, EngineError),  # no prompt fits
        ("transformers", {"model": "/no/such/folder"}, ModelError),
    ],
)
def test_what_cannot_be_probed_is_refused(tiny_model, engine, options, error):
    with pytest.raises(error):
        run_probe(engine, EngineOptions(**({"model": str(tiny_model)} | options)), seconds=1)


def test_the_figures_follow_from_what_was_measured():
    probe = Probe(
        engine="e", model="m", dtype="float32", device="cpu", threads=1, parameters=1_000_000, ceiling_before=4e9,
        ceiling_after=3e9, prompts=10, prompt_tokens=5_000, seconds=5.0, load_seconds=1.0,
    )  # fmt: skip
    assert probe.pairs_per_s == 2.0
    assert probe.tokens_per_prompt == 500
    assert probe.flops == 2e9  # 2 * 1e6 * 1000 tokens/s
    assert probe.share_of_ceiling == 0.5  # of the larger ceiling
    assert probe.is_disturbed  # 3e9 is less than 85 % of 4e9


def test_a_probe_judges_and_counts(tiny_model):
    probe = run_probe("transformers", EngineOptions(model=str(tiny_model)), seconds=0.2)
    assert probe.parameters == prefill_parameters(AutoConfig.from_pretrained(tiny_model))
    assert (probe.dtype, probe.device) == ("float32", "cpu")
    assert probe.prompts >= 4
    assert probe.tokens_per_prompt <= 512  # the window
    assert 0 < probe.share_of_ceiling < 1.2
