"""Models, thinking models, adapters, and adapters that share a model."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    Gemma2Config,
    GPT2Config,
    LlamaConfig,
    MambaConfig,
    MistralConfig,
    Qwen2Config,
    Qwen3Config,
)

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.errors import ModelError
from judgelm.judge import Judge
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card, write_card
from judgelm.records import Prompt, Request, Sampling, Span
from tests.support.driving import prompt_of, run
from tests.support.flows import text_of
from tests.support.tiny_judges import TEMPLATE, make_adapter, word_sample
from tests.support.vicuna_folders import Executed, pickle_weights


def load(model, adapter=None, **options):
    adapter = None if adapter is None else str(adapter)
    return load_engine("transformers", EngineOptions(model=str(model), adapter=adapter, device="cpu", **options))


def test_unsafe_pickled_adapter_is_rejected(tiny_judge, tiny_adapters, tmp_path):
    pickled = pickle_weights(tiny_adapters[0], tmp_path / "adapter", extra=Executed(tmp_path / "executed"))
    with pytest.raises(ModelError, match=r"adapter_model\.bin: .*pickle would call"):
        load(tiny_judge, pickled)
    assert not (tmp_path / "executed").exists()


WEIGHTS = "adapter_model.safetensors"


def edit(folder, **values):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("break_it", "finding"),
    [
        (lambda folder: edit(folder, r=-1), "`r` should be a positive integer value"),
        (lambda folder: edit(folder, lora_alpha=float("nan")), r"adapter_config\.json: lora_alpha is NaN"),
        (lambda folder: edit(folder, lora_alpha="x"), "cannot load the adapter: "),
        (lambda folder: edit(folder, target_modules=["nope"]), "Target modules .* not found in the base model"),
        # PEFT leaves missing weights random
        (lambda folder: save_file({}, folder / WEIGHTS), "missing adapter keys"),
        (lambda folder: (folder / WEIGHTS).unlink(), r"no weights .*\.safetensors or adapter_model\.bin"),
        (lambda folder: (folder / WEIGHTS).write_bytes(b"torn"), "cannot load the adapter"),
    ],
)
def test_damaged_adapter_is_rejected(tiny_model, tmp_path, break_it, finding):
    folder = make_adapter(tiny_model, tmp_path / "adapter", seed=1)
    break_it(folder)
    with pytest.raises(ModelError, match=finding):
        load(tiny_model, folder)


def test_adapter_without_a_base_is_rejected(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="as --model and this folder as --adapter"):
        load(tmp_path)
    (tmp_path / "adapter_config.json").write_text("{torn")
    with pytest.raises(ModelError, match="invalid adapter config"):
        load(tmp_path)


COMMON = {
    "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "max_position_embeddings": 512, "initializer_range": 0.2,
}  # fmt: skip
CONFIGS = {
    "mistral with a sliding window": MistralConfig(**COMMON, sliding_window=24),
    "qwen2": Qwen2Config(**COMMON),
    "qwen3": Qwen3Config(**COMMON, head_dim=16),
    "gemma2 with soft caps": Gemma2Config(**COMMON, head_dim=16, sliding_window=24),
    "gpt2": GPT2Config(n_embd=64, n_layer=2, n_head=4, n_positions=512, initializer_range=0.2),
}


def save_random(config, tiny_model, folder):
    """Save a random model with the tokenizer of `tiny_model`."""
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    config.vocab_size = len(tokenizer)
    config.eos_token_id = config.bos_token_id = config.pad_token_id = tokenizer.eos_token_id
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_greedy_replies_equal_generate(name, tiny_model, tmp_path):
    tokenizer = save_random(CONFIGS[name], tiny_model, tmp_path)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager")
    prompts = [prompt_of("a big fox jumps " * (i + 1)) for i in range(8)]
    requests = [Request(key=str(i), prompt=prompt, sampling=Sampling(max_tokens=8)) for i, prompt in enumerate(prompts)]
    done = run(load(tmp_path), requests)
    for request in requests:
        ids = tokenizer(text_of(request.prompt), return_tensors="pt").input_ids
        out = plain.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False)
        assert done[request.key].texts[0] == tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True)


def test_four_bit_weights_give_similar_probabilities(tiny_model, tmp_path):
    pytest.importorskip("bitsandbytes")
    save_random(LlamaConfig(**COMMON | {"intermediate_size": 128}), tiny_model, tmp_path)
    lines, sampling = ("8 6\n", "fox\n", "a\n"), Sampling(max_tokens=2)
    request = Request(key="1", prompt=prompt_of("a big fox"), sampling=sampling, candidates=lines)
    whole, small = (run(load(tmp_path, quantization=kind), [request])["1"] for kind in (None, "4bit"))
    # 4 bits change the values, but not much
    assert small.candidate_logprobs != whole.candidate_logprobs
    assert small.candidate_logprobs == pytest.approx(whole.candidate_logprobs, abs=2.5)


def test_model_without_attention_is_rejected(tiny_model, tmp_path):
    save_random(MambaConfig(hidden_size=32, num_hidden_layers=1, state_size=4), tiny_model, tmp_path)
    with pytest.raises(ModelError, match="use --engine vllm"):
        load(tmp_path)


@pytest.fixture
def thinker(tiny_model, tmp_path):
    """A tiny model whose chat template opens a thinking block."""
    folder = shutil.copytree(tiny_model, tmp_path / "model")
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    turns = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
    tokenizer.chat_template = turns + "{{ '<think>\\n' }}"
    tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(("thinking", "begins"), [("absent", True), ("on", True), ("off", False)])
def test_reply_inside_the_thinking_block_has_its_opening(thinker, thinking, begins):
    engine = load(thinker, thinking=thinking)
    prompt = Prompt(spans=(Span("rate a fox", "question", "user"),), chat=True)
    engine.submit([Request(key="0", prompt=prompt, sampling=Sampling(max_tokens=12))])
    done, seen = [], []
    while not done:
        done = engine.collect(0.0)
        seen += engine.progress(["0"]).values()
    assert done[0].texts[0].startswith("<think>") == begins
    assert {text.startswith("<think>\n") for text in seen} == {begins}
    engine.close()


def test_user_overrides_the_cards_thinking_setting(thinker):
    template = get_template("judgelm-chat")
    write_card(thinker, Card(template=template.id, template_sha=template.sha, thinking="on"))
    for options, mode in (({}, "on"), ({"thinking": "off"}, "off")):
        with Judge(str(thinker), engine="transformers", **options) as loaded:
            # at most half of the window
            tokens = min(4096, loaded.engine.describe()["window"] // 2)
            assert (loaded.engine.thinking.mode, loaded.engine.thinking.max_tokens) == (mode, tokens)


@pytest.fixture
def copied(tiny_adapters, tmp_path):
    """A copy of the first adapter, to be changed."""
    return shutil.copytree(tiny_adapters[0], tmp_path / "adapter")


CANDIDATES = ("8 6", "6 8", "10 1")


def requests_of(adapter=None, count=6):
    """Requests with candidates; their keys name the adapter."""
    template, name = get_template(TEMPLATE), None if adapter is None else str(adapter)
    return [
        Request(
            key=f"{seed} {name}",
            prompt=template.render(word_sample(seed), (0, 1), None),
            sampling=Sampling(max_tokens=3 + 4 * (seed % 3)),
            candidates=CANDIDATES if seed % 2 else (),
            adapter=name,
        )
        for seed in range(count)
    ]


def answers(engine, requests):
    """Texts and log-probabilities in the order of the requests."""
    completions = run(engine, requests)
    return [(completions[each.key].texts, completions[each.key].candidate_logprobs) for each in requests]


def same(actual, expected):
    """Check equal texts and log-probabilities, except for rounding."""
    assert [texts for texts, _ in actual] == [texts for texts, _ in expected]
    for (_, logprobs), (_, expected_logprobs) in zip(actual, expected, strict=True):
        assert (logprobs is None) == (expected_logprobs is None)
        assert logprobs is None or logprobs == pytest.approx(expected_logprobs, abs=1e-4)


def mixed(*lists):
    """Requests of several judges, taken in turn."""
    return [request for group in zip(*lists, strict=True) for request in group]


@pytest.mark.parametrize("options", [{}, {"max_num_batched_tokens": 150}])
def test_mixed_requests_equal_each_adapter_alone(tiny_judge, tiny_adapters, options):
    names = (None, *tiny_adapters)
    replies = answers(load(tiny_judge, **options), mixed(*(requests_of(name, 12) for name in names)))
    assert len(replies) == 36
    for index, name in enumerate(names):
        same(replies[index::3], answers(load(tiny_judge, name), requests_of(count=12)))
    texts = [[text for text, _ in replies[index::3]] for index in range(3)]
    assert texts[0] != texts[1] != texts[2] != texts[0]


@torch.inference_mode()
def test_interleaved_tokens_use_their_own_adapter(tiny_judge, tiny_adapters):
    first, second = map(str, tiny_adapters)
    engine = load(tiny_judge)
    for name in (first, second):
        engine.load_adapter(name)
    # three replies each, in turn (places 0 to 5), then a prompt of 40 tokens each
    engine._adapters.select([*[(name, 1) for _ in range(3) for name in (first, second)], (first, 40), (second, 40)])
    layer = engine._loaded.model.model.layers[0].self_attn.q_proj
    row = torch.randn(1, 86, layer.base.in_features, generator=torch.Generator().manual_seed(0))
    mixed_output = layer(row)
    for name, places in ((first, [0, 2, 4, *range(6, 46)]), (second, [1, 3, 5, *range(46, 86)])):
        engine._adapters.select([(name, 86)])
        assert torch.allclose(mixed_output[0, places], layer(row)[0, places], atol=1e-5)


def test_pickled_adapter_equals_safetensors(tiny_judge, tiny_adapters, tmp_path):
    pickled = pickle_weights(tiny_adapters[0], tmp_path / "adapter")
    assert not list(pickled.glob("*.safetensors"))
    replies = answers(load(tiny_judge, pickled), requests_of())
    assert replies == answers(load(tiny_judge, tiny_adapters[0]), requests_of())


def test_ranks_and_scales_equal_peft(tiny_judge, copied):
    edit(copied, use_rslora=True, alpha_pattern={"q_proj": 3})
    replies = answers(load(tiny_judge), requests_of(copied))
    same(replies, answers(load(tiny_judge, copied), requests_of()))


def test_adapter_uses_its_cards_window(tiny_judge, tiny_adapters, copied):
    template = get_template(TEMPLATE)
    write_card(copied, Card(template=template.id, template_sha=template.sha, window=24))
    engine = load(tiny_judge)
    [unlimited] = run(engine, requests_of(tiny_adapters[0], 1)).values()
    [limited] = run(engine, requests_of(copied, 1)).values()
    assert unlimited.prompt_tokens + unlimited.completion_tokens > 24
    assert limited.finish_reasons == ("too_long",) or limited.prompt_tokens + limited.completion_tokens <= 24


def rename(folder, *names):
    weights = {name.replace(*names): weight for name, weight in load_file(folder / WEIGHTS).items()}
    save_file(weights, folder / WEIGHTS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda f: edit(f, use_dora=True), "only plain LoRA adapters can share a base"),
        (lambda f: edit(f, peft_type="IA3"), "only plain LoRA adapters can share a base"),
        (lambda f: rename(f, "self_attn.q_proj", "lm_head"), "may only modify"),
        (lambda f: rename(f, "q_proj", "x_proj"), "the model has no linear layer .*x_proj"),
        (lambda f: rename(f, "self_attn.q_proj", "mlp.gate_proj"), "layer .*gate_proj maps"),
        (lambda f: rename(f, "lora_A", "lora_embedding_A"), "load it by itself with --adapter"),
    ],
)
def test_incompatible_adapter_is_rejected_and_changes_nothing(tiny_judge, copied, change, message):
    change(copied)
    engine = load(tiny_judge)
    with pytest.raises(ModelError, match=message):
        engine.load_adapter(str(copied))
    same(answers(engine, requests_of()), answers(load(tiny_judge), requests_of()))


def test_adapter_of_an_adapter_is_rejected(tiny_judge, tiny_adapters):
    with pytest.raises(ModelError, match=r"is an adapter; .*load the base"):
        load(tiny_judge, tiny_adapters[0]).load_adapter(str(tiny_adapters[1]))
