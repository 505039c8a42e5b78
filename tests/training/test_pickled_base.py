"""The recipes on a base as Vicuna is published: pickled shards, `tokenizer.model` alone, old configs."""

import math
import shutil
import sys
from pathlib import Path

import pytest
import torch
import yaml
from peft import AutoPeftModelForCausalLM
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig
from trl import ModelConfig

from judgelm.judge import Judge
from judgelm.prompts.judge_card import find_card
from judgelm.training.dpo import DPOArguments, JudgeDPOConfig
from judgelm.training.run import parse_arguments
from tests.support import recipe_runs
from tests.support.tiny_judges import reply_of, word_sample
from tests.support.vicuna_folders import Executed, pickle_weights

CONFIGS = recipe_runs.ROOT / "configs/train"
ON_THE_CPU = ("--use_cpu", "true", "--tf32", "false")


def labelled_rows(*, preferences=False):
    """Forty labelled pairs, or the same with a chosen and a rejected judgment of each."""
    for sample in (word_sample(f"pickled {number}") for number in range(40)):
        line, _, reason = reply_of(sample).partition("\n")
        labels = {"scores": [int(score) for score in line.split()], "reason": reason}
        judgments = {"chosen": f"{line}\n{reason}", "rejected": f"5 4\n{reason}"}
        row = {"question": sample.question, "answer_1": sample.answers[0], "answer_2": sample.answers[1]}
        yield row | (judgments if preferences else labels)


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return recipe_runs.write_rows(tmp_path_factory.mktemp("rows") / "rows.jsonl", labelled_rows())


def flags(base, rows, out):
    return ("--model_name_or_path", str(base), "--train_data", str(rows), "--output_dir", str(out), *ON_THE_CPU)


@pytest.fixture(scope="module")
def trained(vicuna, rows, tmp_path_factory):
    """The 7B recipe's judge with only the base, the data, the output and what a CPU needs overridden."""
    out = tmp_path_factory.mktemp("runs") / "judge"
    assert recipe_runs.run_here(CONFIGS / "judgelm_7b.yaml", *flags(vicuna, rows, out)) is None
    return out


def test_the_7b_recipe_trains_its_global_batch_on_one_process(trained):
    card = find_card(str(trained))
    # 40 rows x 3 epochs are less than one step of 128
    assert (card.training["global_batch"], card.training["steps"], card.window) == (128, 1, 2048)
    assert card.template == "judgelm-v1"


def test_the_trained_judge_has_the_bases_token_ids_and_judges(trained, vicuna):
    texts = [f"{word_sample(seed).question}\n{reply_of(word_sample(seed))} naïve 🙂" for seed in range(20)]
    base, judge = AutoTokenizer.from_pretrained(vicuna), AutoTokenizer.from_pretrained(trained)
    assert judge(texts)["input_ids"] == base(texts)["input_ids"]
    with Judge(str(trained), engine="transformers") as loaded:
        judgment = loaded.compare("what is paris", "a big capital", "red")
    assert all(shown.text for shown in judgment.shown)


def test_the_bases_sampling_settings_do_not_forbid_to_save(trained, vicuna):
    assert GenerationConfig.from_pretrained(vicuna).temperature == 0.9  # without do_sample, as in vicuna-7b-v1.5
    saved = GenerationConfig.from_pretrained(trained)
    assert (saved.temperature, saved.bos_token_id, saved.eos_token_id, saved.pad_token_id) == (None, 1, 2, 0)


@pytest.mark.parametrize("recipe", ["judgelm_7b_lora", "judgelm_7b_qlora"])
def test_an_adapter_on_it_is_trained_and_merged_pickled_or_not(vicuna, rows, tmp_path, recipe):
    out = tmp_path / "adapter"
    more = ("--global_batch", "8", "--max_steps", "2", "--learning_rate", "0.05", "--warmup_steps", "0")
    assert recipe_runs.run_here(CONFIGS / f"{recipe}.yaml", *flags(vicuna, rows, out), *more) is None
    pickled = pickle_weights(out, tmp_path / "pickled")
    assert recipe_runs.merge_here(pickled, tmp_path / "judge", "--dtype", "float32") is None
    ids = torch.arange(5, 45)[None]
    base = AutoModelForCausalLM.from_pretrained(vicuna, dtype=torch.float32)
    beside = AutoPeftModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "judge")
    with torch.inference_mode():
        torch.testing.assert_close(merged(ids).logits, beside(ids).logits, atol=1e-4, rtol=0)
        assert (merged(ids).logits - base(ids).logits).abs().max() > 1e-3


def test_preference_tuning_begins_from_a_pickled_judge(trained, tmp_path, monkeypatch):
    judge = pickle_weights(trained, tmp_path / "judge")
    rows = recipe_runs.write_rows(tmp_path / "rows.jsonl", labelled_rows(preferences=True))
    recipe = yaml.safe_load((CONFIGS / "judgelm_7b_dpo.yaml").read_text())
    del recipe["judgments"]  # rows bring their own
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump(recipe | {"global_batch": 8, "max_steps": 1, "logging_steps": 1}))
    monkeypatch.setattr(sys, "argv", ["dpo.py", "--config", str(config), *flags(judge, rows, tmp_path / "out")])
    trainer = recipe_runs.build("dpo", *parse_arguments(DPOArguments, JudgeDPOConfig, ModelConfig))
    trainer.train()
    # judge and reference are one at the first step: the loss is ln 2
    assert trainer.state.log_history[0]["loss"] == pytest.approx(math.log(2), abs=1e-3)


def test_a_harmful_base_is_refused_before_rows_are_made(vicuna, rows, tmp_path):
    base = Path(shutil.copytree(vicuna, tmp_path / "base"))
    [shard, _] = sorted(base.glob("pytorch_model-*.bin"))
    torch.save(torch.load(shard, weights_only=True) | {"extra": Executed(tmp_path / "executed")}, shard)
    error = recipe_runs.run_here(CONFIGS / "judgelm_7b.yaml", *flags(base, rows, tmp_path / "out"))
    assert f"{shard}: reading this pickle would call" in error
    assert not any((tmp_path / name).exists() for name in ("executed", "out"))


def test_unsafe_loading_cannot_be_asked_for(vicuna, rows, tmp_path):
    unsafe = {"model_name_or_path": str(vicuna), "train_data": [rows], "model_init_kwargs": {"weights_only": False}}
    end = recipe_runs.run_here(recipe_runs.configure(tmp_path, **unsafe))
    assert "weights_only: false allows code" in end
