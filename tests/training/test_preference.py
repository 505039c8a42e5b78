"""`train/preference.py`: losses by hand, the engine's P(first better), and judges that learn from preferences."""

import json
import math
import shutil

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.tiny_model import make_base
from judgelm.data.labelled_pair import scores_by_preference
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.errors import ConfigError, InputError
from judgelm.judge import Judge
from judgelm.modes import Pairwise
from judgelm.prompts.catalog import get_template, read_texts
from judgelm.prompts.judge_card import PromptSource, find_card
from judgelm.prompts.prompt_template import prompt_template
from judgelm.runs.runner import judge
from judgelm.training import score_line_loss
from judgelm.training.arguments import JudgeArguments, check_arguments
from judgelm.training.grpo import GRPOArguments
from judgelm.training.preference import PreferenceArguments, check_preference_arguments
from judgelm.training.reward import RewardArguments
from judgelm.training.rows.pairs import PairRowBuilder, PairRowOptions
from judgelm.training.score_line_loss import ScoreLineObjective, ScoreLineTrees
from judgelm.training.sft import JudgeSFTConfig
from judgelm.training.word_loss import WordTokens, WordWeights, left_padded, word_losses, word_tokens
from tests.support import recipe_runs
from tests.support.jsonl_files import rows_of
from tests.support.recipe_runs import LORA, ROOT
from tests.support.tiny_judges import TEMPLATE, word_sample

SAMPLES = [word_sample(f"preference {number}") for number in range(24)]


@pytest.fixture
def model(tiny_judge):
    return AutoModelForCausalLM.from_pretrained(tiny_judge, dtype=torch.float32, attn_implementation="sdpa")


def write_rows(path, preference):
    """Pairs whose preference follows from a sample."""
    rows = [{"id": s.id, "question": s.question, "answers": s.answers} | preference(s) for s in SAMPLES]
    return recipe_runs.write_rows(path, rows)


def built(tokenizer, path, **options):
    builder = PairRowBuilder(tokenizer, PairRowOptions(template=TEMPLATE, window=256, swap_prob=0.0, **options))
    return list(builder.read([path]))


def collate(tokenizer, rows, scale=(1, 10)):
    collator = ScoreLineObjective(ScoreLineTrees(tokenizer, TEMPLATE, scale), 0.5, 0.1)
    names = ("prompt_ids", "second_ids", "preference")
    return collator([{name: getattr(row, name) for name in names} for row in rows])


def logits_of(model, batch):
    inputs = {"input_ids": batch["input_ids"], "position_ids": batch["position_ids"], "use_cache": False}
    mask = score_line_loss.additive_mask(batch["attention_mask"], model.dtype)
    return model(**inputs, attention_mask=mask, logits_to_keep=1 + len(batch["tree"]["tokens"])).logits


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
    batch = score_line_loss.tree_batch(prompts, tree) | {"tree": tree}
    lines = score_line_loss.path_logprobs(logits_of(model, batch), tree)[:, : len(ids)]
    expected = torch.stack([torch.stack([separate(model, each, line) for line in ids.values()]) for each in prompts])
    torch.testing.assert_close(lines, expected, atol=1e-5, rtol=0)
    weights, mixture = list(model.parameters()), torch.linspace(-1, 1, len(ids))
    gradients, others = (torch.autograd.grad((each * mixture).sum(), weights) for each in (lines, expected))
    torch.testing.assert_close(gradients, others, atol=1e-4, rtol=0)


def test_p_of_training_is_that_of_the_judge(model, tokenizer, tiny_judge, tmp_path):
    rows = built(tokenizer, write_rows(tmp_path / "rows.jsonl", soft))[:6]
    batch = collate(tokenizer, rows)
    with torch.no_grad():
        paths = score_line_loss.path_logprobs(logits_of(model, batch), batch["tree"])
        lines = score_line_loss.line_logprobs(paths, batch["tree"])
        first, second, assigned = score_line_loss.preference_logprobs(lines, batch["tree"])
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
    lines = score_line_loss.line_logprobs(torch.tensor([[0.5, 0.1]]).log(), {"longer": torch.tensor([[1], [2]])})
    assert lines.exp()[0].tolist() == pytest.approx([0.4, 0.1])


