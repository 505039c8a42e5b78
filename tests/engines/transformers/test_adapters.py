"""Adapters that cannot be put on."""

import json

import pytest

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.errors import ModelError
from judgelm.prompts.catalog import get_template
from judgelm.records import Request, Sampling
from tests.support.driving import run
from tests.support.tiny_judges import TEMPLATE, word_sample
from tests.support.vicuna_folders import Executed, pickle_weights


def load(model, adapter):
    return load_engine("transformers", EngineOptions(model=str(model), adapter=str(adapter)))


def replies(engine):
    template = get_template(TEMPLATE)
    requests = [
        Request(
            key=str(seed), prompt=template.render(word_sample(seed), (0, 1), None), sampling=Sampling(max_tokens=20)
        )
        for seed in range(6)
    ]
    return [completion.texts for _, completion in sorted(run(engine, requests).items())]


def test_a_pickled_adapter_is_loaded_as_its_safetensors_are(tiny_judge, tiny_adapters, tmp_path):
    pickled = pickle_weights(tiny_adapters[0], tmp_path / "adapter")
    assert not list(pickled.glob("*.safetensors"))
    assert replies(load(tiny_judge, pickled)) == replies(load(tiny_judge, tiny_adapters[0]))
    assert replies(load(tiny_judge, pickled)) != replies(load(tiny_judge, tiny_adapters[1]))


def test_a_pickled_adapter_that_runs_code_is_refused(tiny_judge, tiny_adapters, tmp_path):
    pickled = pickle_weights(tiny_adapters[0], tmp_path / "adapter", extra=Executed(tmp_path / "executed"))
    with pytest.raises(ModelError, match=r"adapter_model\.bin: refused, and nothing in it was executed"):
        load(tiny_judge, pickled)
    assert not (tmp_path / "executed").exists()


def test_an_adapter_without_weights_is_named(tiny_model, tmp_path):
    (tmp_path / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA"}))
    with pytest.raises(ModelError, match=r"no weights \(adapter_model\.safetensors or adapter_model\.bin\)"):
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
    with pytest.raises(ModelError, match="not an adapter's JSON"):
        load_engine("transformers", EngineOptions(model=str(tmp_path)))
