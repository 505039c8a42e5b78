"""Evaluation during training by judging: the figures are a batch run's, and training does not notice."""

import json
import os
import shutil
import socket
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import ModelConfig, SFTConfig

from judgelm.data.labelled_set import read_labels
from judgelm.errors import ConfigError, InputError
from judgelm.judge import Judge
from judgelm.records import Judgment, Label, PairVerdict, Sample, Shown, Unparsed
from judgelm.runs.runner import judge
from judgelm.studies.evaluation import evaluate
from judgelm.training.arguments import JudgeArguments
from judgelm.training.rows.builder import RowCounts
from judgelm.training.save import save_judge
from judgelm.training.validation import ValidationPairs, draw_pairs, trained_prompt_kinds, validation_metrics
from tests.support.recipe_runs import build
from tests.support.sharded_judging import PROCESSES, judge_sharded, texts_of
from tests.support.tiny_judges import TEMPLATE, word_sample

ROOT = Path(__file__).parents[3]
COMMON = {
    "max_length": 256, "per_device_train_batch_size": 16, "learning_rate": 4e-3, "use_cpu": True, "bf16": False,
    "report_to": "none", "gradient_checkpointing": False, "disable_tqdm": True, "logging_steps": 1,
    "save_strategy": "no",
}  # fmt: skip


def word_row(seed, *, fewer_is_better=False, reference=False):
    """A pair scored by how many words each answer has; or by how few."""
    sample = word_sample(seed)
    counts = [len(answer.split()) for answer in sample.answers]
    scores = [11 - count for count in counts] if fewer_is_better else counts
    return {
        "question_id": str(seed), "question_body": sample.question,
        "answer1_body": sample.answers[0], "answer2_body": sample.answers[1], "score": scores,
        "reference": {"text": "a fox"} if reference else None, "score_w_reference": scores if reference else None,
    }  # fmt: skip


def write(path, seeds, **options):
    path.write_text("".join(json.dumps(word_row(seed, **options)) + "\n" for seed in seeds))
    return str(path)


def tune(base, folder, train, evaluation, *, judge_options=None, model_options=None, **options):
    """A trainer for these files, ready to run, with what `save` needs."""
    arguments = JudgeArguments(
        train_data=[train], eval_data=[evaluation] if evaluation else [], template=TEMPLATE, reason_prob=0.0,
        swap_prob=0.0, **judge_options or {},
    )  # fmt: skip
    model = ModelConfig(model_name_or_path=str(base), **model_options or {})
    args = SFTConfig(output_dir=str(folder), **COMMON | options)
    return build("sft", arguments, args, model), arguments, model


def evaluations(trainer):
    return [entry for entry in trainer.state.log_history if "eval_loss" in entry]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    fewer = write(folder / "train.jsonl", range(640), fewer_is_better=True, reference=True)
    return fewer, write(folder / "eval.jsonl", range(1000, 1060), fewer_is_better=True, reference=True)


@pytest.fixture(scope="module")
def trained(tiny_judge, world, tmp_path_factory):
    """A judge that likes many words, taught to like few: its agreement must rise."""
    folder = tmp_path_factory.mktemp("judging") / "judge"
    trainer, arguments, model = tune(
        tiny_judge, folder, *world, num_train_epochs=3, eval_strategy="steps", eval_steps=30,
        lr_scheduler_type="cosine", judge_options={"eval_pairs": 50},
    )  # fmt: skip
    trainer.train()
    save_judge(trainer, arguments, model)
    return trainer, folder


def test_agreement_rises_as_the_judge_learns(trained):
    first, *_, last = entries = evaluations(trained[0])
    assert len(entries) == 4  # 120 steps, every 30
    assert last["eval_agreement"] > first["eval_agreement"] + 0.1
    assert last["eval_agreement_by_mean"] > first["eval_agreement_by_mean"] + 0.2


