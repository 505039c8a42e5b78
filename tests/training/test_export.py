"""What `train/sft.py` and `train/merge_lora.py` write loads in both engines and gives the same scores there."""

import importlib.util

import pytest


@pytest.mark.distributed  # there, no other test's vLLM runs in this process, which can hold only one
@pytest.mark.parametrize("kind", ["whole", "merged"])
def test_a_trained_judge_gives_the_same_scores_in_both_engines(request, judged, kind):
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vllm is not installed: `make test` installs it")
    folder = request.getfixturevalue("whole_judge") if kind == "whole" else request.getfixturevalue("lora")[1]
    small = {"kv_cache_memory_bytes": 1 << 27, "enforce_eager": True}
    there, _ = judged(folder, distribution=False)
    here, _ = judged(folder, distribution=False, engine="vllm", engine_args=small)
    assert here == there  # 30 pairs in both orders, float32
    assert len(set(here)) > 10, "the scores say nothing"