def uniform_tree(tokenizer):
    """Logits that make every token equally likely in both orders of a tie, and the tree of a scale of 1 to 2."""
    tree = ScoreLineTrees(tokenizer, TEMPLATE, (1, 2)).tree([(1, 1), (1, 1)])
    return torch.zeros(2, 1 + len(tree["tokens"]), len(tokenizer)), tree


def test_the_loss_of_a_tie_and_of_a_soft_preference(tokenizer):
    logits, tree = uniform_tree(tokenizer)
    # each of four lines is as likely, so P(first better) = 1/4 + 2/4/2 = 0.5 in both orders: CE = log 2, no gap
    for preference in (0.5, 0.8):
        losses, metrics = score_line_loss.pair_losses(logits, tree, torch.tensor([preference]), 1.0, 0.0)
        assert losses.tolist() == pytest.approx([math.log(2)])
        assert metrics["consistency_loss"].item() == pytest.approx(0)
    # "1 1" and its line's end: one token each of the vocabulary
    line = len(tokenizer("1 1\n", add_special_tokens=False)["input_ids"]) * math.log(len(tokenizer))
    losses, metrics = score_line_loss.pair_losses(logits, tree, torch.tensor([0.5]), 0.0, 0.5)
    assert losses.tolist() == pytest.approx([math.log(2) + 0.5 * line], rel=1e-5)


def test_the_consistency_term_is_the_squared_gap_of_the_orders(tokenizer):
    logits, tree = uniform_tree(tokenizer)
    two = tokenizer("2 1", add_special_tokens=False)["input_ids"][0]
    logits[:, 0, two] += math.log(3)  # the first score is 2 three times as often as 1, in both orders
    # P(2, 1) = 3/8, ties 1/2: P = 3/8 + 1/4 = 0.625 in both; consistent would be 0.625 and 0.375: gap 0.25
    losses, metrics = score_line_loss.pair_losses(logits, tree, torch.tensor([0.5]), 2.0, 0.0)
    assert metrics["consistency_loss"].item() == pytest.approx(0.0625, abs=1e-5)
    entropy = -(math.log(0.625) + math.log(0.375)) / 2
    assert losses.tolist() == pytest.approx([entropy + 2 * 0.0625], abs=1e-5)


def test_both_orders_stand_in_the_batch_of_their_pair(tokenizer, tmp_path):
    rows = built(tokenizer, write_rows(tmp_path / "rows.jsonl", soft))[:3]
    batch = collate(tokenizer, rows)
    for sample, row in zip(SAMPLES, rows, strict=False):
        first, second = sample.answers
        assert f"[1] {first}\n[2] {second}" in tokenizer.decode(row.prompt_ids)
        assert f"[1] {second}\n[2] {first}" in tokenizer.decode(row.second_ids)
    assert len(batch["input_ids"]) == 6
    assert batch["preference"].tolist() == pytest.approx([row.preference for row in rows])
    alone = collate(tokenizer, built(tokenizer, write_rows(tmp_path / "one.jsonl", soft), both_orders=False)[:3])
    assert len(alone["input_ids"]) == 3


def test_labels_become_preferences(tokenizer, tmp_path):
    labels = [{"preference": 0.7}, {"scores": [3, 8]}, {"winner": "1"}, {"winner": "tie"}]
    labels += [{"preference": 0.9, "scores": [7, 4], "reason": "who knows"}]  # the preference takes precedence
    rows = [{"id": str(n), "question": "q", "answers": ["a", "b"]} | label for n, label in enumerate(labels)]
    path = recipe_runs.write_rows(tmp_path / "rows.jsonl", rows)
    preferences = {row.sample_id: row.preference for row in built(tokenizer, path)}
    assert preferences == {"0": 0.7, "1": 0.0, "2": 1.0, "3": 0.5, "4": 0.9}


