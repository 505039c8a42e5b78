"""The vLLM engine, against the transformers engine."""

import json
import shutil
from dataclasses import replace

import pytest
import torch
from safetensors.torch import load_file, save_file

from benchmarks.tiny_model import make_base
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.errors import ConfigError, EngineError, ModelError
from judgelm.prompts.catalog import get_template
from judgelm.records import Grammar, Request, Sample, Sampling
from tests.support.driving import run
from tests.support.tiny_judges import TEMPLATE, word_sample
from tests.support.vicuna_folders import Executed, pickle_weights

COUNT = 120
LINES = tuple(f"{first} {second}" for first in range(1, 11) for second in range(1, 11))


def requests_of(count=COUNT, *, first=0, candidates=(), adapter=None, **sampling):
    options = {"sampling": Sampling(**{"max_tokens": 24} | sampling), "candidates": candidates}
    options["adapter"] = None if adapter is None else str(adapter)
    prompts = {
        f"{i} {order}": get_template(TEMPLATE).render(word_sample(i), order, None)
        for i in range(first, first + count // 2)
        for order in ((0, 1), (1, 0))
    }
    return [Request(key=key, prompt=prompt, **options) for key, prompt in prompts.items()]


@pytest.fixture(scope="module")
def transformers_engine(tiny_judge):
    engine = load_engine("transformers", EngineOptions(model=str(tiny_judge)))
    yield engine
    engine.close()


def test_texts_equal_the_transformers_engine(vllm_engine, transformers_engine):
    # float32: everything must agree, tokens and truncations included
    expected, actual = run(transformers_engine, requests_of()), run(vllm_engine, requests_of())
    assert len(actual) == COUNT
    assert actual == expected
    assert len({completion.texts for completion in actual.values()}) > COUNT // 4, "too few different texts"


def test_probabilities_equal_the_transformers_engine(vllm_engine, transformers_engine, monkeypatch):
    monkeypatch.setattr(vllm_engine, "followed_mass", 1.0)
    requests = requests_of(stop=("\n",), candidates=LINES)
    expected, actual = run(transformers_engine, requests), run(vllm_engine, requests)
    for key, completion in expected.items():
        assert actual[key].texts == completion.texts
        assert actual[key].candidate_logprobs == pytest.approx(completion.candidate_logprobs, abs=1e-3)


def test_pruned_branches_have_at_most_1_percent(vllm_engine, transformers_engine):
    requests = requests_of(stop=("\n",), candidates=LINES)
    before = vllm_engine.stats()["branches"]
    expected, actual = run(transformers_engine, requests), run(vllm_engine, requests)
    followed = vllm_engine.stats()["branches"] - before
    inner_nodes = 21
    assert 0 < followed < COUNT * inner_nodes / 2
    for key, completion in expected.items():
        exact, pruned = (torch.tensor(result.candidate_logprobs).exp() for result in (completion, actual[key]))
        assert float((exact - pruned).clamp(min=0).sum()) <= 0.0101
        assert torch.allclose(exact[pruned > 0], pruned[pruned > 0], atol=1e-4)


def test_resolved_arguments_and_note(vllm_engine):
    settled = vllm_engine.describe()["engine_args"]
    assert (settled["max_num_batched_tokens"], settled["max_num_seqs"], settled["block_size"]) == (4096, 256, 32)
    assert (settled["enable_chunked_prefill"], settled["enable_prefix_caching"]) == (True, True)
    [note] = vllm_engine.stats()["notes"]  # no note on the dtype: this judge is small and float32
    assert note.startswith("vLLM: up to 4,096 prompt tokens per step on a CPU; ")


def test_adapters_run_together(vllm_engine, tiny_judge, tiny_adapters):
    names = {"none": None, "one": str(tiny_adapters[0]), "two": str(tiny_adapters[1])}
    requests = {name: requests_of(20, adapter=adapter) for name, adapter in names.items()}
    done = run(vllm_engine, [replace(each, key=f"{name} {each.key}") for name in names for each in requests[name]])
    for name, adapter in names.items():
        alone = run(load_engine("transformers", EngineOptions(model=str(tiny_judge), adapter=adapter)), requests_of(20))
        assert all(done[f"{name} {key}"].texts == completion.texts for key, completion in alone.items())
    assert done["one 0 (0, 1)"].texts != done["none 0 (0, 1)"].texts != done["two 0 (0, 1)"].texts


def test_grammar(vllm_engine):
    sample = Sample(id="1", question="paris", answers=("dogs", "because " * 30))
    sampling = Sampling(max_tokens=24, temperature=2.0, grammar=Grammar("regex", r"(10|[1-9]) (10|[1-9])"), seed=3, n=8)
    request = Request(key="1", prompt=get_template(TEMPLATE).render(sample, (0, 1), None), sampling=sampling)
    [completion] = run(vllm_engine, [request]).values()
    assert set(completion.finish_reasons) == {"stop"}
    assert all(text in LINES for text in completion.texts)


@pytest.mark.parametrize("limits", [{"top_k": 1}, {"top_p": 0.0}])
def test_a_single_likely_token_makes_samples_greedy(vllm_engine, limits):
    prompt = get_template(TEMPLATE).render(Sample(id="1", question="paris", answers=("dogs", "fox")), (0, 1), None)
    greedy = Request(key="greedy", prompt=prompt, sampling=Sampling(max_tokens=6))
    drawn = Request(key="drawn", prompt=prompt, sampling=Sampling(max_tokens=6, temperature=1.5, n=3, **limits))
    completions = run(vllm_engine, [greedy, drawn])
    assert set(completions["drawn"].texts) == set(completions["greedy"].texts)


def test_the_second_order_and_the_reason_reuse_the_prefix(vllm_engine):
    shared = "because it can see the big red fox " * 8
    samples = [Sample(id=str(i), question=shared, answers=(f"fox {i}", "dogs")) for i in range(8)]
    prompts = {sample.id: get_template(TEMPLATE).render(sample, (0, 1), None) for sample in samples}
    requests = [Request(key=key, prompt=each, sampling=Sampling(max_tokens=2)) for key, each in prompts.items()]
    before = vllm_engine.stats()
    run(vllm_engine, requests)
    after = vllm_engine.stats()
    read = after["prompt_tokens"] - before["prompt_tokens"]
    assert after["cached_prompt_tokens"] - before["cached_prompt_tokens"] > 0.5 * read


def test_aborted_branches_never_come_back(vllm_engine):
    requests = requests_of(12, candidates=LINES)
    vllm_engine.submit(requests)
    vllm_engine.collect(0.001)
    vllm_engine.abort([request.key for request in requests])
    assert all(not vllm_engine.collect(0.01) for _ in range(20))
    assert len(run(vllm_engine, requests)) == 12


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"engine_args": {"tensor_paralel_size": 2}}, "similar: tensor_parallel_size"),
        ({"engine_args": {"dtype": "float16"}}, "use --dtype instead"),
        ({"quantization": "8bit"}, r"use --engine transformers, FP8 .*quantization=fp8_per_tensor"),
    ],
)
def test_unknown_options_are_rejected(vllm_engine, tiny_judge, arguments, words):
    with pytest.raises((ConfigError, ModelError), match=words):
        load_engine("vllm", EngineOptions(model=str(tiny_judge), **arguments))


