"""Evaluation during training by judging: the figures are a batch run's, and training does not notice."""

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import load_file

from judgelm.errors import ConfigError, InputError
from judgelm.judge import Judge
from judgelm.prompts.judge_card import find_card
from judgelm.records import Judgment, Label, PairVerdict, Sample, Shown, Unparsed
from judgelm.runs.runner import judge
from judgelm.training.arguments import JudgeArguments
from judgelm.training.finished_judge import save_judge
from judgelm.training.rows.builder import RowCounts
from judgelm.training.sft import JudgeSFTConfig
from judgelm.training.validation import ValidationPairs, draw_pairs, load_validation, validation_metrics
from tests.support.recipe_runs import LORA, TWO, configure, finish, history, prepare, run_here, start, write_rows
from tests.support.tiny_judges import TEMPLATE, word_sample

SHAPE = {"per_device_train_batch_size": 16, "gradient_accumulation_steps": 1, "learning_rate": 4e-3}
SHAPE |= {"save_strategy": "no", "save_total_limit": None}


def word_row(seed, *, fewer=True):
    """A pair scored by how few words each answer has, with a reference; or by how many, without."""
    sample = word_sample(seed)
    counts = [len(answer.split()) for answer in sample.answers]
    scores = [11 - count for count in counts] if fewer else counts
    first, second = sample.answers
    row = {"question_id": str(seed), "question_body": sample.question, "answer1_body": first, "answer2_body": second}
    reference, referenced = ({"text": "a fox"}, scores) if fewer else (None, None)
    return row | {"score": scores, "reference": reference, "score_w_reference": referenced}


def write(path, seeds, **options):
    return write_rows(path, [word_row(seed, **options) for seed in seeds])


def tune(base, folder, train, evaluation, *, judge=None, **options):
    """A trainer for these files, ready to run, with what `save_judge` needs."""
    own = {"eval_data": [evaluation] if evaluation else [], "reason_prob": 0.0, "swap_prob": 0.0} | (judge or {})
    return prepare(base, folder, train, judge=own, **SHAPE | options)


def facts_in(folder):
    return find_card(str(folder)).training


def evaluations(trainer):
    return [entry for entry in trainer.state.log_history if "eval_loss" in entry]


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    folder = tmp_path_factory.mktemp("words")
    return write(folder / "train.jsonl", range(640)), write(folder / "eval.jsonl", range(1000, 1060))


@pytest.fixture(scope="module")
def trained(tiny_judge, world, tmp_path_factory):
    """A judge that likes many words, taught to like few: its agreement must rise."""
    folder = tmp_path_factory.mktemp("judging") / "judge"
    options = {"num_train_epochs": 3, "eval_strategy": "steps", "eval_steps": 40, "lr_scheduler_type": "cosine"}
    trainer, *arguments = tune(tiny_judge, folder, *world, judge={"eval_pairs": 40}, **options)
    trainer.train()
    save_judge(trainer, *arguments)
    return trainer, folder


def test_agreement_rises_as_the_judge_learns(trained):
    first, *_, last = entries = evaluations(trained[0])
    assert len(entries) == 3  # 120 steps, every 40
    assert last["eval_agreement"] > first["eval_agreement"] + 0.1
    assert last["eval_agreement_by_mean"] > first["eval_agreement_by_mean"] + 0.2


def assert_metrics_of_a_batch_run(trainer, folder):
    pairs, logged = trainer.validation.pairs, evaluations(trainer)[-1]
    with Judge(str(folder), engine="transformers") as saved:
        judged = list(judge(pairs.samples, saved.pairwise(both_orders=True), saved.engine))
    for kind, metrics in validation_metrics(judged, pairs).items():
        for name, value in metrics.numbers().items():
            assert logged[f"eval_{name}_{kind}" if kind else f"eval_{name}"] == value


