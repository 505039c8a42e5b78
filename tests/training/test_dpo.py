"""`train/dpo.py`: a judge that counts words learns from its own mistakes a teacher's taste for the second answer."""

import json
import math
import re
import runpy
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import DPOConfig, ModelConfig

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.errors import CardError, ConfigError, InputError, TrainingError
from judgelm.jsonl import read_jsonl
from judgelm.judge import Judge
from judgelm.modes import Pairwise
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import find_card
from judgelm.runs.batch import BatchHooks, BatchJob, run_batch
from judgelm.runs.serialization import judgment_from_row
from judgelm.training.checkpoints import run_settings
from judgelm.training.dpo import DPOArguments, dpo_facts, find_tuned_card
from judgelm.training.rows.builder import RowCounts
from judgelm.training.rows.dataset import EpochRows, Schedule
from judgelm.training.save import save_judge
from tests.support import recipe_runs
from tests.support.tiny_judges import TEMPLATE, make_adapter, word_sample

ROOT = Path(__file__).parents[2]
COMMON = {
    "max_length": 256, "per_device_train_batch_size": 8, "max_steps": 24, "learning_rate": 3e-4, "use_cpu": True,
    "bf16": False, "save_strategy": "no", "report_to": "none", "gradient_checkpointing": False, "disable_tqdm": True,
    "logging_steps": 4,
}  # fmt: skip


SAMPLES = [word_sample(f"dpo {number}") for number in range(40)]


