"""Several adapters on one base: each request is answered as by an engine with its adapter alone."""

import json
import shutil

import pytest
from safetensors.torch import load_file, save_file

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.errors import ModelError
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card, write_card
from judgelm.records import Request, Sampling
from tests.support.driving import run
from tests.support.tiny_judges import TEMPLATE, word_sample

CANDIDATES = ("8 6", "6 8", "10 1")


def load(model, adapter=None, **options):
    adapter = None if adapter is None else str(adapter)
    options = {"device": "cpu", "dtype": "float32"} | options
    return load_engine("transformers", EngineOptions(model=str(model), adapter=adapter, **options))


def requests_of(adapter=None, count=6):
    """Requests with candidates; their keys name the adapter."""
    template, name = get_template(TEMPLATE), None if adapter is None else str(adapter)
    return [
        Request(
            key=f"{seed} {name}",
            prompt=template.render(word_sample(seed), (0, 1), None),
            sampling=Sampling(max_tokens=3 + 4 * (seed % 3)),
            candidates=CANDIDATES if seed % 2 else (),
            adapter=name,
        )
        for seed in range(count)
    ]


def answers(engine, requests):
    """Texts and log-probabilities in the order of the requests."""
    completions = run(engine, requests)
    return [(completions[each.key].texts, completions[each.key].candidate_logprobs) for each in requests]


def same(found, expected):
    """Equal texts; log-probabilities equal but for rounding."""
    assert [texts for texts, _ in found] == [texts for texts, _ in expected]
    for (_, one), (_, other) in zip(found, expected, strict=True):
        assert (one is None) == (other is None)
        assert one is None or one == pytest.approx(other, abs=1e-4)


def mixed(*lists):
    """Requests of several judges, taken in turn."""
    return [request for group in zip(*lists, strict=True) for request in group]


@pytest.mark.parametrize("options", [{}, {"max_num_batched_tokens": 150}])
def test_mixed_requests_are_answered_as_by_each_adapter_alone(tiny_judge, tiny_adapters, options):
    names = (None, *tiny_adapters)
    found = answers(load(tiny_judge, **options), mixed(*(requests_of(name, 12) for name in names)))
    assert len(found) == 36
    for index, name in enumerate(names):
        same(found[index::3], answers(load(tiny_judge, name), requests_of(count=12)))
    texts = [[text for text, _ in found[index::3]] for index in range(3)]
    assert texts[0] != texts[1] != texts[2] != texts[0]


def test_an_adapter_is_unloaded_and_loaded_again_while_others_answer(tiny_judge, tiny_adapters):
    one, two = map(str, tiny_adapters)
    engine = load(tiny_judge)
    first = answers(engine, mixed(requests_of(one), requests_of(two)))
    engine.submit(requests_of(one))
    assert not engine.unload_adapter(one), "its requests are not answered yet"
    assert engine.unload_adapter(two)
    engine.abort([request.key for request in requests_of(one)])
    assert engine.unload_adapter(one)
    base = answers(engine, requests_of())
    same(base, answers(load(tiny_judge), requests_of()))
    engine.load_adapter(one)
    same(answers(engine, mixed(requests_of(one), requests_of(two))), first)


def test_other_weights_at_the_same_path_are_read_anew(tiny_judge, tiny_adapters, tmp_path):
    shutil.copytree(tiny_adapters[0], tmp_path / "adapter")
    engine = load(tiny_judge)
    before = answers(engine, requests_of(tmp_path / "adapter"))
    engine.unload_adapter(str(tmp_path / "adapter"))
    shutil.copytree(tiny_adapters[1], tmp_path / "adapter", dirs_exist_ok=True)
    after = answers(engine, requests_of(tmp_path / "adapter"))
    assert before != after
    assert after == answers(load(tiny_judge), requests_of(tiny_adapters[1]))


def test_ranks_and_scales_are_read_as_peft_reads_them(tiny_judge, tiny_adapters, tmp_path):
    shutil.copytree(tiny_adapters[0], tmp_path / "adapter")
    path = tmp_path / "adapter" / "adapter_config.json"
    config = json.loads(path.read_text())
    path.write_text(json.dumps(config | {"use_rslora": True, "alpha_pattern": {"q_proj": 3}}))
    found = answers(load(tiny_judge), requests_of(tmp_path / "adapter"))
    same(found, answers(load(tiny_judge, tmp_path / "adapter"), requests_of()))


def test_an_adapter_has_its_cards_window(tiny_judge, tiny_adapters, tmp_path):
    shutil.copytree(tiny_adapters[0], tmp_path / "adapter")
    template = get_template(TEMPLATE)
    write_card(tmp_path / "adapter", Card(template=template.id, template_sha=template.sha, window=24))
    engine = load(tiny_judge)
    [beside] = run(engine, requests_of(tiny_adapters[0], 1)).values()
    [limited] = run(engine, requests_of(tmp_path / "adapter", 1)).values()
    assert beside.prompt_tokens + beside.completion_tokens > 24
    assert limited.finish_reasons == ("too_long",) or limited.prompt_tokens + limited.completion_tokens <= 24


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"use_dora": True}, "only plain LoRA adapters can share a base"),
        ({"peft_type": "IA3"}, "only plain LoRA adapters can share a base"),
    ],
)
def test_other_adapters_are_refused(tiny_judge, tiny_adapters, tmp_path, change, message):
    shutil.copytree(tiny_adapters[0], tmp_path / "adapter")
    path = tmp_path / "adapter" / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | change))
    with pytest.raises(ModelError, match=message):
        load(tiny_judge).load_adapter(str(tmp_path / "adapter"))


@pytest.mark.parametrize(
    ("rename", "message"),
    [
        (("q_proj", "lm_head"), "adapters that share a base change linear layers inside the model"),
        (("q_proj", "x_proj"), "the model has no linear layer .*x_proj"),
        (("self_attn.q_proj", "mlp.gate_proj"), "made for a layer .*gate_proj of"),
        (("lora_A", "lora_embedding_A"), "serve it alone, with --adapter"),
    ],
)
def test_an_adapter_of_another_model_is_refused_and_changes_nothing(
    tiny_judge, tiny_adapters, tmp_path, rename, message
):
    shutil.copytree(tiny_adapters[0], tmp_path / "adapter")
    path = tmp_path / "adapter" / "adapter_model.safetensors"
    save_file({name.replace(*rename): weight for name, weight in load_file(path).items()}, path)
    if rename[1] == "lm_head":
        save_file({name.replace("self_attn.q_proj", "lm_head"): w for name, w in load_file(path).items()}, path)
    engine = load(tiny_judge)
    with pytest.raises(ModelError, match=message):
        engine.load_adapter(str(tmp_path / "adapter"))
    same(answers(engine, requests_of()), answers(load(tiny_judge), requests_of()))


def test_an_adapter_cannot_stand_on_another(tiny_judge, tiny_adapters):
    with pytest.raises(ModelError, match="is an adapter itself; load its base"):
        load(tiny_judge, tiny_adapters[0]).load_adapter(str(tiny_adapters[1]))
