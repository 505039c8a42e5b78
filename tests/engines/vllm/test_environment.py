"""The stages of vLLM's start, out of its log: vLLM's own messages (0.32), without vLLM."""

import logging

import pytest

from judgelm.engines.vllm import START_LOG, logged_stages

VLLM = logging.getLogger("vllm.v1.worker")
MESSAGES = (
    ("Initializing a V1 LLM engine (v%s) with config: %s", "0.32.0", "..."),
    ("Starting to load model %s...", "my-judge"),
    ("Loading weights took %.2f seconds", 12.3),
    ("Loading weights took %.2f seconds", 0.2),  # of a second part, such as a drafter
    ("%s KV cache size: %s tokens, Maximum concurrency for %s tokens per request: %.2fx", "GPU", "87,168", "2,048", 42),
    ("Graph capturing finished in %.0f secs, took %.2f GiB", 8.0, 0.5),
)


@pytest.fixture
def vllm_at_error(monkeypatch):
    """vLLM's logger as `quiet_imports` leaves it; its level and handlers are the same afterwards."""
    parent = logging.getLogger("vllm")
    monkeypatch.setattr(parent, "level", logging.ERROR)
    parent.manager._clear_cache()
    handlers = list(parent.handlers)
    yield
    assert (parent.level, parent.handlers) == (logging.ERROR, handlers)
    parent.manager._clear_cache()


def start(processes=1):
    with logged_stages(processes):
        for template, *values in MESSAGES:
            VLLM.info(template, *values)


@pytest.mark.usefixtures("vllm_at_error")
def test_each_stage_of_the_start_is_a_line(caplog):
    with caplog.at_level(logging.INFO, START_LOG.name):
        start()
    lines = [record.getMessage().partition(" s: ") for record in caplog.records if record.name == START_LOG.name]
    assert {begin for begin, *_ in lines} == {"vLLM, 0"}
    assert [stage for *_, stage in lines] == [
        "loading weights",
        "weights are loaded; profiling memory",
        "GPU KV cache size: 87,168 tokens",
        "CUDA graphs are captured",
        "ready",
    ]


@pytest.mark.usefixtures("vllm_at_error")
def test_several_processes_begin_and_end(caplog):
    with caplog.at_level(logging.INFO, START_LOG.name), logged_stages(4):
        pass
    first, last = (record.getMessage() for record in caplog.records)
    assert "4 worker processes" in first
    assert last.endswith("ready")


@pytest.mark.usefixtures("vllm_at_error")
def test_a_start_that_fails_is_never_ready(caplog):
    with caplog.at_level(logging.INFO, START_LOG.name), pytest.raises(RuntimeError), logged_stages(1):
        raise RuntimeError
    assert not caplog.records
