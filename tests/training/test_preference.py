"""`train/preference.py`: P(first better) is that of the engine, with gradients of separate passes, and is learned."""

import json
import math
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM

from judgelm.data.labelled_pair import scores_by_preference
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.errors import ConfigError, InputError
from judgelm.judge import Judge
from judgelm.modes import Pairwise
from judgelm.prompts.judge_card import find_card
from judgelm.runs.runner import judge
from judgelm.training.preference import PreferenceArguments, check_preference_arguments
from judgelm.training.rows.pairs import PairRowBuilder, PairRowOptions
from judgelm.training.score_line_loss import (
    ScoreLineObjective,
    ScoreLineTrees,
    additive_mask,
    line_logprobs,
    pair_losses,
    path_logprobs,
    preference_logprobs,
    tree_batch,
)
from tests.support import recipe_runs
from tests.support.recipe_runs import LORA
from tests.support.tiny_judges import TEMPLATE, word_sample

SAMPLES = [word_sample(f"preference {number}") for number in range(24)]


@pytest.fixture
def model(tiny_judge):
    return AutoModelForCausalLM.from_pretrained(tiny_judge, dtype=torch.float32, attn_implementation="sdpa")


def write_rows(path, preference):
    """Pairs whose preference follows from a sample."""
    rows = [{"id": one.id, "question": one.question, "answers": one.answers} | preference(one) for one in SAMPLES]
    return recipe_runs.write_rows(path, rows)


def built(tokenizer, path, **options):
    builder = PairRowBuilder(tokenizer, PairRowOptions(template=TEMPLATE, window=256, swap_prob=0.0, **options))
    return list(builder.read([path]))


def collate(tokenizer, rows, scale=(1, 10)):
    collator = ScoreLineObjective(ScoreLineTrees(tokenizer, TEMPLATE, scale), 0.5, 0.1)
    names = ("prompt_ids", "second_ids", "preference")
    return collator([{name: getattr(row, name) for name in names} for row in rows])


def logits_of(model, batch):
    return model(
        input_ids=batch["input_ids"], position_ids=batch["position_ids"],
        attention_mask=additive_mask(batch["attention_mask"], model.dtype),
        logits_to_keep=1 + len(batch["tree"]["tokens"]), use_cache=False,
    ).logits  # fmt: skip


def soft(sample):
    """In [0, 1]: the more words the second answer has, the better it is."""
    first, second = (len(answer.split()) for answer in sample.answers)
    return {"preference": round(second / (first + second), 3)}


def separate(model, prompt, reply):
    """Log-probability of a reply by a pass of its own, with gradients."""
    logs = model(torch.tensor([[*prompt, *reply]])).logits[0].log_softmax(-1)
    return sum(logs[len(prompt) - 1 + index, token] for index, token in enumerate(reply))


@pytest.mark.parametrize("scale", [(1, 3), (9, 11)])
def test_the_tree_in_one_pass_is_a_pass_for_each_line_in_values_and_gradients(model, tokenizer, tmp_path, scale):
    """From 9 to 11 the tiny tokenizer writes some scores as two tokens, so the tree has further levels."""
    row = built(tokenizer, write_rows(tmp_path / "rows.jsonl", soft), scale=scale)[0]
    trees = ScoreLineTrees(tokenizer, TEMPLATE, scale)
    ids = {text: tokenizer(text, add_special_tokens=False)["input_ids"] for text in trees.lines.texts}
    assert (max(map(len, ids.values())) > 2) == (scale == (9, 11))
    tree = trees.tree([scores_by_preference(row.preference, scale)])
    prompts = [row.prompt_ids.tolist(), row.second_ids.tolist()[3:]]  # of other lengths, so one is padded
    batch = tree_batch(prompts, tree) | {"tree": tree}
    lines = path_logprobs(logits_of(model, batch), tree)[:, : len(ids)]
    expected = torch.stack(
        [torch.stack([separate(model, prompt, each) for each in ids.values()]) for prompt in prompts]
    )
    assert lines.detach().numpy() == pytest.approx(expected.detach().numpy(), abs=1e-5)
    weights = list(model.parameters())
    mixture = torch.linspace(-1, 1, len(ids))
    gradients = torch.autograd.grad((lines * mixture).sum(), weights)
    for gradient, other in zip(gradients, torch.autograd.grad((expected * mixture).sum(), weights), strict=True):
        assert gradient.numpy() == pytest.approx(other.numpy(), abs=1e-4)