def test_rows_without_any_label_are_refused(tokenizer, tmp_path):
    path = write_rows(tmp_path / "rows.jsonl", lambda sample: {})
    with pytest.raises(InputError, match=r"no usable rows \(24 no preference"):
        built(tokenizer, path)


@pytest.fixture(scope="module")
def trained(tiny_judge, tmp_path_factory):
    """The judge of more words learns that fewer are better: its settings and its output.

    Rows are padded: the dropout of another layout draws other numbers, on which nine steps depend. `test_attention`
    compares the layouts.
    """
    folder = tmp_path_factory.mktemp("preference")
    rows = write_rows(folder / "rows.jsonl", soft)
    steps = {"num_train_epochs": 3, "learning_rate": 0.01, "save_steps": 3, "dtype": "float32", "padding_free": False}
    data = {"train_data": [rows], "eval_data": [rows], "model_name_or_path": str(tiny_judge)}
    options = data | steps | LORA | {"swap_prob": 0.0, "lora_dropout": 0.1}
    return options, recipe_runs.train(folder, recipe="preference", **options)


def test_the_loss_falls_and_verdicts_follow_the_preferences(trained):
    _, out = trained
    first, *_, last = recipe_runs.history(out / "checkpoint-9", "preference_loss")
    assert last["preference_loss"] < first["preference_loss"] - 0.3
    assert last["score_line_mass"] > 0.9
    facts = find_card(str(out)).training
    assert (facts["method"], facts["consistency_weight"], facts["rows"]) == ("preference", 0.5, 24)
    assert facts["metrics"]["agreement_by_mean"]["value"] > 0.7
    with Judge(str(out)) as trained_judge:
        judged = [(trained_judge.compare(each.question, *each.answers, distribution=True), each) for each in SAMPLES]
    assert sum((judgment.probability > 0.5) == (soft(each)["preference"] > 0.5) for judgment, each in judged) >= 18


def test_an_adapter_is_trained_further_from_its_weights(trained, tmp_path):
    options, finished = trained
    first = shutil.copytree(finished, tmp_path / "first")
    card = json.loads((first / "judge.json").read_text())
    (first / "judge.json").write_text(json.dumps(card | {"reference": "with"}))
    further = options | {"adapter": str(first), "learning_rate": 1e-4, "lora_r": 2, "eval_data": []}
    out = recipe_runs.train(tmp_path, recipe="preference", **further)
    weights, others = (load_file(folder / "adapter_model.safetensors") for folder in (first, out))
    assert set(weights) == set(others)
    changes = [(weights[name] - others[name]).abs().max().item() for name in weights]  # Adam: a rate each step, at most
    assert 0 < max(changes) < 9 * 1.5e-4
    before, after = (recipe_runs.losses_of(folder / "checkpoint-9") for folder in (first, out))
    assert after[1] < before[1] - 0.3
    card = find_card(str(out))
    assert card.reference == "both"  # it was trained with references before, and without any here
    facts = card.training
    assert facts["lora"] == {"r": 4, "alpha": 32}
    assert (facts["began_from"]["method"], facts["began_from"]["learning_rate"]) == ("preference", 0.01)
    assert "| began_from: judge | first |" in (out / "README.md").read_text()


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
    out = recipe_runs.train(tmp_path, recipe="preference", **options)
    losses, expected = (recipe_runs.losses_of(folder / "checkpoint-9") for folder in (out, whole))
    assert list(expected) == list(range(1, 10))
    assert losses == pytest.approx(expected, rel=1e-6)


CHAT = "{% for m in messages %}{{ m.content }}{% endfor %}Judge:"
WORDS = ("big", "red", "fox", "jumps", "over", "lazy", "dogs")
LETTERS = WordTokens(reading="letters", ids=((0, 1), (2,)))
YES_NO = WordTokens(reading="yes-no", ids=((0,), (1,)))
GRADES = WordTokens(reading="grade", ids=((0,), (1,), (2,)), scores=(1, 2, 3))
UNKNOWN = torch.full((2, 1), math.nan)