@pytest.mark.parametrize(("shown", "suffix"), [("ignore", "_without_reference"), ("use", "_with_reference")])
def test_the_figures_are_those_of_a_batch_run_over_the_saved_judge(trained, world, tmp_path, shown, suffix):
    trainer, folder = trained
    pairs = {
        sample.id
        for sample in trainer.validation.pairs.samples
        if trainer.validation.pairs.kind_of[sample.id] == suffix[1:]
    }
    labelled = read_labels(world[1], with_reference=shown == "use")
    samples = [
        sample if shown == "use" else replace(sample, reference=None)
        for sample in labelled.samples.values()
        if f"0:{sample.id} {suffix[1:]}" in pairs
    ]
    with Judge(str(folder), engine="transformers") as saved:
        judged = list(judge(samples, saved.pairwise(both_orders=True, reference=shown), saved.engine))
    expected = evaluate(judged, labelled.labels)
    found = evaluations(trainer)[-1]
    assert len(judged) == 50
    right = expected.counts.joined - expected.counts.failed - len(expected.disagreements)
    assert expected.order_rule == "given"
    assert found[f"eval_agreement{suffix}"] == right / 50
    by_mean = expected.other_rules["mean"]
    assert found[f"eval_agreement_by_mean{suffix}"] == by_mean.excluded.value * by_mean.excluded.n / 50
    assert found[f"eval_consistency{suffix}"] == expected.excluded.position.consistency.value
    assert found[f"eval_delta_bias{suffix}"] == expected.excluded.position.delta.value
    assert found[f"eval_failed{suffix}"] == expected.counts.failed_orders / 100


def test_the_card_has_the_figures_of_the_last_weights_and_the_readme_shows_them(trained):
    trainer, folder = trained
    metrics = json.loads((folder / "judge.json").read_text())["training"]["metrics"]
    last = evaluations(trainer)[-1]
    assert metrics["agreement"]["value"] == last["eval_agreement"]
    assert metrics["agreement"]["low"] < last["eval_agreement"] < metrics["agreement"]["high"]
    assert (metrics["agreement"]["n"], metrics["with_reference"]["agreement"]["n"]) == (100, 50)
    assert metrics["checkpoint"] == {"step": 120, "steps": 120, "chosen_by": None}
    assert (metrics["pairs"], metrics["pairs_available"]) == (50, 60)
    readme = (folder / "README.md").read_text()
    assert "50 of 60 labelled pairs of `eval.jsonl`, without reference and with reference" in readme
    assert (
        f"| agreement, given order, with reference | {metrics['with_reference']['agreement']['value']:.3f} (" in readme
    )


@pytest.mark.parametrize("peft", [False, True])
def test_training_does_not_notice_its_evaluations(tiny_model, world, tmp_path, peft):
    base = tmp_path / "base"
    shutil.copytree(tiny_model, base)
    config = json.loads((base / "config.json").read_text())
    (base / "config.json").write_text(json.dumps(config | {"attention_dropout": 0.2}))  # so that random states count
    options = {"use_peft": True, "lora_r": 4, "lora_dropout": 0.2, "lora_target_modules": ["q_proj", "v_proj"]}
    losses = []
    for evaluation in (None, world[1]):
        strategy = {"eval_strategy": "steps", "eval_steps": 2} if evaluation else {}
        trainer, _, _ = tune(
            base, tmp_path / str(bool(evaluation)), world[0], evaluation, max_steps=6, gradient_checkpointing=True,
            model_options=options if peft else None, judge_options={"eval_pairs": 10}, **strategy,
        )  # fmt: skip
        attention = trainer.model.config._attn_implementation
        trainer.train()
        assert trainer.model.config._attn_implementation == attention
        losses.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    assert len(evaluations(trainer)) == 3
    assert losses[0] == losses[1]


def test_training_stops_when_nothing_gets_better(tiny_judge, world, tmp_path):
    trainer, _, _ = tune(
        tiny_judge, tmp_path, *world, max_steps=9, learning_rate=0.0, eval_strategy="steps", eval_steps=1,
        metric_for_best_model="eval_agreement", judge_options={"early_stopping_patience": 2, "eval_pairs": 10},
    )  # fmt: skip
    trainer.train()
    assert trainer.state.global_step == 3  # the first is the best so far, two more are no better


