"""Reward models on vLLM's pooling runner, against the transformers engine."""

import importlib.util

import pytest

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.errors import ConfigError, EngineError
from judgelm.records import Request, Sampling
from tests.support.driving import prompt_of, reward_requests, run

pytestmark = pytest.mark.slow  # vLLM runs once in a process, and the default tier's writes text
if importlib.util.find_spec("vllm") is None:
    pytest.skip("vllm is not installed: `make test` installs it", allow_module_level=True)

ANSWERS = ("paris", "a big red fox jumps over lazy dogs", "london " * 40)


def test_rewards_equal_transformers(tiny_reward_model):
    options = EngineOptions(model=str(tiny_reward_model), dtype="float32")
    expected = run(load_engine("transformers", options), reward_requests(*ANSWERS))
    arguments = {"kv_cache_memory_bytes": 1 << 28, "enforce_eager": True}
    engine = load_engine("vllm", EngineOptions(model=options.model, dtype="float32", engine_args=arguments))
    try:
        completions = run(engine, reward_requests(*ANSWERS))
        for key, completion in expected.items():
            assert completions[key].reward == pytest.approx(completion.reward, abs=1e-3)
            assert completions[key].prompt_tokens == completion.prompt_tokens
        assert engine.describe()["head"] == "reward"
        with pytest.raises(EngineError, match=r"requires a reply, .* only returns rewards"):
            engine.submit([Request(key="1", prompt=prompt_of("paris"), sampling=Sampling(max_tokens=1))])
    finally:
        engine.close()


def test_adapter_is_rejected(tiny_reward_model):
    with pytest.raises(ConfigError, match=r"vLLM does not support reward adapters; merge .*train/merge_lora.py"):
        load_engine("vllm", EngineOptions(model=str(tiny_reward_model), adapters=("x/y",)))