def word_logits(*shares):
    """Logits of these probabilities, one row a prompt."""
    return torch.tensor(shares).log()


def losses(logits, words, preference, right=UNKNOWN, **weights):
    given = WordWeights(**{"consistency": 0, "word": 0, "pointwise": 0} | weights)
    return word_losses(logits, words, torch.tensor(preference), right, given)


def test_letters_are_the_mean_log_odds_of_both_orders_and_spellings_add_up():
    # A 0.5 + 0.3 against B 0.1, then 0.2 against 0.4: z = (log 8 - log 1/2) / 2 = log 4, so P = 4/5
    logits = word_logits((0.5, 0.3, 0.1, 0.1), (0.1, 0.1, 0.4, 0.4))
    for preference, expected in ((1.0, -math.log(4 / 5)), (0.0, -math.log(1 / 5)), (0.5, -math.log(4 / 25) / 2)):
        loss, metrics = losses(logits, LETTERS, [preference])
        assert loss.tolist() == pytest.approx([expected])
    assert metrics["word_mass"].tolist() == [[pytest.approx(0.9)], [pytest.approx(0.6)]]


def test_pairs_stand_one_order_behind_the_other():
    # first pair log 4 and log 1/4, second pair log 1 and log 9: z = log 4 and -log 3
    logits = word_logits((0.4, 0.4, 0.2), (0.25, 0.25, 0.5), (0.1, 0.1, 0.8), (0.45, 0.45, 0.1))
    loss, _ = losses(logits, LETTERS, [1.0, 1.0], torch.full((2, 2), math.nan))
    assert loss.tolist() == pytest.approx([-math.log(4 / 5), -math.log(1 / 4)])


def test_orders_that_name_the_same_letter_are_inconsistent():
    # A has 0.8 in both orders: P1 = 0.8, 1 - P2 = 0.2; z = 0
    loss, metrics = losses(word_logits((0.4, 0.4, 0.2), (0.4, 0.4, 0.2)), LETTERS, [0.5], consistency=2.0)
    assert metrics["consistency_loss"].tolist() == pytest.approx([0.36])
    assert loss.tolist() == pytest.approx([math.log(2) + 0.72])
    loss, metrics = losses(word_logits((0.4, 0.4, 0.2)), LETTERS, [1.0], consistency=2.0)  # one order
    assert loss.tolist() == pytest.approx([-math.log(4 / 5)])
    assert "consistency_loss" not in metrics


def test_yes_and_no_are_compared_between_answers():
    # odds 3 and 1/3: z = log 9; the first is right, of the second nothing is known
    logits = word_logits((0.6, 0.2, 0.2), (0.2, 0.6, 0.2))
    loss, metrics = losses(logits, YES_NO, [0.9], torch.tensor([[1.0], [math.nan]]), pointwise=0.5, word=1.0)
    assert metrics["preference_loss"].tolist() == pytest.approx([-math.log(0.9) * 0.9 - math.log(0.1) * 0.1])
    assert metrics["pointwise_loss"].tolist() == pytest.approx([-math.log(0.75)])
    assert loss.item() == pytest.approx(metrics["preference_loss"].item() - math.log(0.75) / 2 - math.log(0.8))


def test_grades_are_compared_by_their_expectation():
    # expected 2.5 and 1.5 of the words' own probability: z = 1
    loss, _ = losses(word_logits((0.0, 0.4, 0.4, 0.2), (0.3, 0.3, 0.0, 0.4)), GRADES, [1.0])
    assert loss.tolist() == pytest.approx([math.log(1 + math.exp(-1))])