def test_a_resumed_run_goes_on_counting_evaluations_without_anything_better(tiny_judge, world, tmp_path):
    options = {
        "max_steps": 9, "learning_rate": 0.0, "eval_strategy": "steps", "eval_steps": 1, "save_strategy": "steps",
        "save_steps": 1, "metric_for_best_model": "eval_agreement",
        "judge_options": {"early_stopping_patience": 3, "eval_pairs": 5},
    }  # fmt: skip
    whole, _, _ = tune(tiny_judge, tmp_path / "whole", *world, **options)
    whole.train()
    resumed, _, _ = tune(tiny_judge, tmp_path / "resumed", *world, **options)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole/checkpoint-2"))
    assert (whole.state.global_step, resumed.state.global_step) == (4, 4)
    options["judge_options"] |= {"early_stopping_patience": 5}  # thought better of: two more
    patient, arguments, model = tune(tiny_judge, tmp_path / "patient", *world, **options)
    patient.train(resume_from_checkpoint=str(tmp_path / "whole/checkpoint-2"))
    assert patient.state.global_step == 6
    save_judge(patient, arguments, model)
    facts = json.loads((tmp_path / "patient/judge.json").read_text())["training"]
    assert facts["steps"] == 6
    assert facts["epochs"] == pytest.approx(
        patient.rows.schedule.epochs_of(patient.rows.per_epoch) * 6 / 9
    )  # of the nine steps that were configured


def test_the_best_checkpoint_is_what_is_saved_and_what_the_card_speaks_of(tiny_judge, world, tmp_path):
    many = write(tmp_path / "many.jsonl", range(2000, 2040))  # what the judge knows, and now unlearns
    trainer, arguments, model = tune(
        tiny_judge, tmp_path / "judge", world[0], many, max_steps=9, warmup_steps=9, eval_strategy="steps",
        eval_steps=3, save_strategy="steps", save_steps=3, load_best_model_at_end=True,
        metric_for_best_model="eval_agreement",
    )  # fmt: skip
    trainer.train()
    save_judge(trainer, arguments, model)
    found = {entry["step"]: entry["eval_agreement"] for entry in evaluations(trainer)}
    best = min(step for step, value in found.items() if value == max(found.values()))
    facts = json.loads((tmp_path / "judge/judge.json").read_text())["training"]
    metrics = facts["metrics"]
    assert best < 9
    assert facts["steps"] == best
    assert facts["epochs"] == pytest.approx(trainer.rows.schedule.epochs_of(trainer.rows.per_epoch) * best / 9)
    logged = {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry}
    assert facts["last_loss"] == logged[best]
    assert max(found.values()) > found[9]
    assert metrics["checkpoint"] == {"step": best, "steps": 9, "chosen_by": "eval_agreement"}
    assert metrics["agreement"]["value"] == found[best]
    assert "chosen by eval_agreement on these pairs, which flatters it" in (tmp_path / "judge/README.md").read_text()
    checkpoint, saved = (
        load_file(tmp_path / "judge" / name / "model.safetensors") for name in (f"checkpoint-{best}", "")
    )
    assert all(torch.equal(saved[name], weight) for name, weight in checkpoint.items())


def test_an_adapter_is_judged_as_it_is_saved(tiny_judge, world, tmp_path):
    trainer, arguments, model = tune(
        tiny_judge, tmp_path, *world, max_steps=3, learning_rate=0.02, judge_options={"reference_drop_prob": 1.0},
        model_options={"use_peft": True, "lora_r": 4, "lora_target_modules": ["q_proj", "v_proj"]},
    )  # fmt: skip
    trainer.train()
    save_judge(trainer, arguments, model)
    with Judge(str(tmp_path), engine="transformers") as saved:
        judged = list(judge(trainer.validation.pairs.samples, saved.pairwise(both_orders=True), saved.engine))
    [found] = evaluations(trainer)
    numbers = validation_metrics(judged, trainer.validation.pairs)[None].numbers()
    assert numbers == {name: found[f"eval_{name}"] for name in numbers}


def test_epochs_that_end_within_a_step_are_judged_and_saved_alike(tiny_judge, world, tmp_path):
    few = write(tmp_path / "few.jsonl", range(40), fewer_is_better=True)
    trainer, _, _ = tune(
        tiny_judge, tmp_path / "judge", few, world[1], num_train_epochs=2, eval_strategy="epoch",
        save_strategy="epoch", load_best_model_at_end=True, metric_for_best_model="agreement",
        judge_options={"eval_pairs": 5},
    )  # fmt: skip
    trainer.train()
    assert [entry["step"] for entry in evaluations(trainer)] == [3, 5]  # 2 x 40 rows by 16
    assert {path.name for path in (tmp_path / "judge").glob("checkpoint-*")} == {"checkpoint-3", "checkpoint-5"}


