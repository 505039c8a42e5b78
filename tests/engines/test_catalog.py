"""The engine of `auto`."""

import pytest

from judgelm.engines import catalog
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import choose_engine, resolve_options
from judgelm.package import install_hint


@pytest.fixture
def with_devices(monkeypatch):
    """Set the number of CUDA devices."""

    def set_devices(devices):
        monkeypatch.setattr("torch.cuda.is_available", lambda: devices > 0)
        monkeypatch.setattr("torch.cuda.device_count", lambda: devices)

    return set_devices


@pytest.mark.parametrize(("devices", "engine"), [(0, "transformers"), (1, "vllm"), (8, "vllm")])
def test_auto_uses_vllm_on_gpus(with_devices, monkeypatch, devices, engine):
    with_devices(devices)
    monkeypatch.setattr(catalog.importlib.util, "find_spec", lambda name: object())  # vLLM is installed
    assert choose_engine()[0] == engine


@pytest.mark.parametrize(("devices", "advised"), [(0, False), (1, True), (8, True)])
def test_missing_vllm_is_reported_on_gpus(with_devices, tiny_model, monkeypatch, devices, advised):
    with_devices(devices)
    monkeypatch.setattr(
        catalog.importlib.util, "find_spec", lambda name: None if name == "vllm" else object()
    )  # vLLM is not installed
    engine, why = choose_engine()
    assert engine == "transformers"
    assert (install_hint("vllm") in why) is advised
    assert "vllm is not installed" in why
    # Ray workers choose for themselves, and the driver prints their note
    options = EngineOptions(model=str(tiny_model), device="cpu")
    assert (why in resolve_options("auto", options)[1]) is advised
    assert install_hint("vllm") not in resolve_options("transformers", options)[1]
