"""`train/sft.py` and `judgelm train` as users run them: a base, a few steps, a judge with its card."""

import importlib.util
import json
import re
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from judgelm.data.training_questions import hashes_of_files, read_hashes
from judgelm.errors import CardError
from judgelm.judge import Judge
from judgelm.prompts.judge_card import find_card
from tests.support.in_process import exit_code
from tests.support.recipe_runs import LORA, ON_CPU, configure, finish, run_here, start, train, write_rows


@pytest.fixture(scope="module")
def trained(tiny_model, train_file, tmp_path_factory):
    """The judge's folder, and what was printed."""
    folder = tmp_path_factory.mktemp("trained")
    files = {"model_name_or_path": str(tiny_model), "train_data": [train_file], "save_strategy": "no"}
    config = configure(folder, **files, per_device_train_batch_size=16, gradient_accumulation_steps=1, max_steps=6)
    return folder / "out", finish(start(config, launcher=ON_CPU))


def test_it_says_what_became_of_the_data_and_writes_a_judge(trained):
    folder, output = trained
    assert "train: 96 rows" in output
    assert "steps: 6 of 16 rows (per device 16 x accumulation 1 x processes 1)" in output
    assert "attention: sdpa (not on a CUDA GPU); no padding" in output
    card = find_card(str(folder))
    assert (card.template, card.reference, card.step) == ("judgelm-compact", "both", 1)  # scores are integers
    assert (card.training["rows"], card.training["steps"]) == (96, 6)
    with Judge(str(folder)) as judge:
        judgment = judge.compare("What is 2 + 2?", "4", "5")
    assert judgment.verdict is not None or judgment.failure is not None


def test_a_data_file_that_is_not_there_ends_with_a_sentence(tiny_model, tmp_path):
    end = run_here(configure(tmp_path, model_name_or_path=str(tiny_model), train_data=["nowhere.jsonl"]))
    assert "error: nowhere.jsonl: no such file" in end


def test_processes_that_would_each_train_alone_are_stopped(files, tmp_path, monkeypatch):
    # as accelerate leaves it where the training config does not say use_cpu: started as two, connected as one
    monkeypatch.setenv("WORLD_SIZE", "2")
    error = run_here(configure(tmp_path, **files, use_cpu=False))
    assert re.search("2 processes .* sees 1; set use_cpu: true", str(error))
    assert not (tmp_path / "out").exists()


def test_another_template_than_the_cards_is_refused_with_the_way_out(trained, tmp_path):
    folder, _ = trained
    with pytest.raises(CardError, match=r"was trained with template 'judgelm-compact'.*--ignore-card"):
        Judge(str(folder), template="judgelm-v1")
    Judge(str(folder), template="judgelm-v1", ignore_card=True).close()
    copy = shutil.copytree(folder, tmp_path / "copy")
    card = json.loads((folder / "judge.json").read_text())
    (copy / "judge.json").write_text(json.dumps(card | {"template_sha": "0" * 64}))
    with pytest.raises(CardError, match="another version of template"):
        Judge(str(copy))


@pytest.fixture
def files(tiny_model, train_file):
    return {"model_name_or_path": str(tiny_model), "train_data": [train_file], "dtype": "float32", "max_steps": 2}


def test_a_judge_trained_in_bf16_is_saved_in_bf16_and_its_checkpoint_in_float32(files, tmp_path):
    out = train(tmp_path, **files, bf16=True, save_steps=2)
    assert find_card(str(out)).training["dtype"] == "bfloat16"
    configs = [json.loads((folder / "config.json").read_text())["dtype"] for folder in (out, out / "checkpoint-2")]
    assert configs == ["bfloat16", "float32"]
    last, judge = load_file(out / "checkpoint-2/model.safetensors"), load_file(out / "model.safetensors")
    assert judge.keys() == last.keys()  # tied weights are written once
    assert {weight.dtype for weight in last.values()} == {torch.float32}
    assert all(torch.equal(judge[name], last[name].to(torch.bfloat16)) for name in last)
    assert AutoModelForCausalLM.from_pretrained(out).dtype == torch.bfloat16


def test_an_adapter_is_saved_as_it_was_trained_with_the_hashes_of_its_questions(files, train_file, tmp_path):
    out = train(tmp_path, **files, bf16=True, save_strategy="no", **LORA)
    weights = load_file(out / "adapter_model.safetensors")
    assert {weight.dtype for weight in weights.values()} == {torch.float32}
    facts = find_card(str(out)).training
    assert (facts["dtype"], facts["lora"]["r"]) == (None, 4)
    assert facts["questions"]["count"] == len(hashes_of_files([train_file])) > 5
    assert read_hashes(out) == hashes_of_files([train_file])


def test_a_card_counts_rows_of_one_answer_and_of_several_and_a_judge_is_asked_by_it(files, tmp_path):
    rows = [
        {"question": "q", "answer": "a fox", "score": 7, "reference": "a dog"},
        {"question": "q", "answers": ["a", "b", "c"], "scores": [8, 6, 5.5]},
    ]
    more = write_rows(tmp_path / "more.jsonl", rows)
    files |= {"train_data": [files["train_data"][0], more], "reference_drop_prob": 0, "max_steps": 1}
    out = train(tmp_path, **files, save_strategy="no")
    card = find_card(str(out))
    assert (card.template, card.reference, card.step) == ("judgelm-compact", "both", 0.5)  # of several there was none
    facts = card.training
    assert (facts["rows_by_kind"], facts["steps"]) == ({"pair": 96, "single": 1, "multi": 1}, 1)
    assert [len(entry["sha"]) for entry in facts["data"]] == [64, 64]
    with Judge(str(out)) as judge:
        assert (judge.format.template, judge.format.source) == ("judgelm-compact", "card")


@pytest.mark.parametrize(
    ("flags", "named"),
    [
        ((), ["trl"]),
        (("--load_in_4bit",), ["bitsandbytes", "trl"]),
        (("--optim", "paged_adamw_32bit"), ["bitsandbytes", "trl"]),
        (("--eval_data", "rows.jsonl"), ["scikit-learn", "trl"]),
        (("--accelerate", "zero3"), ["deepspeed", "trl"]),
        (("--accelerate", "ddp"), ["trl"]),
    ],
)
def test_missing_packages_are_those_that_the_recipe_uses(train_file, tmp_path, monkeypatch, capsys, flags, named):
    hidden, find = {"trl", "bitsandbytes", "deepspeed", "sklearn", "datasketch"}, importlib.util.find_spec
    monkeypatch.setattr(importlib.util, "find_spec", lambda name, *rest: None if name in hidden else find(name, *rest))
    config = configure(tmp_path, train_data=[train_file])
    assert exit_code("judgelm", "train", "sft", "--config", config, *flags) == 1
    error = capsys.readouterr().err.replace("\n", " ")
    assert f"{', '.join(named)} not installed; run: pip install " in error
    assert "trl<1.17,>=1.16" in error or "trl>=1.16,<1.17" in error


def test_the_command_trains_what_the_recipe_trains(files, train_file, tmp_path, monkeypatch):
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    train(tmp_path / "recipe", **files)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    config = configure(tmp_path / "command", **files | {"train_data": []})
    try:
        assert exit_code("judgelm", "train", "sft", "--config", config, "--train_data", train_file) == 0
    finally:
        torch.set_num_threads(threads)
    weights = [load_file(tmp_path / name / "out/model.safetensors") for name in ("recipe", "command")]
    assert weights[0].keys() == weights[1].keys()
    assert all(torch.equal(weights[0][name], weights[1][name]) for name in weights[0])
