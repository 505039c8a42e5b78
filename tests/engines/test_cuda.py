"""The embedded engine on a CUDA device."""

import pytest
import torch

from driving import prompt_of, run
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.records import Request, Sampling


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_greedy_float32_replies_equal_the_cpus(tiny_model):
    requests = [
        Request(key=str(i), prompt=prompt_of("a big fox jumps " * (i % 7 + 1)), sampling=Sampling(max_tokens=8))
        for i in range(40)
    ]
    on_cpu, on_cuda = (
        run(load_engine("transformers", EngineOptions(model=str(tiny_model), device=device)), requests)
        for device in ("cpu", "cuda")
    )
    assert {key: one.texts for key, one in on_cuda.items()} == {key: one.texts for key, one in on_cpu.items()}
