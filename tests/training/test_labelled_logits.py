"""The vocabulary is computed for labelled positions alone, and nothing of the loss changes for it."""

import json

import pytest
import torch
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, ModelConfig, SFTConfig
from trl.kernels import chunked_logprob
from trl.trainer import utils as trl_utils

from benchmarks.synthetic.pairs import generate
from judgelm.training.arguments import JudgeArguments
from judgelm.training.dpo import DPOArguments
from tests.support.recipe_runs import build

COMMON = {
    "max_length": 384, "per_device_train_batch_size": 4, "gradient_accumulation_steps": 1, "max_steps": 1,
    "use_cpu": True, "bf16": False, "save_strategy": "no", "report_to": "none", "gradient_checkpointing": False,
    "disable_tqdm": True,
}  # fmt: skip
LORA = {"use_peft": True, "lora_r": 4, "lora_target_modules": ["q_proj", "v_proj"]}
STEP_TOKENS = 100
"""Labelled tokens of a whole step, of which the batch is a part."""


@pytest.fixture(scope="module")
def train_file(tmp_path_factory):
    path = tmp_path_factory.mktemp("world") / "train.jsonl"
    path.write_text("".join(json.dumps(row) + "\n" for row in generate(16, seed=0, split="train")))
    return str(path)


@pytest.fixture(scope="module")
def untied(tiny_model, tmp_path_factory):
    """A model of the tiny one's shape whose output layer has weights of its own."""
    folder = tmp_path_factory.mktemp("untied")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        AutoModelForCausalLM.from_config(
            AutoConfig.from_pretrained(tiny_model, tie_word_embeddings=False)
        ).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(folder)
    return folder


@pytest.fixture
def tune(tiny_model, train_file, tmp_path):
    def prepared(base=tiny_model, judge=None, model=None, **options):
        arguments = JudgeArguments(train_data=[train_file], template="judgelm-compact", **(judge or {}))
        sft = SFTConfig(output_dir=str(tmp_path / "judge"), **COMMON | options)
        return build("sft", arguments, sft, ModelConfig(model_name_or_path=str(base), **(model or {})))

    return prepared


def batch_of(trainer):
    return next(iter(trainer.get_train_dataloader()))


def gradients_of(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}


def assert_same(model, one, other, *, tolerance=1e-6):
    """Losses and their gradients."""
    assert one.item() == pytest.approx(other.item(), rel=tolerance)
    ours, plain = gradients_of(model, one), gradients_of(model, other)
    assert ours.keys() == plain.keys()
    for name in ours:
        torch.testing.assert_close(ours[name], plain[name], atol=tolerance, rtol=1e-4)


@pytest.mark.parametrize("padding_free", [False, True])
@pytest.mark.parametrize("case", ["tied", "untied", "lora", "weighted"])
def test_loss_and_gradients_are_those_of_all_logits(tune, untied, case, padding_free):
    options = {"untied": {"base": untied}, "lora": {"model": LORA}, "weighted": {"judge": {"score_weight": 3.0}}}
    trainer = tune(padding_free=padding_free, **options.get(case, {}))
    batch, model = batch_of(trainer), trainer.model.eval()  # without dropout
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)  # at 0, as it begins, the adapter changes nothing
    labels = batch["labels"][:, 1:]
    weights = trainer._token_weights(batch) if case == "weighted" else (labels != -100).float()
    plain = {name: value for name, value in batch.items() if name not in ("labels", "score_line")}
    nll = cross_entropy(model(**plain).logits[:, :-1].transpose(1, 2), labels, reduction="none")
    ours = trainer.compute_loss(model, dict(batch), num_items_in_batch=STEP_TOKENS)
    assert_same(model, ours, (nll * weights).sum() / STEP_TOKENS)


def test_the_step_over_several_passes_and_the_metrics_are_those_of_all_positions(tune, monkeypatch):
    logged = []
    for alone in (True, False):
        trainer = tune(gradient_accumulation_steps=2, logging_steps=1, eval_strategy="no")
        if not alone:
            monkeypatch.setattr(trl_utils, "_use_triton", chunked_logprob._use_triton)
        trainer.train()
        [entry] = [entry for entry in trainer.state.log_history if "loss" in entry]
        logged.append([entry[name] for name in ("loss", "grad_norm", "mean_token_accuracy", "entropy", "num_tokens")])
    assert logged[0] == pytest.approx(logged[1], rel=1e-5)


def positions_scored(monkeypatch, compute):
    """How many positions went through the output layer."""
    seen = []
    apply = trl_utils._ChunkedLogProbFunction.apply
    monkeypatch.setattr(
        trl_utils._ChunkedLogProbFunction,
        "apply",
        lambda hidden, *rest: seen.append(len(hidden)) or apply(hidden, *rest),
    )
    compute()
    return seen


def test_only_labelled_positions_pass_the_output_layer_in_training_and_evaluation(tune, train_file, monkeypatch):
    judge = {"reason_prob": 0, "eval_data": [train_file], "eval_pairs": 0}
    trainer = tune(judge=judge, per_device_eval_batch_size=16)
    batch = batch_of(trainer)
    labelled = int((batch["labels"] != -100).sum())
    assert labelled < batch["labels"].numel() / 10
    assert positions_scored(monkeypatch, lambda: trainer.compute_loss(trainer.model, dict(batch))) == [labelled]
    expected = sum(label != -100 for row in trainer.eval_dataset["labels"] for label in row)
    monkeypatch.undo()
    assert positions_scored(monkeypatch, trainer.evaluate) == [expected]


def test_a_batch_without_a_label_gives_nought_and_gradients_of_nought(tune):
    # as a process may have one that shares its weights with others: it must pass all layers with them
    trainer = tune()
    batch = batch_of(trainer)
    batch["labels"] = torch.full_like(batch["labels"], -100)
    loss = trainer.compute_loss(trainer.model, batch, num_items_in_batch=STEP_TOKENS)
    assert loss.item() == 0
    gradients = gradients_of(trainer.model, loss)
    assert gradients.keys() == {name for name, _ in trainer.model.named_parameters()}
    assert not any(gradient.any() for gradient in gradients.values())


def test_two_judgments_are_compared_by_their_own_tokens_alone(tiny_model, tmp_path, monkeypatch):
    row = {"question": "what is it", "answer_1": "a fox", "answer_2": "a dog", "chosen": "8 6", "rejected": "3 7"}
    (tmp_path / "rows.jsonl").write_text("".join(json.dumps(row | {"id": str(number)}) + "\n" for number in range(4)))
    judge = DPOArguments(train_data=[str(tmp_path / "rows.jsonl")], template="judgelm-compact", swap_prob=0)
    dpo = DPOConfig(output_dir=str(tmp_path / "out"), **COMMON)
    trainer = build("dpo", judge, dpo, ModelConfig(model_name_or_path=str(tiny_model)))
    batch = batch_of(trainer)
    tokens = int(batch["completion_mask"].sum())  # 8 judgments of 3 tokens
    assert tokens == 24
    scored = positions_scored(monkeypatch, lambda: trainer.compute_loss(trainer.model, batch))
    assert scored == [tokens, tokens]  # the judge, and its reference