def test_a_judge_is_asked_as_its_rows_ask(tiny_model, world, tmp_path):
    options = {"eval_pairs": 3, "reference_drop_prob": 1.0}
    trainer, _, _ = tune(tiny_model, tmp_path, *world, max_steps=1, judge_options=options)
    assert trainer.validation.pairs.kinds == ("without_reference",)
    assert all(sample.reference is None for sample in trainer.validation.pairs.samples)
    none = RowCounts(made=5, kinds=Counter(single=5))
    assert trained_prompt_kinds(none) == ()
    assert trained_prompt_kinds(replace(none, kinds=Counter(pair=5), with_reference=5)) == ("with_reference",)


def test_the_draw_depends_on_seed_and_id_alone(tmp_path):
    path = write(tmp_path / "one.jsonl", range(50))
    kinds = ("without_reference", "with_reference")
    few, more, other = (
        {sample.id for sample in draw_pairs([path], kinds=kinds, count=count, seed=seed).samples}
        for count, seed in ((10, 0), (20, 0), (10, 1))
    )
    assert few < more
    assert few != other
    twice = draw_pairs([path, path], kinds=kinds, count=100, seed=0)  # the same ids in two files are not one
    assert (twice.pairs, len({sample.id for sample in twice.samples})) == (100, 100)


def test_figures_worked_by_hand():
    def judgment(name, given, swapped):
        """One reply an order, as scores shown; None could not be read."""
        failure = Unparsed("off_grammar", "?")
        shown = tuple(
            Shown(order=order, text="", scores=scores, failure=None if scores else failure)
            for order, scores in (((0, 1), given), ((1, 0), swapped))
        )
        if given is None or swapped is None:
            return Judgment(sample_id=name, mode="pair", verdict=None, shown=shown, failure=failure)
        first, second = given[0] + swapped[1], given[1] + swapped[0]
        winner = 1 if first > second else 2 if second > first else "tie"
        return Judgment(sample_id=name, mode="pair", verdict=PairVerdict(winner=winner), shown=shown)

    judged = [
        judgment("a", (8, 3), (3, 8)),  # 1 both times; the label says 1
        judgment("b", (8, 3), (9, 2)),  # whoever stands first: (8 + 2, 3 + 9), so 2; the label says 1
        judgment("c", (5, 5), (5, 5)),  # a tie, as the label
        judgment("d", None, (5, 6)),  # the label is a tie; a failure is not
    ]
    winners = {"a": 1, "b": 1, "c": "tie", "d": "tie"}
    pairs = ValidationPairs(
        samples=tuple(Sample(id=name, question=name, answers=("x", "y")) for name in winners),
        labels={name: Label(sample_id=name, winner=winner) for name, winner in winners.items()},
        kind_of=dict.fromkeys(winners, "without_reference"),
        pairs=4,
        available=4,
    )
    found = validation_metrics(judged, pairs)
    assert list(found) == [None]
    # given order: a, b and c agree, d cannot be read; by the mean a and c; of 3 readable in both orders 2 are
    # consistent and 1 leans to the first; 1 reply of 8 unreadable
    expected = {"agreement": 3 / 4, "agreement_by_mean": 2 / 4, "consistency": 2 / 3, "delta_bias": 1 / 3}
    assert found[None].numbers() == expected | {"failed": 1 / 8}
    assert found[None].agreement.n == 4


@pytest.mark.parametrize(
    ("options", "args", "message"),
    [
        ({"eval_pairs": -1}, {}, "eval_pairs is -1; it is a number of pairs"),
        ({"early_stopping_patience": 0}, {}, "early_stopping_patience is 0"),
        ({"early_stopping_patience": 1}, {}, "add metric_for_best_model: eval_agreement"),
        ({}, {"metric_for_best_model": "eval_agreement"}, "there are none; give eval_data and an eval_strategy"),
        (
            {}, {"metric_for_best_model": "eval_bleu", "eval_strategy": "epoch"},
            r"eval_bleu is not measured by these evaluations; available: eval_loss, .*eval_agreement_with_reference",
        ),
        (
            {"eval_pairs": 0}, {"metric_for_best_model": "eval_agreement", "eval_strategy": "epoch"},
            "eval_agreement is not measured by these evaluations; available: eval_loss",
        ),
        ({}, {"metric_for_best_model": "eval_failed", "eval_strategy": "epoch"}, "add greater_is_better: false"),
        (
            {}, {"metric_for_best_model": "loss", "eval_strategy": "no", "load_best_model_at_end": True},
            "metric_for_best_model loss is measured by evaluations, and there are none",
        ),
    ],
)  # fmt: skip
def test_an_evaluation_that_cannot_be_is_refused_with_the_way_out(tiny_model, world, tmp_path, options, args, message):
    with pytest.raises(ConfigError, match=message):
        tune(tiny_model, tmp_path, *world, max_steps=1, judge_options=options, **args)