def test_unsupported_or_unsafe_models_are_rejected(vllm_engine, tiny_judge, tmp_path):
    def refused(folder, words):
        with pytest.raises(ModelError, match=words):
            load_engine("vllm", EngineOptions(model=str(folder)))

    make_base(["a b"] * 20, tmp_path / "a", hidden_size=64, layers=1, heads=4, vocab_size=400, max_positions=64, seed=0)
    refused(tmp_path / "a", r"head size is 16, .*supports 32, 64.*--engine transformers")
    bare = shutil.copytree(tiny_judge, tmp_path / "bare", ignore=shutil.ignore_patterns("*.safetensors"))
    refused(bare, r"no weights \(\*\.safetensors or .*\.bin\)")
    torch.save({"weight": Executed(tmp_path / "executed")}, bare / "pytorch_model.bin")
    refused(bare, r"pytorch_model\.bin: .*pickle would call")


def test_pickled_adapter_equals_safetensors(vllm_engine, tiny_adapters, tmp_path):
    pickled = pickle_weights(tiny_adapters[0], tmp_path / "adapter")
    expected, actual = (run(vllm_engine, requests_of(20, adapter=adapter)) for adapter in (tiny_adapters[0], pickled))
    assert actual == expected
    assert actual != run(vllm_engine, requests_of(20))


def test_invalid_adapter_is_rejected(vllm_engine, tmp_path):
    [request] = requests_of(2, adapter=tmp_path)[:1]
    with pytest.raises((EngineError, ModelError), match=r"adapter_model\.safetensors"):
        vllm_engine.submit([request])
    (tmp_path / "adapter_config.json").write_text(json.dumps({"r": 1000, "peft_type": "LORA"}))
    (tmp_path / "adapter_model.safetensors").write_bytes(b"torn")
    with pytest.raises(EngineError, match="cannot load the adapter"):
        vllm_engine.submit([request])


def test_one_engine_in_a_process(vllm_engine, tiny_judge):
    with pytest.raises(EngineError, match="close the other engine first"):
        load_engine("vllm", EngineOptions(model=str(tiny_judge)))


@pytest.mark.slow
def test_sampled_replies_do_not_depend_on_how_prompts_are_split_over_steps(vllm_engine):
    # 160 new prompts of some 31 tokens exceed the 4,096 of a step, so that at least one is computed in two parts
    requests = requests_of(160, first=1000, temperature=1.0, seed=7)
    before = vllm_engine.stats()
    together = run(vllm_engine, requests)
    after = vllm_engine.stats()
    computed = {name: after[name] - before[name] for name in ("prompt_tokens", "cached_prompt_tokens")}
    assert computed["prompt_tokens"] - computed["cached_prompt_tokens"] > 4096
    assert together == {request.key: run(vllm_engine, [request])[request.key] for request in requests}
    assert len({completion.texts for completion in together.values()}) > 10


def test_adapters_with_nan_or_another_vocabulary_are_rejected(vllm_engine, tiny_adapters, tmp_path):
    weights = load_file(tiny_adapters[0] / "adapter_model.safetensors")
    name = next(iter(weights))
    not_finite = {name: torch.full_like(weights[name], float("nan"))}
    resized = {"base_model.model.model.embed_tokens.weight": torch.zeros(408, 64)}
    for kind, change, finding in (
        ("nan", not_finite, f"{name} contains NaN or infinity"),
        ("resized", resized, "embed_tokens has 408 tokens, but the base has "),
    ):
        folder = shutil.copytree(tiny_adapters[0], tmp_path / kind)
        save_file(weights | change, folder / "adapter_model.safetensors", metadata={"format": "pt"})
        with pytest.raises((EngineError, ModelError), match=finding):
            vllm_engine.load_adapter(str(folder))


def test_weights_are_checked_in_vllms_workers(vllm_engine):
    assert vllm_engine._live_backend.call_workers("first_weight_not_finite") == [None]