def test_p_of_training_is_that_of_the_judge(model, tokenizer, tiny_judge, tmp_path):
    rows = built(tokenizer, write_rows(tmp_path / "rows.jsonl", soft))[:6]
    batch = collate(tokenizer, rows)
    with torch.no_grad():
        lines = line_logprobs(path_logprobs(logits_of(model, batch), batch["tree"]), batch["tree"])
        first, second, assigned = preference_logprobs(lines, batch["tree"])
    assert (first.exp() + second.exp()).numpy() == pytest.approx(1, abs=1e-5)
    engine = load_engine("transformers", EngineOptions(model=str(tiny_judge), dtype="float32", device="cpu"))
    mode = Pairwise(template=TEMPLATE, both_orders=True, distribution=True)
    judgments = {judgment.sample_id: judgment for judgment in judge(SAMPLES[:6], mode, engine)}  # in any order
    engine.close()
    for index, judgment in enumerate(judgments[row.sample_id] for row in rows):
        for order, row in enumerate((index, index + 6)):
            distribution = judgment.shown[order].distribution
            assert first[row].exp().item() == pytest.approx(distribution.first_better, abs=1e-5)
            assert assigned[row].exp().item() == pytest.approx(1 - distribution.unassigned, abs=1e-5)


def test_a_line_that_longer_ones_begin_with_counts_without_them():
    # the line 0 has half of all, of which line 1 a fifth: 0.5 - 0.1 = 0.4
    tree = {"longer": torch.tensor([[1], [2]])}
    paths = torch.tensor([[0.5, 0.1]]).log()
    assert line_logprobs(paths, tree).exp()[0].tolist() == pytest.approx([0.4, 0.1])


def uniform_tree(tokenizer, targets):
    """Logits under which every token is as likely, and the tree of a scale of 1 to 2."""
    tree = ScoreLineTrees(tokenizer, TEMPLATE, (1, 2)).tree(targets)
    return torch.zeros(len(targets), 1 + len(tree["tokens"]), len(tokenizer)), tree


def test_the_loss_of_a_tie_and_of_a_soft_preference(tokenizer):
    logits, tree = uniform_tree(tokenizer, [(1, 1), (1, 1)])
    # each of four lines is as likely, so P(first better) = 1/4 + 2/4/2 = 0.5 in both orders: CE = log 2, no gap
    for preference in (0.5, 0.8):
        losses, metrics = pair_losses(logits, tree, torch.tensor([preference]), 1.0, 0.0)
        assert losses.tolist() == pytest.approx([math.log(2)])
        assert metrics["consistency_loss"].item() == pytest.approx(0)
    # "1 1" and its line's end: one token each of the vocabulary
    line = len(tokenizer("1 1\n", add_special_tokens=False)["input_ids"]) * math.log(len(tokenizer))
    losses, metrics = pair_losses(logits, tree, torch.tensor([0.5]), 0.0, 0.5)
    assert losses.tolist() == pytest.approx([math.log(2) + 0.5 * line], rel=1e-5)


def test_the_consistency_term_is_the_squared_gap_of_the_orders(tokenizer):
    logits, tree = uniform_tree(tokenizer, [(1, 1), (1, 1)])
    two = tokenizer("2 1", add_special_tokens=False)["input_ids"][0]
    logits[:, 0, two] += math.log(3)  # the first score is 2 three times as often as 1, in both orders
    # P(2, 1) = 3/8, ties 1/2: P = 3/8 + 1/4 = 0.625 in both; consistent would be 0.625 and 0.375: gap 0.25
    losses, metrics = pair_losses(logits, tree, torch.tensor([0.5]), 2.0, 0.0)
    assert metrics["consistency_loss"].item() == pytest.approx(0.0625, abs=1e-5)
    entropy = -(math.log(0.625) + math.log(0.375)) / 2
    assert losses.tolist() == pytest.approx([entropy + 2 * 0.0625], abs=1e-5)


def test_both_orders_stand_in_the_batch_of_their_pair(tokenizer, tmp_path):
    rows = built(tokenizer, write_rows(tmp_path / "rows.jsonl", soft))[:3]
    batch = collate(tokenizer, rows)
    texts = [tokenizer.decode(row.prompt_ids) for row in rows], [tokenizer.decode(row.second_ids) for row in rows]
    for sample, given, swapped in zip(SAMPLES, *texts, strict=False):
        assert f"[1] {sample.answers[0]}\n[2] {sample.answers[1]}" in given
        assert f"[1] {sample.answers[1]}\n[2] {sample.answers[0]}" in swapped
    assert len(batch["input_ids"]) == 6
    assert batch["preference"].tolist() == pytest.approx([row.preference for row in rows])
    alone = collate(tokenizer, built(tokenizer, write_rows(tmp_path / "one.jsonl", soft), both_orders=False)[:3])
    assert len(alone["input_ids"]) == 3


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ({"preference": 0.7}, 0.7), ({"scores": [3, 8]}, 0.0), ({"winner": "1"}, 1.0), ({"winner": "tie"}, 0.5),
        ({"preference": 0.9, "scores": [7, 4], "reason": "who knows"}, 0.9),  # it stands before the scores
    ],
)  # fmt: skip
def test_labels_become_preferences(tokenizer, tmp_path, label, expected):
    path = write_rows(tmp_path / "rows.jsonl", lambda sample: label)
    assert {row.preference for row in built(tokenizer, path)} == {expected}