def test_metrics_are_those_of_a_batch_run_and_the_card_has_the_last(trained):
    trainer, folder = trained
    assert len(trainer.validation.pairs.kinds) == 2
    assert_metrics_of_a_batch_run(trainer, folder)
    metrics = facts_in(folder)["metrics"]
    agreement = metrics["agreement"]
    assert agreement["value"] == evaluations(trainer)[-1]["eval_agreement"]
    assert agreement["low"] < agreement["value"] < agreement["high"]
    assert (agreement["n"], metrics["with_reference"]["agreement"]["n"]) == (80, 40)
    assert metrics["checkpoint"] == {"step": 120, "steps": 120, "chosen_by": None}
    assert (metrics["pairs"], metrics["pairs_available"]) == (40, 60)


def test_training_does_not_notice_its_evaluations(tiny_model, world, tmp_path):
    options = {"model_init_kwargs": {"attention_dropout": 0.2}, "model": LORA | {"lora_dropout": 0.2}}
    options |= {"max_steps": 6, "gradient_checkpointing": True, "judge": {"eval_pairs": 3}}
    losses = []
    for name, evaluation in (("without", None), ("with", world[1])):
        strategy = {"eval_strategy": "steps", "eval_steps": 2} if evaluation else {}
        trainer, *_ = tune(tiny_model, tmp_path / name, world[0], evaluation, **options, **strategy)
        attention = trainer.model.config._attn_implementation
        trainer.train()
        assert trainer.model.config._attn_implementation == attention
        losses.append([entry["loss"] for entry in trainer.state.log_history if "loss" in entry])
    assert len(evaluations(trainer)) == 3
    assert losses[0] == losses[1]


def test_a_run_stops_when_nothing_gets_better_and_a_resumed_one_goes_on_counting(tiny_judge, world, tmp_path):
    few = write(tmp_path / "few.jsonl", range(160))

    def stopping(name, patience):
        return tune(
            tiny_judge, tmp_path / name, few, world[1], max_steps=9, learning_rate=0.0, eval_strategy="steps",
            eval_steps=1, save_strategy="steps", save_steps=1, metric_for_best_model="eval_agreement",
            judge={"early_stopping_patience": patience, "eval_pairs": 5, "reference_drop_prob": 1.0},
        )  # fmt: skip

    whole, *_ = stopping("whole", 3)
    whole.train()
    resumed, *_ = stopping("resumed", 3)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole/checkpoint-2"))
    # the first is the best so far, three more are no better
    assert (whole.state.global_step, resumed.state.global_step) == (4, 4)
    patient, *arguments = stopping("patient", 5)  # a larger patience: two more
    patient.train(resume_from_checkpoint=str(tmp_path / "whole/checkpoint-2"))
    assert patient.state.global_step == 6
    save_judge(patient, *arguments)
    facts = facts_in(tmp_path / "patient")
    assert facts["steps"] == 6
    epochs = patient.rows.schedule.epochs_of(patient.rows.per_epoch)
    assert facts["epochs"] == pytest.approx(epochs * 6 / 9)  # of the nine steps that were configured


def test_the_best_checkpoint_is_what_is_saved_and_what_the_card_speaks_of(tiny_judge, world, tmp_path):
    many = write(tmp_path / "many.jsonl", range(2000, 2040), fewer=False)  # what the judge knows, and now unlearns
    steps = {"eval_strategy": "steps", "eval_steps": 3, "save_strategy": "steps", "save_steps": 3}
    best = {"load_best_model_at_end": True, "metric_for_best_model": "eval_agreement", "max_steps": 9}
    trainer, *arguments = tune(tiny_judge, tmp_path / "judge", world[0], many, warmup_steps=9, **steps, **best)
    trainer.train()
    save_judge(trainer, *arguments)
    agreements = {entry["step"]: entry["eval_agreement"] for entry in evaluations(trainer)}
    best = max(agreements, key=agreements.get)
    facts = facts_in(tmp_path / "judge")
    assert facts["steps"] == best < 9
    assert facts["epochs"] == pytest.approx(trainer.rows.schedule.epochs_of(trainer.rows.per_epoch) * best / 9)
    logged = {entry["step"]: entry["loss"] for entry in trainer.state.log_history if "loss" in entry}
    assert facts["last_loss"] == logged[best]
    assert facts["metrics"]["checkpoint"] == {"step": best, "steps": 9, "chosen_by": "eval_agreement"}
    assert facts["metrics"]["agreement"]["value"] == agreements[best] > agreements[9]
    folders = (tmp_path / f"judge/checkpoint-{best}", tmp_path / "judge")
    checkpoint, saved = (load_file(folder / "model.safetensors") for folder in folders)
    assert all(torch.equal(saved[name], weight) for name, weight in checkpoint.items())


