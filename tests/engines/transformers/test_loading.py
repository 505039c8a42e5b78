"""Adapters that cannot be put on."""

import json

import pytest
import torch
from safetensors.torch import save_file
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
from judgelm.prompts.catalog import get_template
from judgelm.records import Request, Sampling
from tests.support.driving import prompt_of, run
from tests.support.tiny_judges import TEMPLATE, make_adapter, word_sample
from tests.support.vicuna_folders import Executed, pickle_weights


def load(model, adapter):
    return load_engine("transformers", EngineOptions(model=str(model), adapter=str(adapter)))


def replies(engine):
    template = get_template(TEMPLATE)
    requests = [
        Request(
            key=str(seed), prompt=template.render(word_sample(seed), (0, 1), None), sampling=Sampling(max_tokens=20)
        )
        for seed in range(6)
    ]
    return [completion.texts for _, completion in sorted(run(engine, requests).items())]


def test_a_pickled_adapter_is_loaded_as_its_safetensors_are(tiny_judge, tiny_adapters, tmp_path):
    pickled = pickle_weights(tiny_adapters[0], tmp_path / "adapter")
    assert not list(pickled.glob("*.safetensors"))
    assert replies(load(tiny_judge, pickled)) == replies(load(tiny_judge, tiny_adapters[0]))
    assert replies(load(tiny_judge, pickled)) != replies(load(tiny_judge, tiny_adapters[1]))


def test_a_pickled_adapter_that_runs_code_is_refused(tiny_judge, tiny_adapters, tmp_path):
    pickled = pickle_weights(tiny_adapters[0], tmp_path / "adapter", extra=Executed(tmp_path / "executed"))
    with pytest.raises(ModelError, match=r"adapter_model\.bin: refused, and nothing in it was executed"):
        load(tiny_judge, pickled)
    assert not (tmp_path / "executed").exists()


def test_an_adapter_without_weights_is_named(tiny_model, tmp_path):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))
    with pytest.raises(ModelError, match=r"no weights \(adapter_model\.safetensors or adapter_model\.bin\)"):
        load(tiny_model, tmp_path)


def test_a_torn_adapter_is_named(tiny_model, tmp_path):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "target_modules": ["q_proj"]}))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"torn")
    with pytest.raises(ModelError, match="cannot load the adapter"):
        load(tiny_model, tmp_path)


def edit(folder, **values):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("break_it", "finding"),
    [
        (lambda folder: edit(folder, r=-1), "`r` should be a positive integer value"),
        (lambda folder: edit(folder, lora_alpha=float("nan")), r"adapter_config\.json: lora_alpha is NaN"),
        (lambda folder: edit(folder, lora_alpha="x"), "cannot load the adapter: "),
        (lambda folder: edit(folder, peft_type="NOPE"), "cannot load the adapter: 'NOPE'"),
        (lambda folder: edit(folder, target_modules="("), "cannot load the adapter: missing \\)"),
        (lambda folder: edit(folder, target_modules=["nope"]), "Target modules .* not found in the base model"),
        # PEFT leaves weights that are not in the file at random
        (lambda folder: save_file({}, folder / "adapter_model.safetensors"), "missing adapter keys"),
    ],
)
def test_a_damaged_adapter_is_named(tiny_model, tmp_path, break_it, finding):
    folder = make_adapter(tiny_model, tmp_path / "adapter", seed=1)
    break_it(folder)
    with pytest.raises(ModelError, match=finding):
        load(tiny_model, folder)


def test_an_adapter_that_names_no_base_says_what_to_pass(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="pass the base as --model and this folder as --adapter"):
        load_engine("transformers", EngineOptions(model=str(tmp_path)))
    (tmp_path / "adapter_config.json").write_text("{torn")
    with pytest.raises(ModelError, match="not an adapter's JSON"):
        load_engine("transformers", EngineOptions(model=str(tmp_path)))


COMMON = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.2,
}
CONFIGS = {
    "mistral with a sliding window": MistralConfig(**COMMON, sliding_window=24),
    "qwen2": Qwen2Config(**COMMON),
    "qwen3": Qwen3Config(**COMMON, head_dim=16),
    "gemma2 with soft caps": Gemma2Config(**COMMON, head_dim=16, sliding_window=24),
    "gpt2": GPT2Config(n_embd=64, n_layer=2, n_head=4, n_positions=512, initializer_range=0.2),
}


@pytest.mark.parametrize("name", sorted(CONFIGS))
def test_greedy_replies_equal_generate(name, tiny_model, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    config = CONFIGS[name]
    config.vocab_size = len(tokenizer)
    config.eos_token_id = config.bos_token_id = config.pad_token_id = tokenizer.eos_token_id
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    plain = AutoModelForCausalLM.from_pretrained(tmp_path, attn_implementation="eager")
    requests = [
        Request(key=str(i), prompt=prompt_of("a big fox jumps " * (i + 1)), sampling=Sampling(max_tokens=8))
        for i in range(8)
    ]
    done = run(load_engine("transformers", EngineOptions(model=str(tmp_path))), requests)
    for request in requests:
        ids = tokenizer("".join(span.text for span in request.prompt.spans), return_tensors="pt").input_ids
        out = plain.generate(ids, attention_mask=torch.ones_like(ids), max_new_tokens=8, do_sample=False)
        assert done[request.key].texts[0] == tokenizer.decode(out[0, ids.shape[1] :], skip_special_tokens=True)


def test_four_bit_weights_judge_nearly_like_whole_ones(tiny_model, tmp_path):
    pytest.importorskip("bitsandbytes")
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    torch.manual_seed(0)
    AutoModelForCausalLM.from_config(
        LlamaConfig(**COMMON | {"intermediate_size": 128}, vocab_size=len(tokenizer))
    ).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    request = Request(
        key="1", prompt=prompt_of("a big fox"), sampling=Sampling(max_tokens=2), candidates=("8 6\n", "fox\n", "a\n")
    )
    whole, small = (
        run(load_engine("transformers", EngineOptions(model=str(tmp_path), **options)), [request])["1"]
        for options in ({}, {"quantization": "4bit"})
    )
    # 4 bits change the numbers, but not beyond recognition
    assert small.candidate_logprobs != whole.candidate_logprobs
    assert small.candidate_logprobs == pytest.approx(whole.candidate_logprobs, abs=2.5)


def test_a_model_without_attention_is_refused(tiny_model, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    config = MambaConfig(vocab_size=len(tokenizer), hidden_size=32, num_hidden_layers=1, state_size=4)
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    with pytest.raises(ModelError, match="use --engine vllm"):
        load_engine("transformers", EngineOptions(model=str(tmp_path)))