def write_labelled(path):
    """A teacher who always prefers the second answer: learned in a few steps, and plain to see."""
    rows = [
        {"id": one.id, "question": one.question, "answer_1": one.answers[0], "answer_2": one.answers[1]}
        | {"score": [2, 9]}
        for one in SAMPLES
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def files(tiny_judge, tmp_path_factory):
    """The labelled pairs, and what the tiny judge says of them."""
    folder = tmp_path_factory.mktemp("dpo")
    labelled, judged = folder / "labelled.jsonl", folder / "judged.jsonl"
    write_labelled(labelled)
    engine = load_engine("transformers", EngineOptions(model=str(tiny_judge), dtype="float32", device="cpu"))
    job = BatchJob(inputs=(str(labelled),), out=str(judged))
    run_batch(job, Pairwise(template=TEMPLATE), engine, hooks=BatchHooks())
    engine.close()
    return str(labelled), str(judged)


def arguments(files, judge, out, **options):
    """What the recipe would be told: its own arguments, TRL's, the model's."""
    own = {name: options.pop(name) for name in list(options) if name in DPOArguments.__dataclass_fields__}
    told = {"train_data": [files[0]], "judgments": [files[1]], "template": TEMPLATE, "swap_prob": 0.0} | own
    dpo = DPOConfig(output_dir=str(out), **COMMON | options)
    return DPOArguments(**told), dpo, ModelConfig(model_name_or_path=str(judge))


def tune(judge, dpo, model):
    """The recipe's trainer, and the card of the judge to be tuned."""
    card = find_tuned_card(model, judge)
    return recipe_runs.build("dpo", judge, dpo, model), card


@pytest.fixture(scope="module")
def tuned(tiny_judge, files, tmp_path_factory):
    """A tuning that is done, and its folder."""
    out = tmp_path_factory.mktemp("tuned") / "judge"
    judge, dpo, model = arguments(files, tiny_judge, out, eval_data=[files[0]])
    trainer, card = tune(judge, dpo, model)
    trainer.train()
    save_judge(
        trainer,
        judge,
        model,
        facts=dpo_facts(SimpleNamespace(judge=judge, args=dpo, base=model, tuned_from=card)),
        tuned_from=card,
    )
    return trainer, out


def log_probability(model, prompt, target):
    """Of the target's tokens behind the prompt."""
    ids = torch.tensor([[*prompt, *target]])
    with torch.inference_mode():
        logs = model(ids).logits.log_softmax(-1)
    return sum(logs[0, place - 1, ids[0, place]].item() for place in range(len(prompt), ids.shape[1]))


def margins(folder, rows):
    """Log-probability of the chosen judgment less that of the rejected, of some rows."""
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    return [
        log_probability(model, row["prompt_ids"], row["chosen_ids"])
        - log_probability(model, row["prompt_ids"], row["rejected_ids"])
        for row in rows
    ]


def test_the_chosen_judgments_gain_on_the_rejected_ones(tuned, tiny_judge):
    trainer, out = tuned
    rows = list(trainer.rows.dataset.select(range(20)))
    before, after = margins(tiny_judge, rows), margins(out, rows)
    assert max(before) < 0  # the judge preferred what it wrote itself
    assert all(new > old + 1 for old, new in zip(before, after, strict=True))
    logged = [entry["rewards/margins"] for entry in trainer.state.log_history if "rewards/margins" in entry]
    assert logged[-1] > logged[0]


def test_the_verdicts_turn_to_the_chosen_ones(tuned, tiny_judge):
    trainer, out = tuned
    mistaken = set(trainer.rows.dataset["sample_id"])
    assert len(mistaken) >= 15
    for folder, right in ((tiny_judge, 0), (out, 0.8 * len(mistaken))):
        with Judge(str(folder)) as judge:
            judgments = [judge.compare(one.question, *one.answers, both_orders=False) for one in SAMPLES]
        verdicts = [one.verdict for one, sample in zip(judgments, SAMPLES, strict=True) if sample.id in mistaken]
        found = sum(verdict is not None and verdict.winner == 2 for verdict in verdicts)
        assert found == 0 if right == 0 else found >= right


def test_the_prompts_are_those_that_the_judge_was_asked_with(tuned, files):
    trainer, _ = tuned
    asked = {row["id"]: judgment_from_row(row).prompt_tokens for _, row in read_jsonl(files[1])}
    assert all(len(row["prompt_ids"]) == asked[row["sample_id"]] for row in trainer.rows.dataset)


def test_trl_is_given_the_tokens_as_they_are(tuned):
    trainer, out = tuned
    tokenizer = AutoTokenizer.from_pretrained(out)
    batch = next(iter(trainer.get_train_dataloader()))
    targets = [ids[mask.bool()] for ids, mask in zip(batch["input_ids"], batch["completion_mask"], strict=True)]
    assert all(re.fullmatch(r"\d+ \d+\n", tokenizer.decode(target)) for target in targets)  # no end of sequence
    rows = trainer.rows.dataset.select(range(8))
    assert [target.tolist() for target in targets] == rows["chosen_ids"][:] + rows["rejected_ids"][:]


def test_the_card_says_what_it_was_and_what_was_done(tuned, tiny_judge, files):
    _, out = tuned
    card = find_card(str(out))
    facts = card.training
    assert (card.template, card.template_sha) == (TEMPLATE, get_template(TEMPLATE).sha)
    assert card.reference == "both"  # it was a judge of both before, and saw no reference here
    assert (facts["method"], facts["beta"], facts["steps"]) == ("dpo", 0.1, 24)
    assert facts["began_from"] == {"judge": str(tiny_judge)}  # whose card says nothing of its training
    assert [entry["file"] for entry in (*facts["data"], *facts["judgments"])] == ["labelled.jsonl", "judged.jsonl"]
    assert all(len(entry["sha"]) == 64 for entry in (*facts["data"], *facts["judgments"]))
    assert facts["rows"] + facts["rows_left_out"]["judge was right"] == len(SAMPLES)
    readme = (out / "README.md").read_text()
    assert "| method | dpo |" in readme
    assert f"| began_from: judge | {tiny_judge} |" in readme


def test_evaluations_judge_pairs_as_those_of_a_fine_tuning(tuned):
    trainer, out = tuned
    [found] = [entry for entry in trainer.state.log_history if "eval_agreement" in entry]
    assert found["eval_delta_bias"] > 0.8  # shown in both orders, it goes by the place
    assert found["eval_agreement"] == find_card(str(out)).training["metrics"]["agreement"]["value"]


def run_recipe(monkeypatch, capsys, name, *given):
    """A recipe in this process; what it printed, or the sentence it ended with."""
    monkeypatch.setattr(sys, "argv", [name, *map(str, given)])
    try:
        runpy.run_path(str(ROOT / "train" / name), run_name="__main__")
    except SystemExit as end:
        return str(end.code)
    return capsys.readouterr().out


def test_an_adapter_is_tuned_from_a_config_and_merged(tiny_judge, files, tmp_path, monkeypatch, capsys):
    config, out, whole = tmp_path / "config.yaml", tmp_path / "adapter", tmp_path / "judge"
    told = {
        "train_data": [files[0]], "judgments": [files[1]], "template": TEMPLATE, "output_dir": str(out),
        "model_name_or_path": str(tiny_judge), "use_peft": True, "lora_r": 4, "max_steps": 4, "learning_rate": 0.01,
        "lora_target_modules": ["q_proj", "v_proj"], "swap_prob": 0.0,
    }  # fmt: skip
    config.write_text(json.dumps(COMMON | told))
    said = run_recipe(monkeypatch, capsys, "dpo.py", "--config", config)
    assert re.search(r"train: \d+ rows \(\d+ pair\), \d+ swapped, .* left out: ", said)
    assert said.endswith(f"judge in {out}\n")
    assert not (out / "config.json").exists()
    assert f"judge in {whole}" in run_recipe(
        monkeypatch, capsys, "merge_lora.py", out, "-o", whole, "--dtype", "float32"
    )
    card = find_card(str(whole))
    assert (card.training["method"], card.training["merged"]["adapter"]) == ("dpo", "adapter")
    rows = list(
        recipe_runs.build("dpo", *arguments(files, tiny_judge, tmp_path / "rows")).rows.dataset.select(range(8))
    )
    assert all(new > old for old, new in zip(margins(tiny_judge, rows), margins(whole, rows), strict=True))
    said = run_recipe(monkeypatch, capsys, "dpo.py", "--config", config)
    assert said.startswith(f"error: {out}: holds a finished judge")


@pytest.mark.parametrize(
    ("options", "error", "sentence"),
    [
        ({"template": "judgelm-v1"}, CardError, "trained with template 'judgelm-compact', but .*; set template: judge"),
        ({"scale": [1, 5]}, CardError, r"on the scale 1 to 10, but scale is \[1, 5\]; set scale: \[1, 10\]"),
        ({"loss_on": "all"}, ConfigError, "loss_on is 'all', but DPO compares whole judgments"),
        ({"score_weight": 2.0}, ConfigError, "score_weight is 2.0, but DPO"),
        ({"beta": 0.0}, ConfigError, "beta is 0.0; it must be above 0"),
        ({"max_length": None}, ConfigError, "max_length is missing"),
        ({"train_data": []}, ConfigError, "train_data is empty"),
        ({"judgments": []}, InputError, r"no two judgments to tune on \(40 without two judgments\)"),
        ({"judgments": ["nowhere.jsonl"]}, InputError, r"cannot read nowhere\.run\.json beside it"),
    ],
)
def test_what_cannot_be_is_refused_with_the_way_out(tiny_judge, files, tmp_path, options, error, sentence):
    judge, dpo, model = arguments(files, tiny_judge, tmp_path / "out", **options)
    with pytest.raises(error, match=sentence):
        tune(judge, dpo, model)


def test_a_setting_of_dpo_alone_makes_another_run(tiny_judge, files, tmp_path):
    schedule = Schedule(epochs=1.0, steps=None, batch=8, group_by_length=False, seed=0)
    rows = EpochRows(
        name="", dataset=None, counts=RowCounts(), epochs=1, per_epoch=8, schedule=schedule, window=256
    )  # fmt: skip
    found = []
    for options in ({}, {"label_smoothing": 0.1}, {"f_divergence_type": "js_divergence"}, {"ld_alpha": 0.5}):
        told = arguments(files, tiny_judge, tmp_path, **options)
        found.append(json.dumps(run_settings(*told, rows)))
    assert len(set(found)) == 4


def test_the_loss_of_a_broken_step_is_the_mean_over_its_passes(tiny_judge, files, tmp_path):
    judge, dpo, model = arguments(
        files, tiny_judge, tmp_path, per_device_train_batch_size=4, gradient_accumulation_steps=4,
        save_strategy="steps", save_steps=1,
    )  # fmt: skip
    trainer = recipe_runs.build("dpo", judge, dpo, model)
    trainer.add_callback(BreakWeight())
    with pytest.raises(TrainingError, match="weights are not finite"):
        trainer.train()
    found = json.loads((tmp_path / "nan_step_0.json").read_text())
    assert found["loss"] == pytest.approx(math.log(2), abs=1e-4)  # the judge and its reference are still one


class BreakWeight(TrainerCallback):
    """One weight becomes infinite at the end of a step."""

    def on_step_end(self, args, state, control, model=None, **others):
        next(model.parameters()).data[0, 0] = float("inf")


def test_an_adapter_is_no_judge_to_begin_from(tiny_judge, files, tmp_path):
    adapter = make_adapter(tiny_judge, tmp_path / "adapter", seed=1)
    judge, _, model = arguments(files, adapter, tmp_path / "out")
    with pytest.raises(ConfigError, match=r"is an adapter; merge it into its base first: python train/merge_lora\.py"):
        find_tuned_card(model, judge)