def test_an_adapter_is_judged_as_it_is_saved_with_the_prompts_of_its_rows(tiny_judge, world, tmp_path):
    own = {"reference_drop_prob": 1.0, "eval_pairs": 20}
    trainer, *arguments = tune(tiny_judge, tmp_path, *world, max_steps=3, learning_rate=0.02, model=LORA, judge=own)
    pairs = trainer.validation.pairs
    assert pairs.kinds == ("without_reference",)
    assert all(sample.reference is None for sample in pairs.samples)
    trainer.train()
    save_judge(trainer, *arguments)
    assert_metrics_of_a_batch_run(trainer, tmp_path)


def test_the_draw_depends_on_seed_and_id_alone(tmp_path):
    path = write(tmp_path / "one.jsonl", range(50), fewer=False)
    kinds = ("without_reference", "with_reference")
    draws = [draw_pairs([path], kinds=kinds, count=count, seed=seed) for count, seed in ((10, 0), (20, 0), (10, 1))]
    few, more, other = ({sample.id for sample in pairs.samples} for pairs in draws)
    assert few < more
    assert few != other
    twice = draw_pairs([path, path], kinds=kinds, count=100, seed=0)  # the same ids in two files are not one
    assert (twice.pairs, len({sample.id for sample in twice.samples})) == (100, 100)


def judgment(name, given, swapped):
    """One reply an order, as scores shown; None could not be read."""
    orders, failure = {(0, 1): given, (1, 0): swapped}, Unparsed("off_grammar", "?")
    shown = [Shown(order=order, text="", scores=s, failure=None if s else failure) for order, s in orders.items()]
    record = Judgment(sample_id=name, mode="pair", verdict=None, shown=tuple(shown), failure=failure)
    if None in (given, swapped):
        return record
    lead = given[0] + swapped[1] - given[1] - swapped[0]
    return replace(record, verdict=PairVerdict(winner=1 if lead > 0 else 2 if lead < 0 else "tie"), failure=None)


EPOCHS = {"eval_strategy": "epoch"}


def test_figures_worked_by_hand():
    judged = [
        judgment("a", (8, 3), (3, 8)),  # 1 both times; the label says 1
        judgment("b", (8, 3), (9, 2)),  # whoever stands first: (8 + 2, 3 + 9), so 2; the label says 1
        judgment("c", (5, 5), (5, 5)),  # a tie, as the label
        judgment("d", None, (5, 6)),  # the label is a tie; a failure is not
    ]
    winners = {"a": 1, "b": 1, "c": "tie", "d": "tie"}
    samples = tuple(Sample(id=name, question=name, answers=("x", "y")) for name in winners)
    labels = {name: Label(sample_id=name, winner=winner) for name, winner in winners.items()}
    kinds = dict.fromkeys(winners, "without_reference")
    pairs = ValidationPairs(samples=samples, labels=labels, kind_of=kinds, pairs=4, available=4)
    metrics = validation_metrics(judged, pairs)
    assert list(metrics) == [None]
    # given order: a, b and c agree, d cannot be read; by the mean a and c; of 3 readable in both orders 2 are
    # consistent and 1 leans to the first; 1 reply of 8 unreadable
    expected = {"agreement": 3 / 4, "agreement_by_mean": 2 / 4, "consistency": 2 / 3, "delta_bias": 1 / 3}
    assert (metrics[None].numbers(), metrics[None].agreement.n) == (expected | {"failed": 1 / 8}, 4)


