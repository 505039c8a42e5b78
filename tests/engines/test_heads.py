"""States of layers, and heads on them."""

from dataclasses import replace

import numpy as np
import pytest

from judgelm.engines.base import EngineOptions, HeadFile
from judgelm.engines.catalog import load_engine
from judgelm.engines.heads import write_head
from judgelm.errors import EngineError, ModelError
from judgelm.records import Request, Sampling
from tests.support.driving import prompt_of, run

ANSWERS = ("a big fox", "a dog", "a big fox " * 5, "the dog is big")


def requests(**options):
    sampling = Sampling(max_tokens=1)
    return [Request(key=answer, prompt=prompt_of(answer), sampling=sampling, **options) for answer in ANSWERS]


def load(model, **options):
    return load_engine("transformers", EngineOptions(model=str(model), dtype="float32", **options))


@pytest.fixture(scope="module")
def states(tiny_model):
    """The states after each layer, by prompt; with candidates, and next to requests without states."""
    engine = load(tiny_model)
    done = run(engine, [*requests(states=(1, 2), candidates=("1", "10"))])
    engine.close()
    return {key: completion.states for key, completion in done.items()}


@pytest.fixture(scope="module")
def weights(states):
    return np.random.default_rng(0).normal(size=states["a dog"].shape[1]).astype(np.float32)


@pytest.fixture(scope="module")
def head(weights, tmp_path_factory):
    path = tmp_path_factory.mktemp("head") / "head.safetensors"
    write_head(path, weights)
    return HeadFile(path=str(path), layer=1)


def test_the_last_state_is_the_input_of_the_output_layer(tiny_model, states):
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    layers = model.config.num_hidden_layers
    assert layers == 2
    assert {value.shape for value in states.values()} == {(2, model.config.hidden_size)}
    assert not np.allclose(states["a dog"][0], states["a dog"][1])


@pytest.mark.parametrize("layer", [1, 2])
def test_a_model_with_fewer_layers_gives_the_same_reward(tiny_model, states, weights, head, layer):
    for whole in (False, True):
        engine = load(tiny_model, head=replace(head, layer=layer, whole=whole))
        done = run(engine, requests(reward=True, candidates=("1",) if whole else ()))
        engine.close()
        for key, completion in done.items():
            assert completion.reward == pytest.approx(float(states[key][layer - 1] @ weights), abs=1e-4), (key, whole)
            assert (completion.candidate_logprobs is not None) == whole


def test_a_head_that_does_not_fit_the_model_is_refused(tiny_model, head, tmp_path):
    with pytest.raises(ModelError, match="layer 9, but the model has 2"):
        load(tiny_model, head=replace(head, layer=9))
    for weights, finding in ((np.zeros(5), "5 weights"), (np.full(64, np.nan), "NaN|weights")):
        write_head(tmp_path / "head.safetensors", weights)
        with pytest.raises(ModelError, match=finding):
            load(tiny_model, head=replace(head, path=str(tmp_path / "head.safetensors")))
    with pytest.raises(ModelError, match="cannot load the head"):
        load(tiny_model, head=replace(head, path=str(tmp_path / "missing.safetensors")))


def test_states_of_layers_that_do_not_exist_are_refused(tiny_model):
    engine = load(tiny_model)
    with pytest.raises(EngineError, match="layer 3"):
        engine.submit(requests(states=(3,)))
    engine.close()
