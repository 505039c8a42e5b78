"""Shared prefixes do not change replies; memory and threads of passes."""

import os
import subprocess
import sys
import threading
from types import SimpleNamespace

import psutil
import pytest
import torch

from benchmarks.throughput.layer_products import needed_tokens
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.engines.memory import available_bytes
from judgelm.engines.transformers.pass_thread import PassThread
from judgelm.prompts.catalog import get_template
from judgelm.records import Prompt, Request, Sample, Sampling, Span
from tests.support.driving import run

QUESTION = "what does the quick brown fox do when the lazy dog sleeps in the sun all day " * 2


def requests_of(texts, **sampling):
    template = get_template("judgelm-compact")
    samples = [Sample(id=key, question=QUESTION, answers=answers) for key, answers in texts.items()]
    options = {"sampling": Sampling(max_tokens=6, **sampling), "candidates": ("8 6",)}
    return [Request(key=each.id, prompt=template.render(each, (0, 1), None), **options) for each in samples]


def shared(engine, requests):
    """Tokens that each later prompt shares with the first."""
    ids = [engine._adapters.truncator(None).truncate(request.prompt, 6).ids for request in requests]
    return [next(place for place, token in enumerate(other) if token != ids[0][place]) for other in ids[1:]]


def load(model, **options):
    return load_engine("transformers", EngineOptions(model=str(model), dtype="float32", **options))


@pytest.fixture
def engine(tiny_model):
    engine = load(tiny_model)
    yield engine
    engine.close()


def test_both_orders_share_the_question(engine, tiny_model):
    requests = requests_of({"given": ("a red fox", "some big dog"), "swapped": ("some big dog", "a red fox")})
    together = run(engine, requests)
    [prefix] = shared(engine, requests)
    assert engine.stats()["reused_prompt_tokens"] == prefix > 40
    for request in requests:
        alone, expected = run(load(tiny_model), [request])[request.key], together[request.key]
        assert (alone.texts, alone.prompt_tokens) == (expected.texts, expected.prompt_tokens)
        assert alone.candidate_logprobs == pytest.approx(expected.candidate_logprobs, abs=1e-4)


def test_prompts_of_one_pass_share_prefixes(engine, tiny_model):
    # the third prompt shares more with the second, which is new in the same pass
    requests = requests_of({"1": ("one", "fox"), "2": ("two " * 30, "fox"), "3": ("two " * 30, "dog")})
    together = run(engine, requests)
    chain = [shared(engine, requests[:2])[0], shared(engine, requests[1:])[0]]
    assert chain[0] < chain[1]
    assert engine.stats()["reused_prompt_tokens"] == sum(chain)
    [alone] = run(load(tiny_model), [requests[2]]).values()
    assert alone.candidate_logprobs == pytest.approx(together["3"].candidate_logprobs, abs=1e-4)


@pytest.mark.parametrize("answers", [2, 5])
def test_shared_prefixes_are_computed_about_once(tiny_model, answers):
    # 20 questions of half a prompt, over many passes: at most 1.1 times the tokens of perfect sharing
    engine = load(tiny_model, max_num_batched_tokens=1024)
    spans = [Span(f"question {question} {QUESTION}answer {answer} of {question} " + "some dog " * 8)
             for question in range(20) for answer in range(answers)]  # fmt: skip
    requests = [Request(key=str(place), prompt=Prompt(spans=(span,)), sampling=Sampling(max_tokens=1))
                for place, span in enumerate(spans)]  # fmt: skip
    tokens = sum(completion.prompt_tokens for completion in run(engine, requests).values())
    ids = [engine._adapters.truncator(None).truncate(request.prompt, 1).ids for request in requests]
    computed = tokens - engine.stats()["reused_prompt_tokens"]
    assert needed_tokens(ids) <= computed <= 1.1 * needed_tokens(ids)
    assert needed_tokens(ids) < 0.8 * tokens