def test_pairs_without_the_labels_that_training_has_are_refused(tiny_model, world, tmp_path):
    plain = write(tmp_path / "plain.jsonl", range(3))
    with pytest.raises(InputError, match=r"plain\.jsonl: no pair has a label made with a reference, .*eval_pairs: 0"):
        tune(tiny_model, tmp_path, world[0], plain, max_steps=1, judge_options={"reference_drop_prob": 0.0})
    unlabelled = tmp_path / "unlabelled.jsonl"
    unlabelled.write_text(json.dumps(word_row(1) | {"score": None}) + "\n")
    with pytest.raises(InputError, match=r"unlabelled\.jsonl: no row can be trained on"):
        tune(tiny_model, tmp_path, world[0], str(unlabelled), max_steps=1)


ZERO_3 = {
    "zero_optimization": {
        "stage": 3,
        "stage3_gather_16bit_weights_on_model_save": True,
        "stage3_param_persistence_threshold": 500,  # some weights stay whole, as small ones do
    },
    "train_micro_batch_size_per_gpu": "auto",
    "gradient_accumulation_steps": "auto",
    "train_batch_size": "auto",
    "gradient_clipping": "auto",
}


def run_recipe(folder, processes, base, world, **options):
    """`train/sft.py` in so many processes on the CPU; what its evaluations logged, and the card's figures."""
    settings = COMMON | {
        "model_name_or_path": str(base), "train_data": [world[0]], "eval_data": [world[1]], "template": TEMPLATE,
        "output_dir": str(folder / "judge"), "per_device_train_batch_size": 16 // processes, "max_steps": 4,
        "eval_strategy": "steps", "eval_steps": 2, "save_strategy": "steps", "save_steps": 2, "reason_prob": 0.0,
        "load_best_model_at_end": True, "metric_for_best_model": "eval_agreement", "eval_pairs": 7,
        "reference_drop_prob": 1.0,
    }  # fmt: skip
    folder.mkdir()
    config = folder / "config.yaml"
    config.write_text(json.dumps(settings | options))
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", str(processes), "--master_port", str(port),
         str(ROOT / "train/sft.py"), "--config", str(config)],
        capture_output=True, text=True, check=False, timeout=250,
        env=os.environ | {"OMP_NUM_THREADS": "1", "DS_ACCELERATOR": "cpu", "TOKENIZERS_PARALLELISM": "false"},
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-3000:]
    history = json.loads((folder / "judge/checkpoint-4/trainer_state.json").read_text())["log_history"]
    wanted = ("eval_agreement", "eval_consistency", "eval_delta_bias", "eval_failed")
    logged = [{name: value for name, value in one.items() if name.startswith(wanted)} for one in history]
    return [one for one in logged if one], json.loads((folder / "judge/judge.json").read_text())["training"]["metrics"]


@pytest.fixture(scope="module")
def alone(tiny_judge, world, tmp_path_factory):
    return run_recipe(tmp_path_factory.mktemp("processes") / "alone", 1, tiny_judge, world)


@pytest.mark.slow
@pytest.mark.parametrize("sharding", [{}, {"deepspeed": ZERO_3}], ids=["ddp", "zero3"])
def test_two_processes_share_the_judging_and_find_what_one_finds(alone, tiny_judge, world, tmp_path, sharding):
    assert len(alone[0]) == 2
    assert run_recipe(tmp_path / "two", 2, tiny_judge, world, **sharding) == alone


@pytest.mark.slow
def test_a_model_that_fsdp_has_spread_judges_as_a_whole_one(tiny_judge, tmp_path):
    torch.multiprocessing.spawn(judge_sharded, (str(tiny_judge), str(tmp_path)), nprocs=PROCESSES)
    found = [json.loads((tmp_path / f"{rank}.json").read_text()) for rank in range(PROCESSES)]
    model, tokenizer = AutoModelForCausalLM.from_pretrained(tiny_judge), AutoTokenizer.from_pretrained(tiny_judge)
    samples = [word_sample(seed) for seed in range(21)]
    assert [len(one) for one in found] == [20, 1]
    assert found[0] | found[1] == texts_of(model, model, tokenizer, samples, in_step=False)
