"""Adapters that cannot be put on."""

import json

import pytest

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.errors import ModelError


def load(model, adapter):
    return load_engine("transformers", EngineOptions(model=str(model), adapter=str(adapter)))


def test_a_pickled_adapter_is_refused(tiny_model, tmp_path):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))
    (tmp_path / "adapter_model.bin").write_bytes(b"pickle")
    with pytest.raises(ModelError, match="pickled adapters are never loaded"):
        load(tiny_model, tmp_path)


def test_a_torn_adapter_is_named(tiny_model, tmp_path):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "target_modules": ["q_proj"]}))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"torn")
    with pytest.raises(ModelError, match="cannot load the adapter"):
        load(tiny_model, tmp_path)


def test_an_adapter_that_names_no_base_says_what_to_pass(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="pass the base as --model and this folder as --adapter"):
        load_engine("transformers", EngineOptions(model=str(tmp_path)))
    (tmp_path / "adapter_config.json").write_text("{torn")
    with pytest.raises(ModelError, match="not JSON"):
        load_engine("transformers", EngineOptions(model=str(tmp_path)))