def test_a_tie_word_is_learned_from_ties():
    words, logits = WordTokens(reading="letters", ids=((0,), (1,), (2,))), [[0.5, 0.25, 0.25], [0.1, 0.3, 0.6]]
    # first, second, and tie have 1/2, 1/4, 1/4 in the given order, and 0.3, 0.1, 0.6 in the other
    for preference, expected in ((1.0, (0.5, 0.3)), (0.0, (0.25, 0.1)), (0.5, (0.25, 0.6))):
        loss, _ = losses(torch.tensor(logits).log(), words, [preference])
        assert loss.tolist() == pytest.approx([-sum(map(math.log, expected)) / 2])


@pytest.mark.parametrize("words", [LETTERS, YES_NO])
def test_the_gradient_raises_the_better_answers_word_and_a_tie_has_none(words):
    for preference, direction in ((1.0, -1), (0.0, 1), (0.5, 0)):
        logits = torch.zeros(2, 4, requires_grad=True)
        weights = torch.tensor([[0.0, 0.0, 0.0, 0.0]]) if words is YES_NO else word_logits((0.5, 0.5, 1.0, 1.0))
        losses(logits + weights, words, [preference])[0].sum().backward()
        first, second = logits.grad[0, words.ids[0][0]].item(), logits.grad[1, words.ids[0][0]].item()
        assert (round(first, 6) > 0) - (round(first, 6) < 0) == direction
        assert second == pytest.approx(-first)  # in the other order, or of the other answer


def test_prompts_end_in_the_last_column():
    batch = left_padded([[5, 6, 7], [8]])
    assert batch["input_ids"].tolist() == [[5, 6, 7], [0, 0, 8]]
    assert batch["attention_mask"].tolist() == [[1, 1, 1], [0, 0, 1]]
    assert batch["position_ids"].tolist() == [[0, 1, 2], [0, 0, 0]]


@pytest.fixture(scope="module")
def base(tmp_path_factory):
    """A random model with a chat template, whose tokenizer knows the prompts of pairs and their words."""
    folder = tmp_path_factory.mktemp("words") / "base"
    prompts = read_texts(ROOT / "judgelm/prompts/readings.toml")
    shown = [prompts[f"{reading}{form}"] for reading in ("letters", "yes-no", "grade") for form in ("", "-criterion")]
    texts = [text.get("before", "") + text["after"] for text in shown]
    texts += ["Question:\nReply with A or B alone. [Answer A] [End of answer B]\nA\nB\nYes\nNo\n 1 2 3"]
    texts.append(" ".join(WORDS))
    shape = {"hidden_size": 64, "layers": 2, "heads": 2, "vocab_size": 600, "max_positions": 512}
    make_base(texts * 4, folder, seed=0, **shape)
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = CHAT
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def chat_tokenizer(base):
    return AutoTokenizer.from_pretrained(base)


def pairs_of_a_rule(path, count=20):
    """Pairs whose better answer has a fox; in half of them it stands first."""
    rows = []
    for index in range(count):
        others = [WORDS[(index + step) % len(WORDS)] for step in range(3)]
        plain = " ".join(word for word in others if word != "fox")
        answers = [f"{plain} fox", plain] if index % 2 else [plain, f"{plain} fox"]
        row = {"id": str(index), "question": f"big {index}", "answers": answers}
        rows.append(row | {"preference": 0.05 + 0.9 * (index % 2)})
    return recipe_runs.write_rows(path, rows)


def test_rows_have_the_prompts_of_judging_and_where_scores_lie_on_the_scale(chat_tokenizer, tmp_path):
    row = {"id": "1", "question": "q", "answers": ["red", "fox"], "scores": [10, 5.5]}
    path = recipe_runs.write_rows(tmp_path / "rows.jsonl", [row])
    for template, orders in (("letters", ((0, 1), (1, 0))), ("yes-no", ((0,), (1,)))):
        builder = PairRowBuilder(chat_tokenizer, PairRowOptions(template=template, window=256))
        [built] = builder.read([path])
        texts = [chat_tokenizer.decode(ids) for ids in (built.prompt_ids, built.second_ids)]
        for order, text in zip(orders, texts, strict=True):
            places = [text.index(f"\n{row['answers'][index]}\n") for index in order]
            assert (places, text.count("[End of answer")) == (sorted(places), len(order))
            assert text.endswith("alone.Judge:")
        assert (built.preference, built.first_right, built.second_right) == (1.0, 1.0, 0.5)
        assert builder.counts.step == 1  # it writes no scores