def test_sampled_replies_do_not_depend_on_the_prefix_cache(engine):
    requests = requests_of({"a": ("a red fox", "some big dog")}, temperature=1.0, n=3, seed=5)
    first, again = run(engine, requests)["a"], run(engine, requests)["a"]
    assert engine.stats()["reused_prompt_tokens"] == first.prompt_tokens - 1
    assert first.texts == again.texts


V2 = ("memory.max", "memory.current", "memory.stat")
V1 = ("memory.limit_in_bytes", "memory.usage_in_bytes", "memory.stat")


@pytest.mark.parametrize(
    ("groups", "limits", "available"),
    [
        ("", {}, 4000),  # the machine decides
        ("0::/job\n", {"job": (V2, 3000, 2000, "inactive_file 0\n")}, 1000),
        ("0::/job\n", {"job": (V2, 3000, 2000, "anon 9\ninactive_file 1000\n")}, 2000),  # cached files count as free
        # the tightest of nested groups counts
        ("0::/slice/job\n", {"slice/job": (V2, "max", 5, ""), "slice": (V2, 1000, 24, "")}, 976),
        ("0::/\n", {"": (V2, 10, 12, "")}, 0),  # over its limit
        # the older kind; in a container only the mount itself is there
        ("9:name=systemd:/\n4:memory:/of/host\n0::/\n", {"memory": (V1, 100, 60, "total_inactive_file 7\n")}, 47),
    ],
)
def test_available_memory_respects_control_groups(tmp_path, monkeypatch, groups, limits, available):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=4000))
    files = {"proc/self/cgroup": groups} if groups else {}
    for group, (names, *values) in limits.items():
        files |= {f"sys/fs/cgroup/{group}/{name}": str(value) for name, value in zip(names, values, strict=True)}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert available_bytes(tmp_path) == available


def test_passes_move_to_another_thread_after_onednn_has_no_memory():
    # only the messages: if memory is really short, oneDNN sometimes ends the process
    def run_out(message):
        raise RuntimeError(message)

    thread = PassThread()
    for message in ("can't allocate memory", "could not create a primitive descriptor for a matmul"):
        with pytest.raises(RuntimeError, match=message):
            thread.run(run_out, message)
        assert thread.run(threading.get_ident) == threading.get_ident()
    with pytest.raises(RuntimeError, match="could not create a primitive"):
        thread.run(run_out, "could not create a primitive")
    assert thread.run(threading.get_ident) != threading.get_ident()
    assert thread.run(torch.is_inference_mode_enabled)


def test_single_request_is_retried_in_the_other_thread():
    def run_out():
        threads.append(threading.get_ident())
        if len(threads) == 1:
            raise RuntimeError("could not create a primitive")
        return "done"

    threads: list[int] = []
    assert PassThread().run(run_out, alone=True) == "done"
    assert threads[0] == threading.get_ident() != threads[1]


COUNTED = """
import os, torch
from judgelm.engines.openmp import release_openmp_threads
def count():
    return len(os.listdir("/proc/self/task"))
release_openmp_threads()
before = count()
for _ in range(2):
    torch.ones(1 << 20).add(1)
    print(count() - before)
    release_openmp_threads()
    print(count() - before)
"""
WITHOUT_TORCH = (
    "import sys\nfrom judgelm.engines.openmp import *\nrelease_openmp_threads()\nprint('torch' in sys.modules)"
)


@pytest.mark.skipif(sys.platform != "linux", reason="GNU's OpenMP and /proc are Linux's")
@pytest.mark.parametrize(("code", "output"), [(COUNTED, ["1", "0", "1", "0"]), (WITHOUT_TORCH, ["False"])])
def test_released_threads_end_and_come_back(code, output):
    environment = os.environ | {"OMP_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "false"}  # two per thread
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, timeout=250)
    assert (done.stdout.split(), done.returncode) == (output, 0), done.stderr[-2000:]