@pytest.mark.parametrize(
    ("options", "args", "message"),
    [
        ({"eval_pairs": -1}, {}, "eval_pairs is -1; expected"),
        ({"early_stopping_patience": 0}, {}, "early_stopping_patience is 0"),
        ({"early_stopping_patience": 1}, {}, "add metric_for_best_model: eval_agreement"),
        ({}, {"metric_for_best_model": "eval_agreement"}, "set eval_data and eval_strategy"),
        ({}, EPOCHS | {"metric_for_best_model": "eval_bleu"}, "eval_bleu not found.* eval_agreement_with_reference"),
        ({}, EPOCHS | {"metric_for_best_model": "eval_failed"}, "add greater_is_better: false"),
    ],
)
def test_an_evaluation_that_cannot_be_is_refused_with_the_way_out(world, tmp_path, options, args, message):
    judge = JudgeArguments(train_data=[world[0]], template=TEMPLATE, **{"eval_data": [world[1]]} | options)
    args = JudgeSFTConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False, **args)
    rows = SimpleNamespace(counts=RowCounts(made=4, kinds=Counter(pair=4), with_reference=2), window=256)
    with pytest.raises(ConfigError, match=message):
        load_validation(judge, args, rows)


def test_pairs_without_the_labels_of_training_are_refused(tmp_path):
    plain = write(tmp_path / "plain.jsonl", range(3), fewer=False)
    with pytest.raises(InputError, match=r"plain\.jsonl: no pair .* with a reference"):
        draw_pairs([plain], kinds=["with_reference"], count=3, seed=0)


AUTO = ("train_micro_batch_size_per_gpu", "gradient_accumulation_steps", "train_batch_size", "gradient_clipping")
# some weights stay whole, as small ones do
STAGE = {"stage": 3, "stage3_gather_16bit_weights_on_model_save": True, "stage3_param_persistence_threshold": 500}
ZERO_3 = {"zero_optimization": STAGE} | dict.fromkeys(AUTO, "auto")


def run_recipe(folder, processes, base, world, **options):
    """`train/sft.py` in so many processes on the CPU; what its evaluations logged, and the card's figures."""
    config = configure(
        folder, **SHAPE | {
            "model_name_or_path": str(base), "train_data": [world[0]], "eval_data": [world[1]], "max_steps": 4,
            "per_device_train_batch_size": 16 // processes, "eval_strategy": "steps", "eval_steps": 2,
            "save_strategy": "steps", "save_steps": 2, "reason_prob": 0.0, "load_best_model_at_end": True,
            "metric_for_best_model": "eval_agreement", "eval_pairs": 7, "reference_drop_prob": 1.0,
        } | options,
    )  # fmt: skip
    if processes > 1:
        finish(start(config, launcher=TWO))
    else:
        assert run_here(config) is None
    wanted = ("eval_agreement", "eval_consistency", "eval_delta_bias", "eval_failed")
    logged = history(folder / "out/checkpoint-4", "eval_agreement")
    metrics = [{name: value for name, value in entry.items() if name.startswith(wanted)} for entry in logged]
    return metrics, facts_in(folder / "out")["metrics"]


@pytest.mark.slow
@pytest.mark.parametrize("sharding", [{}, {"deepspeed": ZERO_3}], ids=["ddp", "zero3"])
def test_two_processes_share_the_judging_and_find_what_one_finds(tiny_judge, world, tmp_path, monkeypatch, sharding):
    monkeypatch.setenv("DS_ACCELERATOR", "cpu")
    alone = run_recipe(tmp_path / "one", 1, tiny_judge, world)
    assert len(alone[0]) == 2
    assert run_recipe(tmp_path / "two", 2, tiny_judge, world, **sharding) == alone