def prompt_source(reply, text="{question} of {context}: {answer}"):
    return PromptSource(file="mine.yaml", name="mine", text=f"prompt: '{text}'\nreply: {reply}")


LABEL = "{label: {fulfilled: Yes, failed: No}, text: 'Judge: {verdict}', min_coverage: 0}"


def test_rows_of_a_prompt_have_its_fields_and_end_before_the_verdict(chat_tokenizer, tmp_path):
    row = {"id": "1", "question": "q", "answers": ["red", "fox"], "winner": 2}
    path = recipe_runs.write_rows(tmp_path / "rows.jsonl", [row | {"context": "dog"}, row | {"id": "2"}])
    options = PairRowOptions(template="prompt:mine", window=256, prompt=prompt_source(LABEL), swap_prob=0.0)
    builder = PairRowBuilder(chat_tokenizer, options)
    [built] = builder.read([path])
    texts = [chat_tokenizer.decode(ids) for ids in (built.prompt_ids, built.second_ids)]
    for text, word in zip(texts, ("red", "fox"), strict=True):
        assert text.replace(" ", "").endswith(f"qofdog:{word}Judge:Judge:")
    assert (built.preference, builder.counts.left_out) == (0.0, {"unusable line": 1})


def test_a_prompt_shows_the_reference_of_every_row_or_of_none(chat_tokenizer, tmp_path):
    row = {"id": "1", "question": "q", "answers": ["red", "fox"], "winner": 2, "reference": "dog"}
    path = recipe_runs.write_rows(tmp_path / "rows.jsonl", [row])
    for text, shown in (("{question} {reference}: {answer}", 1), ("{question}: {answer}", 0)):
        options = PairRowOptions(template="prompt:mine", window=256, prompt=prompt_source("Yes/No", text))
        builder = PairRowBuilder(chat_tokenizer, options)
        [built] = builder.read([path])
        assert (chat_tokenizer.decode(built.prompt_ids).count("dog"), builder.counts.with_reference) == (shown, shown)


def test_words_are_the_single_tokens_behind_the_prompt(chat_tokenizer, tokenizer):
    words = word_tokens(chat_tokenizer, get_template("letters"), (1, 10))
    assert [chat_tokenizer.convert_ids_to_tokens(list(ids)) for ids in words.ids] == [["A", "ĠA"], ["B", "ĠB"]]
    assert word_tokens(chat_tokenizer, get_template("grade"), (1, 3)).scores == (1, 2, 3)
    with pytest.raises(ConfigError, match=r"'10' is more than one token for this base.*such as \[1, 9\]"):
        word_tokens(chat_tokenizer, get_template("grade"), (1, 10))
    words = word_tokens(chat_tokenizer, prompt_template(prompt_source(LABEL).load()), (1, 10))
    assert [chat_tokenizer.convert_ids_to_tokens(list(ids)) for ids in words.ids] == [["Yes", "ĠYes"], ["No", "ĠNo"]]
    with pytest.raises(ConfigError, match=r"prompt:mine: 'Fulfilled' is more .*use a shorter word in the prompt"):
        word_tokens(chat_tokenizer, prompt_template(prompt_source("Fulfilled/No").load()), (1, 10))
    tokenizer.chat_template = CHAT
    with pytest.raises(ConfigError, match=r"yes-no: 'yes' is more than one token .*; use a different reading"):
        word_tokens(tokenizer, get_template("yes-no"), (1, 10))


