"""LoRA: `train/merge_lora.py` makes a judge with the same scores."""

import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.errors import ModelError
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card, find_card, write_card
from judgelm.records import Request, Sampling
from tests.support.driving import run
from tests.support.recipe_runs import merge_here
from tests.support.tiny_judges import TEMPLATE, make_adapter, word_sample

LINES = tuple(f"{first} {second}\n" for first in range(1, 11) for second in range(1, 11))
SHA = get_template(TEMPLATE).sha


@pytest.fixture
def merge(capsys):
    """Run the recipe in this process; what it printed, or the sentence it ended with."""

    def run(*arguments):
        return merge_here(*arguments) or "".join(capsys.readouterr())

    return run


@pytest.fixture(scope="module")
def adapter(tiny_model, tmp_path_factory):
    """What training with QLoRA leaves: adapter, card, and the base's name in the adapter."""
    folder = make_adapter(tiny_model, tmp_path_factory.mktemp("lora") / "adapter", seed=1)
    facts = {"base_model": "owner/base", "quantization": "4bit", "lora": {"r": 4, "alpha": 16}}
    write_card(folder, Card(template=TEMPLATE, template_sha=SHA, window=300, training=facts))
    return folder


@pytest.fixture
def copy(adapter, tmp_path):
    """A copy of the adapter, for a test to spoil."""
    return Path(shutil.copytree(adapter, tmp_path / "copy"))


def score_lines(model, **options):
    """The log-probability of every score line for some prompts, and the greedy replies, in float32."""
    engine = load_engine("transformers", EngineOptions(model=str(model), dtype="float32", device="cpu", **options))
    prompts = [get_template(TEMPLATE).render(word_sample(seed), (0, 1), None) for seed in range(4)]
    sampling = Sampling(max_tokens=6)
    requests = [Request(key=str(n), prompt=each, sampling=sampling, candidates=LINES) for n, each in enumerate(prompts)]
    done = run(engine, requests)
    engine.close()
    ordered = [done[request.key] for request in requests]
    return torch.tensor([reply.candidate_logprobs for reply in ordered]), [reply.texts[0] for reply in ordered]


def test_the_merged_judge_gives_the_scores_of_base_and_adapter(merge, adapter, tiny_model, tmp_path):
    out = tmp_path / "judge"
    assert "trained on a 4bit base" in merge(adapter, out, "--dtype", "float32")
    (merged, replies), (adapted, adapted_replies) = score_lines(out), score_lines(tiny_model, adapter=str(adapter))
    torch.testing.assert_close(merged, adapted, atol=1e-4, rtol=0)
    assert replies == adapted_replies
    assert (merged - score_lines(tiny_model)[0]).abs().max() > 0.1  # the adapter does change them
    card = find_card(str(out))
    assert (card.template, card.template_sha, card.window) == (TEMPLATE, SHA, 300)
    facts = card.training["merged"]
    assert (facts["adapter"], facts["base"], facts["dtype"]) == ("adapter", str(tiny_model), "float32")
    assert (card.training["base_model"], len(facts["adapter_sha"])) == ("owner/base", 64)
    assert "| merged: dtype | float32 |" in (out / "README.md").read_text()


def test_the_adapters_own_tokenizer_and_another_base_are_taken(merge, copy, tiny_model, tmp_path):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = "{{ messages[0].content }}"
    tokenizer.save_pretrained(copy)
    (copy / "judge.json").unlink()
    spoil(copy, base_model_name_or_path="nowhere/at-all")
    assert "has no judge.json" in merge(copy, tmp_path / "judge", "--base", tiny_model)
    assert not (tmp_path / "judge/judge.json").exists()
    assert AutoTokenizer.from_pretrained(tmp_path / "judge").chat_template == tokenizer.chat_template
    assert AutoModelForCausalLM.from_pretrained(tmp_path / "judge").dtype == torch.bfloat16  # by default


def spoil(folder, name="adapter_config.json", **changes):
    path = folder / name
    path.write_text(json.dumps(json.loads(path.read_text()) | changes))


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"peft_type": "PREFIX_TUNING"}, "PREFIX_TUNING for CAUSAL_LM cannot be merged"),
        ({"task_type": "TOKEN_CLS"}, "LORA for TOKEN_CLS cannot be merged"),
        ({"base_model_name_or_path": None}, "no base model in adapter_config.json; pass it with --base"),
        ({"base_model_name_or_path": "/no/such/base"}, "error: /no/such/base: cannot load the base"),
        ({"target_modules": ["c_attn"]}, "cannot load the adapter"),
    ],
)
def test_an_adapter_that_cannot_be_merged_is_refused(merge, copy, tmp_path, changes, sentence):
    spoil(copy, **changes)
    assert sentence in merge(copy, tmp_path / "judge")
    assert not (tmp_path / "judge").exists()


