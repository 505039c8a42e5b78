"""The loss: of labelled positions alone, weighted on the score line, never across rows; and its end where it breaks."""

import json
import math
import re
import shutil
from collections import Counter

import pytest
import torch
from tokenizers import Tokenizer, decoders, models
from torch.nn.functional import cross_entropy
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast, TrainerCallback
from trl import SFTConfig
from trl.trainer import utils as trl_utils
from trl.trainer.sft_trainer import DataCollatorForLanguageModeling

from judgelm.errors import TrainingError
from judgelm.training.rows.dataset import Schedule
from judgelm.training.sft import ScoreLineCollator, score_line_tokens
from judgelm.training.trainer import cast_weights, use_single_pass
from tests.support.poisoned_training import poison
from tests.support.recipe_runs import LORA, ROOT, TWO, configure, finish, prepare, start, write_rows, write_world
from tests.support.tiny_judges import CHAT

STEP_TOKENS = 100
"""Labelled tokens of a whole step, of which the batch is a part."""


@pytest.fixture
def tune(tiny_model, train_file, tmp_path):
    """Builds a trainer of two passes of four rows a step."""

    def prepared(base=tiny_model, **options):
        return prepare(base, tmp_path / "judge", train_file, **{"save_strategy": "no", "max_steps": 1} | options)[0]

    return prepared


@pytest.fixture(scope="module")
def untied(tiny_model, tmp_path_factory):
    """A model of the tiny one's shape whose output layer has weights of its own."""
    folder = tmp_path_factory.mktemp("untied")
    with torch.random.fork_rng():
        torch.manual_seed(1)
        config = AutoConfig.from_pretrained(tiny_model, tie_word_embeddings=False)
        AutoModelForCausalLM.from_config(config).save_pretrained(folder)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(folder)
    return folder


def batch_of(trainer):
    return next(iter(trainer.get_train_dataloader()))


def gradients_of(model, loss):
    model.zero_grad()
    loss.backward()
    return {name: each.grad.clone() for name, each in model.named_parameters() if each.grad is not None}


@pytest.mark.parametrize("padding_free", [False, True])
@pytest.mark.parametrize("case", ["tied", "untied", "lora"])
def test_loss_and_gradients_are_those_of_all_logits(tune, untied, case, padding_free):
    options = {"untied": {"base": untied}, "lora": {"model": LORA}}
    trainer = tune(padding_free=padding_free, **options.get(case, {}))
    batch, model = batch_of(trainer), trainer.model.eval()  # without dropout
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.1)  # at 0, as it begins, the adapter changes nothing
    labels = batch["labels"][:, 1:]
    logits = model(**{name: value for name, value in batch.items() if name != "labels"}).logits
    expected = cross_entropy(logits[:, :-1].transpose(1, 2), labels, reduction="sum") / STEP_TOKENS
    ours = trainer.compute_loss(model, dict(batch), num_items_in_batch=STEP_TOKENS)
    assert ours.item() == pytest.approx(expected.item(), rel=1e-6)
    gradients, plain = gradients_of(model, ours), gradients_of(model, expected)
    assert gradients.keys() == plain.keys()
    for name in gradients:
        torch.testing.assert_close(gradients[name], plain[name], atol=1e-6, rtol=1e-4)


def positions_scored(monkeypatch, compute):
    """How many positions went through the output layer."""
    counts, loss = [], trl_utils._ChunkedLogProbFunction
    apply = loss.apply
    with monkeypatch.context() as patch:
        patch.setattr(loss, "apply", lambda hidden, *rest: counts.append(len(hidden)) or apply(hidden, *rest))
        compute()
    return counts


def test_only_labelled_positions_pass_the_output_layer_in_training_and_evaluation(tune, train_file, monkeypatch):
    own = {"reason_prob": 0, "eval_data": [train_file], "eval_pairs": 0}
    trainer = tune(judge=own, per_device_eval_batch_size=96)
    batch = batch_of(trainer)
    labelled = int((batch["labels"] != -100).sum())
    assert labelled < batch["labels"].numel() / 10
    assert positions_scored(monkeypatch, lambda: trainer.compute_loss(trainer.model, dict(batch))) == [labelled]
    expected = sum(label != -100 for row in trainer.eval_dataset["labels"] for label in row)
    assert positions_scored(monkeypatch, trainer.evaluate) == [expected]