def test_rows_without_any_label_are_refused(tokenizer, tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", lambda sample: {})
    with pytest.raises(InputError, match=r"no usable rows \(24 no preference, scores or winner\)"):
        built(tokenizer, path)


@pytest.mark.parametrize(
    "option", [{"reason_prob": 1.0}, {"consistency_weight": -1.0}, {"score_weight": 2.0}, {"loss_average": "row"}]
)
def test_options_without_a_meaning_are_refused(option):
    with pytest.raises(ConfigError, match=f"^{next(iter(option))} is "):
        check_preference_arguments(PreferenceArguments(train_data=["rows.jsonl"], **option))


def settings(tiny_judge, path, **options):
    steps = {"num_train_epochs": 3, "learning_rate": 0.01, "save_steps": 3, "dtype": "float32", "lora_dropout": 0.1}
    return {"swap_prob": 0.0, "train_data": [path], "model_name_or_path": str(tiny_judge)} | steps | LORA | options


@pytest.fixture(scope="module")
def trained(tiny_judge, tmp_path_factory):
    """The judge of more words learns that fewer are better: its settings and its output.

    Rows are padded: the dropout of another layout draws other numbers, on which nine steps depend. `test_padding_free`
    compares the layouts.
    """
    folder = tmp_path_factory.mktemp("preference")
    rows = write_rows(folder / "rows.jsonl", soft)
    options = settings(tiny_judge, rows, eval_data=[rows], padding_free=False)
    assert recipe_runs.run_here(recipe_runs.configure(folder, **options), recipe="preference") is None
    return options, folder / "out"


def test_the_loss_falls_and_verdicts_follow_the_preferences(trained):
    _, out = trained
    history = json.loads((out / "checkpoint-9/trainer_state.json").read_text())["log_history"]
    train = [entry for entry in history if "preference_loss" in entry]
    assert train[-1]["preference_loss"] < train[0]["preference_loss"] - 0.3
    assert train[-1]["score_line_mass"] > 0.9
    facts = find_card(str(out)).training
    assert (facts["method"], facts["consistency_weight"], facts["rows"]) == ("preference", 0.5, 24)
    assert facts["metrics"]["agreement_by_mean"]["value"] > 0.7
    with Judge(str(out)) as trained_judge:
        found = [trained_judge.compare(one.question, *one.answers, distribution=True) for one in SAMPLES]
    right = [
        (one.probability > 0.5) == (soft(sample)["preference"] > 0.5)
        for one, sample in zip(found, SAMPLES, strict=True)
    ]
    assert sum(right) >= 18


def test_an_adapter_is_trained_further_from_its_weights(trained, tmp_path):
    options, first = trained
    further = options | {"adapter": str(first), "learning_rate": 1e-4, "lora_r": 2, "eval_data": []}
    assert recipe_runs.run_here(recipe_runs.configure(tmp_path, **further), recipe="preference") is None
    weights, others = (load_file(folder / "adapter_model.safetensors") for folder in (first, tmp_path / "out"))
    assert set(weights) == set(others)
    changes = [(weights[name] - others[name]).abs().max().item() for name in weights]  # Adam: a rate each step, at most
    assert 0 < max(changes) < 9 * 1.5e-4
    before, after = (recipe_runs.losses_of(folder / "checkpoint-9") for folder in (first, tmp_path / "out"))
    assert after[1] < before[1] - 0.3
    facts = find_card(str(tmp_path / "out")).training
    assert facts["lora"] == {"r": 4, "alpha": 32}
    assert (facts["began_from"]["method"], facts["began_from"]["learning_rate"]) == ("preference", 0.01)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"use_peft": False}, "use_peft is false; set it to true"),
        ({"template": "judgelm-chat"}, f"trained with template {TEMPLATE}, not judgelm-chat"),
        ({"adapter": "nowhere"}, "nowhere: no such folder"),
    ],
)
def test_an_adapter_that_does_not_fit_is_refused(trained, tmp_path, change, finding):
    options, first = trained
    other = recipe_runs.configure(tmp_path, **(options | {"adapter": str(first)} | change))
    assert finding in recipe_runs.run_here(other, recipe="preference")


def test_a_resumed_run_has_the_losses_of_an_uninterrupted_one(trained, tmp_path):
    options, whole = trained
    shutil.copytree(whole / "checkpoint-6", tmp_path / "out/checkpoint-6")
    assert recipe_runs.run_here(recipe_runs.configure(tmp_path, **options), recipe="preference") is None
    losses, expected = (recipe_runs.losses_of(out / "checkpoint-9") for out in (tmp_path / "out", whole))
    assert list(expected) == list(range(1, 10))
    assert losses == pytest.approx(expected, rel=1e-6)