def test_a_folder_without_adapter_and_a_used_output_folder_are_refused(merge, adapter, tiny_model, tmp_path):
    assert "adapter_config.json not found" in merge(tiny_model, tmp_path / "judge")
    (tmp_path / "mine.txt").write_text("keep")
    assert "already exists; choose a different folder" in merge(adapter, tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]


def test_a_quantised_base_is_refused_with_the_way_out(merge, adapter, tiny_model, tmp_path):
    base = Path(shutil.copytree(tiny_model, tmp_path / "base"))
    spoil(base, "config.json", quantization_config={"quant_method": "bitsandbytes", "load_in_4bit": True})
    assert "the weights are quantised" in merge(adapter, tmp_path / "judge", "--base", base)


def test_weights_that_are_no_numbers_are_refused(merge, copy, tmp_path):
    weights = load_file(copy / "adapter_model.safetensors")
    first = next(iter(weights))
    weights[first] = torch.full_like(weights[first], float("nan"))
    save_file(weights, copy / "adapter_model.safetensors", metadata={"format": "pt"})
    assert f"{first} contains NaN or infinity" in merge(copy, tmp_path / "judge")
    assert not (tmp_path / "judge").exists()


def resized_adapter(base, folder, change, *, save=None):
    """An adapter of a base that has more or fewer tokens in training; its embeddings are trained too."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_pretrained(base)
    tokenizer = AutoTokenizer.from_pretrained(base)
    model.resize_token_embeddings(model.get_input_embeddings().weight.shape[0] + change)
    lora = LoraConfig(r=4, target_modules=["q_proj"], task_type="CAUSAL_LM", modules_to_save=save)
    adapted = get_peft_model(model, lora)
    for name, weight in adapted.named_parameters():
        if "lora_B" in name or "modules_to_save" in name:
            torch.nn.init.normal_(weight, std=0.1)
    adapted.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    spoil(folder, base_model_name_or_path=str(base))
    with torch.no_grad():
        return adapted(torch.arange(8)[None]).logits[0]


@pytest.mark.parametrize("save", [None, ["embed_tokens", "lm_head"]])
def test_a_base_is_resized_to_the_vocabulary_of_the_adapter(merge, tiny_model, tmp_path, save):
    logits = resized_adapter(tiny_model, tmp_path / "adapter", 8, save=save)
    assert "saved the judge in" in merge(tmp_path / "adapter", tmp_path / "judge", "--dtype", "float32")
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "judge", dtype=torch.float32)
    with torch.no_grad():
        assert torch.allclose(merged(torch.arange(8)[None]).logits[0], logits, atol=1e-4)
    # the engine resizes too; the head that was trained apart from the tied embeddings is kept
    (unmerged, texts), (whole, others) = score_lines(tmp_path / "adapter"), score_lines(tmp_path / "judge")
    assert torch.allclose(unmerged, whole, atol=1e-3)
    assert texts == others


@pytest.mark.parametrize(
    ("change", "dropped", "finding"),
    [
        (8, "lm_head", r"\(embed_tokens {new} tokens\) from its base \({old}\), .*lm_head"),
        (8, "embed_tokens", r"\(lm_head {new} tokens\) from its base \({old}\), .*embed_tokens"),
        (-8, "nothing", "tokenizer has {old} tokens, .*{new}"),
    ],
)
def test_a_vocabulary_that_cannot_be_restored_is_refused(merge, tiny_model, tmp_path, change, dropped, finding):
    old = AutoModelForCausalLM.from_pretrained(tiny_model).get_input_embeddings().weight.shape[0]
    resized_adapter(tiny_model, tmp_path / "adapter", change)
    weights = load_file(tmp_path / "adapter/adapter_model.safetensors")
    kept = {name: weight for name, weight in weights.items() if dropped not in name}
    save_file(kept, tmp_path / "adapter/adapter_model.safetensors", metadata={"format": "pt"})
    finding = finding.format(old=old, new=old + change)
    assert re.search(finding, merge(tmp_path / "adapter", tmp_path / "judge"))
    with pytest.raises(ModelError, match=finding):
        load_engine("transformers", EngineOptions(model=str(tmp_path / "adapter")))
