"""Images in vLLM, in a separate process. Its CPU build has no torchvision, which LLaVA needs and Idefics 3 does not."""

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.records import Prompt, Request, Sampling, Span
from tests.support.driving import run
from tests.support.tiny_vision import make_idefics, write_image

TEXTS = ["what is the capital of france paris london a big red fox 1 2 3 4 5 6 7 8 9 10"] * 20
IN_A_PROCESS = """
import json, sys
from tests.engines.vllm.test_images import judged
print(json.dumps(judged("vllm", sys.argv[1], json.loads(sys.argv[2]))))
"""


def requests_of(pictures):
    def request(key, images):
        spans = (Span("a big fox "), *(Span(image, "image") for image in images), Span("what is " * key, "question"))
        return Request(key=str(key), prompt=Prompt(spans=spans), sampling=Sampling(max_tokens=6), candidates=("1", "3"))

    return [request(1, pictures[:1]), request(2, []), request(3, pictures[1:]), request(4, pictures[:1])]


def judged(name, judge, pictures):
    """Texts and the first candidates' log-probabilities, by key."""
    arguments = {"kv_cache_memory_bytes": 1 << 28} if name == "vllm" else {}
    engine = load_engine(name, EngineOptions(model=str(judge), dtype="float32", engine_args=arguments))
    assert engine.supports_images
    completions = run(engine, requests_of(pictures))
    engine.close()
    return {key: [completion.texts[0], max(completion.candidate_logprobs)] for key, completion in completions.items()}


@pytest.mark.slow
def test_vllm_equals_transformers(tmp_path):
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vllm is not installed: `make test` installs it")
    judge = make_idefics(tmp_path / "judge", TEXTS)
    pictures = [str(write_image(tmp_path / f"{number}.png", number)) for number in range(3)]
    command = [sys.executable, "-c", IN_A_PROCESS, str(judge), json.dumps(pictures)]
    done = subprocess.run(
        command, env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}, capture_output=True, text=True,
        timeout=500, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    by_vllm = json.loads(done.stdout.strip().splitlines()[-1])
    by_transformers = judged("transformers", judge, pictures)
    for key, (text, logprob) in by_transformers.items():
        assert by_vllm[key] == [text, pytest.approx(logprob, abs=1e-3)]
