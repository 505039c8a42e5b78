"""`train/sft.py` and `judgelm train` as users run them, on a tiny base and on one as Vicuna is published."""

import importlib.util
import json
import re
import shutil
from pathlib import Path

import pytest
import torch
from peft import AutoPeftModelForCausalLM
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer, GenerationConfig

from judgelm.data.training_questions import hashes_of_files, read_hashes
from judgelm.errors import CardError
from judgelm.judge import Judge
from judgelm.prompts.judge_card import find_card
from tests.support import recipe_runs
from tests.support.in_process import exit_code
from tests.support.recipe_runs import LORA, ON_CPU, ROOT, configure, run_here, train
from tests.support.tiny_judges import reply_of, word_sample
from tests.support.vicuna_folders import Executed, pickle_weights


@pytest.fixture(scope="module")
def trained(tiny_model, train_file, tmp_path_factory):
    """The judge's folder, and what was printed."""
    folder = tmp_path_factory.mktemp("trained")
    files = {"model_name_or_path": str(tiny_model), "train_data": [train_file], "save_strategy": "no"}
    config = configure(folder, **files, per_device_train_batch_size=16, gradient_accumulation_steps=1, max_steps=6)
    return folder / "out", recipe_runs.finish(recipe_runs.start(config, launcher=ON_CPU))


def test_it_says_what_became_of_the_data_and_writes_a_judge(trained):
    folder, output = trained
    assert "train: 96 rows" in output
    assert re.search(r"steps: 6 of 16 rows \(.* 16 x .* 1 x .* 1\)", output)
    assert re.search("attention: sdpa .*; no padding", output)
    card = find_card(str(folder))
    assert (card.template, card.reference, card.step) == ("judgelm-compact", "both", 1)  # scores are integers
    assert (card.training["rows"], card.training["steps"]) == (96, 6)
    with Judge(str(folder)) as judge:
        assert judge.compare("What is 2 + 2?", "4", "5").shown


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
    assert {weight.dtype for weight in load_file(out / "adapter_model.safetensors").values()} == {torch.float32}
    facts = find_card(str(out)).training
    assert (facts["dtype"], facts["lora"]["r"]) == (None, 4)
    assert facts["questions"]["count"] == len(hashes_of_files([train_file])) > 5
    assert read_hashes(out) == hashes_of_files([train_file])


def test_a_card_counts_rows_of_one_answer_and_of_several_and_a_judge_is_asked_by_it(files, tmp_path):
    rows = [
        {"question": "q", "answer": "a fox", "score": 7, "reference": "a dog"},
        {"question": "q", "answers": ["a", "b", "c"], "scores": [8, 6, 5.5]},
    ]
    more = recipe_runs.write_rows(tmp_path / "more.jsonl", rows)
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


# a base as Vicuna is published: pickled shards, `tokenizer.model` alone, old configs
CONFIGS = ROOT / "configs/train"
ON_THE_CPU = ("--use_cpu", "true", "--tf32", "false")


def labelled_rows():
    """Forty labelled pairs."""
    for sample in (word_sample(f"pickled {number}") for number in range(40)):
        line, _, reason = reply_of(sample).partition("\n")
        labels = {"scores": [int(score) for score in line.split()], "reason": reason}
        row = {"question": sample.question, "answer_1": sample.answers[0], "answer_2": sample.answers[1]}
        yield row | labels


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    return recipe_runs.write_rows(tmp_path_factory.mktemp("rows") / "rows.jsonl", labelled_rows())


def flags(base, rows, out):
    return ("--model_name_or_path", str(base), "--train_data", str(rows), "--output_dir", str(out), *ON_THE_CPU)


@pytest.fixture(scope="module")
def vicuna_judge(vicuna, rows, tmp_path_factory):
    """The 7B recipe's judge with only the base, the data, the output and what a CPU needs overridden."""
    out = tmp_path_factory.mktemp("runs") / "judge"
    assert run_here(CONFIGS / "judgelm_7b.yaml", *flags(vicuna, rows, out)) is None
    return out


def test_the_7b_recipe_trains_its_global_batch_on_one_process(vicuna_judge):
    card = find_card(str(vicuna_judge))
    # 40 rows x 3 epochs are less than one step of 128
    assert (card.training["global_batch"], card.training["steps"], card.window) == (128, 1, 2048)
    assert card.template == "judgelm-v1"


def test_the_trained_judge_has_the_bases_token_ids_and_judges(vicuna_judge, vicuna):
    texts = [f"{word_sample(seed).question}\n{reply_of(word_sample(seed))} naïve 🙂" for seed in range(20)]
    base, judge = AutoTokenizer.from_pretrained(vicuna), AutoTokenizer.from_pretrained(vicuna_judge)
    assert judge(texts)["input_ids"] == base(texts)["input_ids"]
    with Judge(str(vicuna_judge), engine="transformers") as loaded:
        judgment = loaded.compare("what is paris", "a big capital", "red")
    assert all(shown.text for shown in judgment.shown)


def test_the_bases_sampling_settings_do_not_forbid_to_save(vicuna_judge, vicuna):
    assert GenerationConfig.from_pretrained(vicuna).temperature == 0.9  # without do_sample, as in vicuna-7b-v1.5
    saved = GenerationConfig.from_pretrained(vicuna_judge)
    assert (saved.temperature, saved.bos_token_id, saved.eos_token_id, saved.pad_token_id) == (None, 1, 2, 0)


@pytest.mark.parametrize("recipe", ["judgelm_7b_lora", "judgelm_7b_qlora"])
def test_an_adapter_on_it_is_trained_and_merged_pickled_or_not(vicuna, rows, tmp_path, recipe):
    out = tmp_path / "adapter"
    more = ("--global_batch", "8", "--max_steps", "2", "--learning_rate", "0.05", "--warmup_steps", "0")
    assert run_here(CONFIGS / f"{recipe}.yaml", *flags(vicuna, rows, out), *more) is None
    pickled = pickle_weights(out, tmp_path / "pickled")
    assert recipe_runs.merge_here(pickled, tmp_path / "judge", "--dtype", "float32") is None
    ids = torch.arange(5, 45)[None]
    base = AutoModelForCausalLM.from_pretrained(vicuna, dtype=torch.float32)
    beside = AutoPeftModelForCausalLM.from_pretrained(out, dtype=torch.float32).eval()
    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "judge")
    with torch.inference_mode():
        torch.testing.assert_close(merged(ids).logits, beside(ids).logits, atol=1e-4, rtol=0)
        assert (merged(ids).logits - base(ids).logits).abs().max() > 1e-3


def test_a_harmful_base_is_refused_before_rows_are_made(vicuna, rows, tmp_path):
    base = Path(shutil.copytree(vicuna, tmp_path / "base"))
    [shard, _] = sorted(base.glob("pytorch_model-*.bin"))
    torch.save(torch.load(shard, weights_only=True) | {"extra": Executed(tmp_path / "executed")}, shard)
    error = run_here(CONFIGS / "judgelm_7b.yaml", *flags(base, rows, tmp_path / "out"))
    assert f"{shard}: loading this pickle would call" in error
    assert not any((tmp_path / name).exists() for name in ("executed", "out"))


def test_unsafe_loading_cannot_be_asked_for(vicuna, rows, tmp_path):
    unsafe = {"model_name_or_path": str(vicuna), "train_data": [rows], "model_init_kwargs": {"weights_only": False}}
    end = run_here(configure(tmp_path, **unsafe))
    assert "weights_only: false allows code" in end