def test_the_reading_names_the_template():
    judge = PreferenceArguments(train_data=[], reading="yes-no")
    assert (judge.template, judge.reading) == ("yes-no", "yes-no")
    assert PreferenceArguments(train_data=[], template="letters").reading == "letters"
    assert PreferenceArguments(train_data=[], reading="score-line").template == "judgelm-v1"
    with pytest.raises(ConfigError, match="reading is yes-no, but template letters"):
        PreferenceArguments(train_data=[], template="letters", reading="yes-no")


def test_a_prompt_replaces_template_and_reading(tmp_path):
    (tmp_path / "mine.txt").write_text("{question} {answer_1} {answer_2}\nreply: A/B")
    judge = PreferenceArguments(train_data=[], reading="yes-no", prompt=str(tmp_path / "mine.txt"))
    assert (judge.template, judge.reading, judge.reference_drop_prob) == ("prompt:mine", "letters", 0.0)
    (tmp_path / "mine.txt").unlink()  # it is read only once
    check_preference_arguments(judge)


@pytest.mark.parametrize(
    ("text", "finding"),
    [
        ("{label: {fulfilled: Yes, failed: No}, reason: 9, text: '{reason} Verdict: {verdict}'}", "asks for a reason"),
        ("{choice: [A, B, C]}", "shows more than two answers"),
    ],
)
def test_prompts_without_a_word_for_a_pair_are_refused(tmp_path, text, finding):
    answers = "{answer_1} {answer_2} {answer_3}" if "choice" in text else "{answer}"
    path = tmp_path / "mine.yaml"
    path.write_text(f"prompt: '{answers}'\nreply: {text}")
    with pytest.raises(ConfigError, match=f"prompt mine {finding}"):
        check_preference_arguments(PreferenceArguments(train_data=[], prompt=str(path)))


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ({"reading": "letters", "pointwise_weight": 1.0}, "no effect for reading letters"),
        ({"reading": "yes-no", "consistency_weight": 1.0}, "no effect for reading yes-no"),
        ({"reading": "yes-no", "score_line_weight": 1.0}, "no effect for reading yes-no"),
        ({"reading": "yes-no", "both_orders": False}, "shows one answer per prompt"),
        ({"template": "letters-criterion"}, "use letters"),
        ({"template": "reasoned-chat"}, "train/grpo.py"),
        ({"reason_prob": 1.0}, "^reason_prob is "),
        ({"consistency_weight": -1.0}, "^consistency_weight is "),
        ({"score_weight": 2.0}, "^score_weight is "),
        ({"loss_average": "row"}, "^loss_average is "),
    ],
)
def test_options_that_a_reading_lacks_are_refused(options, finding):
    with pytest.raises(ConfigError, match=finding):
        check_preference_arguments(PreferenceArguments(train_data=[], **options))


@pytest.mark.parametrize("arguments", [JudgeArguments, GRPOArguments, RewardArguments])
def test_other_recipes_refuse_prompts(tmp_path, arguments):
    args = JudgeSFTConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False)
    with pytest.raises(ConfigError, match=r"mine\.txt, which requires train/preference\.py"):
        check_arguments(arguments(train_data=["rows.jsonl"], prompt="mine.txt"), args)


@pytest.mark.parametrize("arguments", [JudgeArguments, GRPOArguments])
def test_other_recipes_name_the_one_that_trains_words(tmp_path, arguments):
    args = JudgeSFTConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False)
    with pytest.raises(ConfigError, match=r"template letters .*use train/preference\.py"):
        check_arguments(arguments(train_data=["rows.jsonl"], template="letters"), args)


@pytest.fixture(scope="module")
def trained_on_words(base, tmp_path_factory):
    """A LoRA judge of yes and no that learned the rule."""
    folder = tmp_path_factory.mktemp("word-training")
    rows = pairs_of_a_rule(folder / "rows.jsonl")
    steps = {"num_train_epochs": 6, "learning_rate": 0.005, "gradient_checkpointing": True, "logging_steps": 1}
    model = {"model_name_or_path": str(base), "dtype": "float32"} | LORA | {"lora_r": 8}
    options = {"template": "", "reading": "yes-no", "eval_data": [rows], "word_weight": 0.5}
    recipe_runs.train(folder, recipe="preference", train_data=[rows], **steps | model | options)
    return folder