def test_a_batch_without_a_label_has_zero_loss_and_gradients(tune):
    # a process with sharded weights must pass all layers together with the others
    trainer = tune()
    batch = batch_of(trainer)
    batch["labels"] = torch.full_like(batch["labels"], -100)
    loss = trainer.compute_loss(trainer.model, batch, num_items_in_batch=STEP_TOKENS)
    assert loss.item() == 0
    gradients = gradients_of(trainer.model, loss)
    assert gradients.keys() == {name for name, _ in trainer.model.named_parameters()}
    assert not any(gradient.any() for gradient in gradients.values())


def weighted_by_hand(base, rows, weight, average="token"):
    """Sum of weight x nll over sum of weights, of all rows or the mean of each row's, and the norm of its gradients."""
    model = AutoModelForCausalLM.from_pretrained(base)
    [newline] = AutoTokenizer.from_pretrained(base)("\n")["input_ids"]
    total = weights = 0.0
    means = []
    for row in rows:
        if average == "row":
            total = weights = 0.0
        log_probs = model(input_ids=torch.tensor([row["input_ids"]])).logits[0].log_softmax(-1)
        in_score_line = True
        for place, label in enumerate(row["labels"]):
            if label != -100:
                share = weight if in_score_line else 1.0
                total, weights = total - share * log_probs[place - 1, label], weights + share
                in_score_line = in_score_line and label != newline
        means.append(total / weights)
    loss = sum(means) / len(means) if average == "row" else total / weights
    norms = torch.stack([gradient.norm() for gradient in gradients_of(model, loss).values()])
    return loss.item(), norms.norm().item()


@pytest.mark.parametrize("padding_free", [False, True])
@pytest.mark.parametrize(
    ("weight", "average"), [(3.0, "token"), (0.25, "token"), (1.0, "token"), (1.0, "row"), (3.0, "row")]
)
def test_tokens_and_rows_have_their_weights_over_the_whole_step(tune, tiny_model, weight, average, padding_free):
    trainer = tune(judge={"score_weight": weight, "loss_average": average}, padding_free=padding_free)
    assert len(batch_of(trainer)["input_ids"]) == (1 if padding_free else 4)
    rows = trainer.rows.dataset.select(range(8))  # two passes of four rows
    trainer.train()
    [logged] = [entry for entry in trainer.state.log_history if "loss" in entry]
    expected = weighted_by_hand(tiny_model, rows, weight, average)
    assert (logged["loss"], logged["grad_norm"]) == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("average", ["token", "row"])
def test_the_eval_loss_is_weighted_alike(tune, tiny_model, train_file, average):
    own = {"score_weight": 3.0, "loss_average": average, "eval_data": [train_file], "swap_prob": 0, "eval_pairs": 0}
    trainer = tune(judge=own, per_device_eval_batch_size=96)
    expected, _ = weighted_by_hand(tiny_model, trainer.eval_dataset, 3.0, average)
    assert trainer.evaluate()["eval_loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_row_does_not_see_the_tokens_of_another(tune, dtype):
    trainer = tune(padding_free=True)
    batch, model = batch_of(trainer), trainer.model.to(dtype).eval()
    first = int(batch["cu_seq_lens_q"][1])
    other = batch | {"input_ids": batch["input_ids"].clone()}
    other["input_ids"][0, :first] = other["input_ids"][0, :first].flip(0)
    with torch.no_grad():
        before, after = (model(**each, fused_lm_head=True).log_probs[0] for each in (batch, other))
    assert torch.equal(before[first:], after[first:])
    assert not torch.allclose(before[:first], after[:first])


@pytest.mark.parametrize(
    ("padding_free", "expected"),
    [(False, [[0, 0, 1, 1, 1, 1, 0], [0, 1, 1, 1, 0, 0, 0]]), (True, [[0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 1]])],
)
def test_score_lines_are_marked_where_their_tokens_stand_in_the_batch(tiny_model, padding_free, expected):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    pair, single = (tokenizer(text)["input_ids"] for text in ("10 3\n", " 10\n"))
    assert (len(pair), len(single)) == (4, 3)  # digits are tokens of their own
    rows = [
        {"input_ids": [5, 6, *pair, 9], "labels": [-100, -100, *pair, 9]},
        {"input_ids": [5, *single], "labels": [-100, *single]},
    ]
    collator = ScoreLineCollator(DataCollatorForLanguageModeling(0, padding_free=padding_free), tokenizer)
    assert collator(rows)["score_line"].int().tolist() == expected


def test_a_line_end_that_is_a_byte_ends_the_score_line_too():
    # as Vicuna's tokenizer has it
    vocabulary = {"▁8": 0, "▁": 1, "3": 2, "<0x0A>": 3, "because": 4}
    fast = Tokenizer(models.BPE(vocabulary, [], byte_fallback=True))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    fast.decoder = decoders.Sequence(steps)
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=fast)
    # without an end, the whole
    assert [score_line_tokens(ids, tokenizer) for ids in ([0, 1, 2, 3, 4], [0, 1, 2])] == [4, 3]


