"""Speeds that were measured decide what `auto` takes, on this machine and with this judge only."""

import os
from dataclasses import replace

import pytest
import torch

from judgelm.engines import catalog, dtype
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import choose_engine, resolve_options
from judgelm.engines.model_cache import CACHE_VARIABLE, MeasuredSpeed, read_speeds, write_speeds
from judgelm.package import install_hint
from judgelm.training.tiny_model import make_base

FLOAT32 = MeasuredSpeed(engine="transformers", dtype="float32", quantization=None, prompt_tokens_per_s=3.0)
FAST_FLOAT32 = replace(FLOAT32, prompt_tokens_per_s=18.0)
BFLOAT16 = replace(FLOAT32, dtype="bfloat16", prompt_tokens_per_s=9.0)
INT8 = replace(FLOAT32, quantization="int8", prompt_tokens_per_s=90.0)
VLLM = replace(BFLOAT16, engine="vllm", prompt_tokens_per_s=18.0)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path, monkeypatch):
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bfloat16")
    sizes = {"hidden_size": 64, "layers": 1, "heads": 2, "vocab_size": 300, "max_positions": 128, "seed": 0}
    make_base(["a b a b"], folder, **sizes, dtype=torch.bfloat16)
    return str(folder)


def test_speeds_are_read_for_the_judge_and_machine_that_they_were_measured_with(model, monkeypatch):
    path = write_speeds(model, None, [FLOAT32, BFLOAT16])
    assert read_speeds(model, None) == [FLOAT32, BFLOAT16]
    assert read_speeds(os.path.relpath(model), None) == [FLOAT32, BFLOAT16]
    assert read_speeds(model, "adapter") == []
    assert read_speeds("owner/name", None) == []
    with monkeypatch.context() as other:
        other.setenv("OMP_NUM_THREADS", "64")
        assert read_speeds(model, None) == []
    path.write_text("{")
    assert read_speeds(model, None) == []


@pytest.mark.parametrize(
    ("speeds", "taken", "ratio"),
    [
        ([FLOAT32, BFLOAT16], "bfloat16", "3.0x"),
        ([replace(FLOAT32, prompt_tokens_per_s=18.0), BFLOAT16], "float32", "2.0x"),
    ],
)
def test_dtype_auto_takes_the_format_that_was_measured_to_be_faster(model, speeds, taken, ratio, monkeypatch):
    monkeypatch.setattr(dtype, "measure_products", lambda config: pytest.fail("the judge was measured itself"))
    write_speeds(model, None, [*speeds, INT8])
    resolved, note = resolve_options("transformers", EngineOptions(model=model, device="cpu"))
    assert resolved.dtype == taken
    assert f"({ratio} the speed of" in note


def test_a_format_that_was_not_measured_is_estimated_as_before(model):
    write_speeds(model, None, [BFLOAT16])
    _, note = resolve_options("transformers", EngineOptions(model=model, device="cpu"))
    assert "on this machine, measured" not in note


def test_measured_float32_is_taken_only_where_it_fits(model, monkeypatch):
    write_speeds(model, None, [FAST_FLOAT32, BFLOAT16])
    monkeypatch.setattr(dtype, "available_bytes", lambda: 1000)
    resolved, _ = resolve_options("transformers", EngineOptions(model=model, device="cpu"))
    assert resolved.dtype == "bfloat16"


def test_engine_auto_takes_the_engine_that_was_measured_to_be_faster(model, monkeypatch):
    monkeypatch.setattr(catalog.importlib.util, "find_spec", lambda name: object())  # vLLM is installed
    write_speeds(model, None, [FLOAT32, BFLOAT16, INT8])
    assert "measured" not in choose_engine(model)[1]
    write_speeds(model, None, [FLOAT32, BFLOAT16, INT8, VLLM])
    assert choose_engine(model) == ("vllm", "measured at 2.00x the speed of transformers on this machine")
    write_speeds(model, None, [BFLOAT16, replace(VLLM, prompt_tokens_per_s=6.0)])
    assert choose_engine(model) == ("transformers", "measured at 1.50x the speed of vllm on this machine")


@pytest.mark.parametrize(("devices", "advised"), [(0, False), (1, True), (8, True)])
def test_without_vllm_a_gpu_gets_the_command_that_installs_it(model, monkeypatch, devices, advised):
    monkeypatch.setattr(catalog.importlib.util, "find_spec", lambda name: None)  # vLLM is not installed
    monkeypatch.setattr("torch.cuda.is_available", lambda: devices > 0)
    monkeypatch.setattr("torch.cuda.device_count", lambda: devices)
    engine, why = choose_engine(model)
    assert engine == "transformers"
    assert (install_hint("vllm") in why) is advised
    assert "vllm is not installed" in why
    # Ray workers choose for themselves, and the driver prints their note
    assert (why in resolve_options("auto", EngineOptions(model=model, device="cpu"))[1]) is advised
    assert install_hint("vllm") not in resolve_options("transformers", EngineOptions(model=model, device="cpu"))[1]
