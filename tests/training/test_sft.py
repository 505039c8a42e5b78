"""`train/sft.py` as users run it: a base, a few steps, a judge with a card, in the dtype of its training."""

import json
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from judgelm.data.training_questions import hashes_of_files, read_hashes
from judgelm.errors import CardError
from judgelm.judge import Judge
from judgelm.prompts.judge_card import find_card
from judgelm.training.finished_judge import save_judge
from tests.support.recipe_runs import LORA, ROOT, configure, finish, prepare, run_here, start, write_rows


@pytest.fixture(scope="module")
def trained(tiny_model, train_file, tmp_path_factory):
    """The judge's folder, and what was printed."""
    folder = tmp_path_factory.mktemp("trained")
    files = {"model_name_or_path": str(tiny_model), "train_data": [train_file], "save_strategy": "no"}
    config = configure(folder, **files, per_device_train_batch_size=16, gradient_accumulation_steps=1, max_steps=6)
    cluster = str(ROOT / "configs/accelerate/cpu.yaml")
    return folder / "out", finish(start(config, launcher=["accelerate.commands.launch", "--config_file", cluster]))


def test_it_says_what_became_of_the_data_and_writes_a_judge(trained):
    folder, out = trained
    assert "train: 96 rows" in out
    assert "steps: 6 of 16 rows (per device 16 x accumulation 1 x processes 1)" in out
    assert "attention: sdpa (not on a CUDA GPU); no padding" in out
    card = json.loads((folder / "judge.json").read_text())
    assert (card["template"], card["reference"]) == ("judgelm-compact", "both")
    assert card["step"] == 1  # the world's teacher gives whole scores
    assert (card["training"]["rows"], card["training"]["steps"]) == (96, 6)
    with Judge(str(folder)) as judge:
        judgment = judge.compare("What is 2 + 2?", "4", "5")
    assert judgment.verdict is not None or judgment.failure is not None


def test_a_data_file_that_is_not_there_ends_with_a_sentence(tiny_model, tmp_path):
    end = run_here(configure(tmp_path, model_name_or_path=str(tiny_model), train_data=["nowhere.jsonl"]))
    assert "error: nowhere.jsonl: no such file" in end


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
def train(tiny_model, train_file, tmp_path):
    """Train for two steps; the output folder."""

    def run(**options):
        data = {"model_name_or_path": str(tiny_model), "train_data": [train_file], "dtype": "float32", "max_steps": 2}
        assert run_here(configure(tmp_path, **data, **options)) is None
        return tmp_path / "out"

    return run


def dtypes_of(file):
    return {tensor.dtype for tensor in load_file(file).values()}


def test_a_judge_trained_in_bf16_is_written_in_it_and_its_checkpoint_in_float32(train):
    out = train(bf16=True, save_steps=2)
    assert json.loads((out / "config.json").read_text())["dtype"] == "bfloat16"
    assert json.loads((out / "judge.json").read_text())["training"]["dtype"] == "bfloat16"
    assert dtypes_of(out / "checkpoint-2/model.safetensors") == {torch.float32}
    assert json.loads((out / "checkpoint-2/config.json").read_text())["dtype"] == "float32"
    last, judge = load_file(out / "checkpoint-2/model.safetensors"), load_file(out / "model.safetensors")
    assert judge.keys() == last.keys()  # tied weights are written once
    assert all(torch.equal(judge[name], last[name].to(torch.bfloat16)) for name in last)
    assert AutoModelForCausalLM.from_pretrained(out).dtype == torch.bfloat16


def test_an_adapter_is_written_as_it_was_trained_with_the_hashes_of_its_questions(train, train_file):
    out = train(bf16=True, save_strategy="no", **LORA)
    assert dtypes_of(out / "adapter_model.safetensors") == {torch.float32}
    facts = json.loads((out / "judge.json").read_text())["training"]
    assert (facts["dtype"], facts["lora"]["r"]) == (None, 4)
    assert facts["questions"]["count"] == len(hashes_of_files([train_file])) > 5
    assert read_hashes(out) == hashes_of_files([train_file])


def test_a_card_counts_rows_of_one_answer_and_of_several_and_a_judge_is_asked_by_it(tiny_model, train_file, tmp_path):
    rows = [
        {"question": "q", "answer": "a fox", "score": 7, "reference": "a dog"},
        {"question": "q", "answers": ["a", "b", "c"], "scores": [8, 6, 5.5]},
    ]
    files = [train_file, write_rows(tmp_path / "more.jsonl", rows)]
    own = {"train_data": files, "reference_drop_prob": 0}
    prepared = prepare(tiny_model, tmp_path / "judge", train_file, judge=own, max_steps=1, save_strategy="no")
    prepared[0].train()
    save_judge(*prepared)
    card = find_card(str(tmp_path / "judge"))
    assert (card.template, card.reference, card.step) == ("judgelm-compact", "both", 0.5)  # of several there was none
    facts = card.training
    assert (facts["rows_by_kind"], facts["steps"]) == ({"pair": 96, "single": 1, "multi": 1}, 1)
    assert [len(entry["sha"]) for entry in facts["data"]] == [64, 64]
    with Judge(str(tmp_path / "judge")) as judge:
        assert (judge.format.template, judge.format.source) == ("judgelm-compact", "card")