def test_weights_are_cast_and_stay_shared_but_whole_numbers_and_exempt_modules_as_they_are():
    table = torch.ones(3, 2)
    weights = {"embed.weight": table, "head.weight": table, "steps": torch.tensor([1]), "gate.bias": table}
    cast = cast_weights(weights, torch.bfloat16, {"gate"})
    assert cast["head.weight"] is cast["embed.weight"]
    assert [weight.dtype for weight in cast.values()] == [torch.bfloat16] * 2 + [torch.long, torch.float32]


def test_what_is_counted_in_epochs_stays_so_where_all_epochs_are_one_pass(tmp_path):
    options = {"eval_strategy": "epoch", "eval_delay": 2, "save_strategy": "epoch", "bf16": False, "use_cpu": True}
    args = SFTConfig(output_dir=str(tmp_path), **options)
    schedule = Schedule(epochs=3.0, steps=None, batch=16, group_by_length=False, seed=0)
    use_single_pass(args, schedule, epochs=3, rows_per_epoch=40)
    # 40 rows, 16 a step: an epoch ends within the third
    assert (args.eval_steps, args.save_steps, args.eval_delay) == (3, 3, 6)


@pytest.mark.slow
@pytest.mark.parametrize("average", ["token", "row"])
def test_two_processes_divide_by_the_weights_of_all_rows(tune, tiny_model, train_file, tmp_path, average):
    loss = {"score_weight": 3.0, "loss_average": average}
    trainer = tune(judge=loss, max_steps=2)
    trainer.train()
    expected = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
    files = {"model_name_or_path": str(tiny_model), "train_data": [train_file]}
    config = configure(tmp_path / "two", **files, **loss, gradient_accumulation_steps=1, max_steps=2)
    output = finish(start(config, launcher=TWO))
    losses = [float(loss) for loss in re.findall(r"'loss': '([^']+)'", output)]
    assert losses == pytest.approx(expected, rel=1e-3)  # printed with four digits


SHAPE = {"max_length": 384, "per_device_train_batch_size": 2, "max_steps": 6, "learning_rate": 0.001}
SHAPE |= {"save_steps": 1, "save_total_limit": 1}
"""Two passes of two rows a step."""


@pytest.fixture
def rows(tmp_path):
    return write_world(tmp_path / "rows.jsonl", 40)


def breaking(base, rows, folder, **options):
    return prepare(base, folder, rows, **SHAPE | options)[0]


def broken(folder):
    """The only file of a broken step."""
    [path] = folder.glob("nan_step_*.json")
    return json.loads(path.read_text())


def checkpoints(folder):
    return sorted(path.name for path in folder.glob("checkpoint-*"))


def rare_tokens(dataset):
    """Place and id of each token that one row alone has."""
    holders = Counter(token for row in dataset for token in set(row["input_ids"]))
    return [(place, id_) for place, row in enumerate(dataset) for id_ in row["input_ids"] if holders[id_] == 1]


