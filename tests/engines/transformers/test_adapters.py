"""Adapters that cannot be put on."""

import json

import pytest
from safetensors.torch import save_file

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.errors import ModelError
from judgelm.prompts.catalog import get_template
from judgelm.records import Request, Sampling
from tests.support.driving import run
from tests.support.tiny_judges import TEMPLATE, make_adapter, word_sample
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


def edit(folder, **values):
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


@pytest.mark.parametrize(
    ("break_it", "finding"),
    [
        (lambda folder: edit(folder, r=-1), "`r` should be a positive integer value"),
        (lambda folder: edit(folder, lora_alpha=float("nan")), r"adapter_config\.json: lora_alpha is NaN"),
        (lambda folder: edit(folder, lora_alpha="x"), "cannot load the adapter: "),
        (lambda folder: edit(folder, peft_type="NOPE"), "cannot load the adapter: 'NOPE'"),
        (lambda folder: edit(folder, target_modules="("), "cannot load the adapter: missing \\)"),
        (lambda folder: edit(folder, target_modules=["nope"]), "Target modules .* not found in the base model"),
        # PEFT leaves weights that are not in the file at random
        (lambda folder: save_file({}, folder / "adapter_model.safetensors"), "missing adapter keys"),
    ],
)
def test_a_damaged_adapter_is_named(tiny_model, tmp_path, break_it, finding):
    folder = make_adapter(tiny_model, tmp_path / "adapter", seed=1)
    break_it(folder)
    with pytest.raises(ModelError, match=finding):
        load(tiny_model, folder)


def test_an_adapter_that_names_no_base_says_what_to_pass(tmp_path):
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(ModelError, match="pass the base as --model and this folder as --adapter"):
        load_engine("transformers", EngineOptions(model=str(tmp_path)))
    (tmp_path / "adapter_config.json").write_text("{torn")
    with pytest.raises(ModelError, match="not an adapter's JSON"):
        load_engine("transformers", EngineOptions(model=str(tmp_path)))
