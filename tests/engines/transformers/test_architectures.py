"""The packed attention on other families than Llama: sliding windows, soft caps, learned positions, grouped heads."""

import pytest
import torch
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
from judgelm.records import Request, Sampling
from tests.support.driving import prompt_of, run

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