def test_a_row_that_breaks_the_loss_ends_the_training_at_its_step(tiny_model, rows, tmp_path):
    folder = tmp_path / "judge"
    trainer = breaking(tiny_model, rows, folder, model={"use_peft": True, "lora_r": 2})
    dataset = trainer.rows.dataset
    place, token = max(each for each in rare_tokens(dataset) if each[0] < 24)  # the last before step 6
    step = place // 4
    assert step > 0
    poison(trainer.model, token)  # in memory: a base with NaN on disk is refused
    with pytest.raises(TrainingError, match=rf"nan_step_{step}\.json: .*loss is nan in step {step}"):
        trainer.train()
    record = broken(folder)
    assert (record["step"], record["what"], record["loss"]) == (step, "loss", "nan")
    assert record["sample_ids"] == dataset["sample_id"][step * 4 : step * 4 + 4]
    assert record["learning_rate"] == pytest.approx(0.001 * (6 - step) / 6)  # linear from 0.001 over six steps
    assert checkpoints(folder) == [f"checkpoint-{step}"]  # steps 0 to step - 1


class BreakWeight(TrainerCallback):
    """One weight becomes infinite at the end of a step, as after gradients that overflowed."""

    def on_step_end(self, args, state, control, model=None, **others):
        if state.global_step == 3:
            next(model.parameters()).data[0, 0] = float("inf")


def test_weights_that_broke_do_not_take_a_checkpoints_place(tiny_model, rows, tmp_path):
    trainer = breaking(tiny_model, rows, tmp_path)
    trainer.add_callback(BreakWeight())
    with pytest.raises(TrainingError, match=r"nan_step_2\.json: .*weights .* step 2"):
        trainer.train()
    record = broken(tmp_path)
    assert (record["what"], record["sample_ids"]) == ("weights", trainer.rows.dataset["sample_id"][8:12])
    assert 0 < record["loss"] < 20  # the loss of that step was still finite
    assert checkpoints(tmp_path) == ["checkpoint-2"]
    with pytest.raises(TrainingError):
        trainer.save_model(str(tmp_path))
    assert not (tmp_path / "model.safetensors").exists()


def test_the_loss_of_a_broken_step_of_pairs_is_the_mean_over_its_passes(tiny_model, tmp_path):
    base = shutil.copytree(tiny_model, tmp_path / "base")
    tokenizer = AutoTokenizer.from_pretrained(base)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(base)
    pairs = [{"question": "what is it", "answers": ["a fox", "a dog"], "preference": 0.9} for _ in range(24)]
    rows = write_rows(tmp_path / "pairs.jsonl", pairs)
    trainer = breaking(base, rows, tmp_path, recipe="reward", gradient_accumulation_steps=4, learning_rate=0.0)
    torch.nn.init.zeros_(trainer.model.score.weight)
    trainer.add_callback(BreakWeight())
    with pytest.raises(TrainingError, match="weights are not finite"):
        trainer.train()
    assert broken(tmp_path)["loss"] == pytest.approx(math.log(2), abs=1e-4)  # both answers still have reward 0


@pytest.mark.slow
def test_two_processes_stop_together_where_the_rows_of_one_break(tiny_model, rows, tmp_path):
    dataset = breaking(tiny_model, rows, tmp_path / "first").rows.dataset
    # a pass of two rows in each of two processes: rows 2 and 3 of a step are the second's
    place, token = next(each for each in rare_tokens(dataset) if each[0] % 4 > 1)
    folder = tmp_path / "judge"
    options = SHAPE | {"gradient_accumulation_steps": 1, "max_steps": 10, "model": {"use_peft": True, "lora_r": 2}}
    (tmp_path / "two.json").write_text(json.dumps([[str(tiny_model), str(folder), rows], options, token]))
    process = start(tmp_path / "two.json", launcher=TWO, script=ROOT / "tests/support/poisoned_training.py")
    output, _ = process.communicate(timeout=280)
    assert process.returncode != 0
    assert "the loss is nan" in output
    record, step = broken(folder), place // 4
    ids = dataset["sample_id"][step * 4 : step * 4 + 4]  # both processes' rows
    assert (record["step"], record["sample_ids"]) == (step, ids)
    assert checkpoints(folder) == ([f"checkpoint-{step}"] if step else [])