def test_a_judge_learns_a_rule_and_judges_by_its_reading_without_options(trained_on_words):
    out = trained_on_words / "out"
    card = find_card(str(out))
    assert (card.template, card.template_sha, card.reading) == ("yes-no", get_template("yes-no").sha, "yes-no")
    metrics = card.training["metrics"]
    assert metrics["agreement"]["value"] >= 0.9
    assert (metrics["order_rule"], metrics["agreement_by_mean"]) == ("as_judged", None)
    rows = rows_of(trained_on_words / "rows.jsonl")
    with Judge(str(out)) as judge:
        chances = [judge.compare(row["question"], *row["answers"]).probability for row in rows]
    preferences = [row["preference"] for row in rows]
    both = list(zip(chances, preferences, strict=True))
    assert sum((chance > 0.5) == (preference > 0.5) for chance, preference in both) >= 18
    # the eval loss is the cross entropy of the probabilities that the judge gives afterwards
    entropies = [-wanted * math.log(chance) - (1 - wanted) * math.log(1 - chance) for chance, wanted in both]
    checkpoint = sorted(out.glob("checkpoint-*"))[-1]
    first, *_, last = recipe_runs.losses_of(checkpoint, "word_mass").values()
    assert last > 10 * first
    [loss] = recipe_runs.losses_of(checkpoint, "eval_preference_loss").values()
    assert sum(entropies) / len(rows) == pytest.approx(loss, abs=1e-3)


@pytest.fixture(scope="module")
def trained_on_a_prompt(base, tmp_path_factory):
    """A LoRA judge that was trained on a prompt file with a field of the rows."""
    folder = tmp_path_factory.mktemp("prompt-training")
    rows = pairs_of_a_rule(folder / "rows.jsonl", 16)
    written = [row | {"context": f"dog {index}"} for index, row in enumerate(rows_of(rows))]
    recipe_runs.write_rows(folder / "rows.jsonl", written)
    (folder / "mine.yaml").write_text(prompt_source(LABEL).text)
    steps = {"num_train_epochs": 1, "learning_rate": 0.005, "logging_steps": 1}
    model = {"model_name_or_path": str(base), "dtype": "float32"} | LORA
    options = {"template": "", "prompt": str(folder / "mine.yaml"), "eval_data": [rows]}
    recipe_runs.train(folder, recipe="preference", train_data=[rows], **steps | model | options)
    return folder


def test_a_judge_trained_on_a_prompt_keeps_it(trained_on_a_prompt):
    out, rows = trained_on_a_prompt / "out", rows_of(trained_on_a_prompt / "rows.jsonl")
    card = find_card(str(out))
    assert (card.template, card.reading, card.scale) == ("prompt:mine", "yes-no", (0.0, 1.0))
    assert card.prompt == prompt_source(LABEL)
    readme = (out / "README.md").read_text()
    assert "`mine`" in readme
    assert "`mine.yaml`" in readme
    with Judge(str(out)) as judge:
        chances = [
            judge.compare(row["question"], *row["answers"], fields={"context": row["context"]}).probability
            for row in rows
        ]
    # the eval loss is the cross entropy of the probabilities that the judge gives afterwards
    both = zip(chances, (row["preference"] for row in rows), strict=True)
    entropies = [-wanted * math.log(chance) - (1 - wanted) * math.log(1 - chance) for chance, wanted in both]
    checkpoint = sorted(out.glob("checkpoint-*"))[-1]
    [loss] = recipe_runs.losses_of(checkpoint, "eval_preference_loss").values()
    assert sum(entropies) / len(rows) == pytest.approx(loss, abs=1e-4)
