"""`train/preference.py` on judges that are read off one word: the losses by hand, and a judge that learns a rule."""

import json
import math

import pytest
import torch
from transformers import AutoTokenizer

from benchmarks.tiny_model import make_base
from judgelm.errors import ConfigError
from judgelm.judge import Judge
from judgelm.prompts.catalog import get_template, read_texts
from judgelm.prompts.judge_card import find_card
from judgelm.training.arguments import JudgeArguments, check_arguments
from judgelm.training.dpo import DPOArguments
from judgelm.training.grpo import GRPOArguments
from judgelm.training.preference import PreferenceArguments, check_preference_arguments
from judgelm.training.rows.pairs import PairRowBuilder, PairRowOptions
from judgelm.training.sft import JudgeSFTConfig
from judgelm.training.word_loss import WordTokens, WordWeights, left_padded, word_losses, word_tokens
from tests.support import recipe_runs
from tests.support.recipe_runs import ROOT

CHAT = "{% for m in messages %}{{ m.content }}{% endfor %}Judge:"
WORDS = ("big", "red", "fox", "jumps", "over", "lazy", "dogs")
NONE = WordWeights(consistency=0, word=0, pointwise=0)
LETTERS = WordTokens(reading="letters", ids=((0, 1), (2,)))
YES_NO = WordTokens(reading="yes-no", ids=((0,), (1,)))
GRADES = WordTokens(reading="grade", ids=((0,), (1,), (2,)), scores=(1, 2, 3))
UNKNOWN = torch.full((2, 1), math.nan)


def logits_of(*shares):
    """Logits of these probabilities, one row a prompt."""
    return torch.tensor(shares).log()


def losses(logits, words, preference, right=UNKNOWN, **weights):
    given = WordWeights(**{"consistency": 0, "word": 0, "pointwise": 0} | weights)
    return word_losses(logits, words, torch.tensor(preference), right, given)


def test_letters_are_the_mean_log_odds_of_both_orders_and_spellings_add_up():
    # A 0.5 + 0.3 against B 0.1, then 0.2 against 0.4: z = (log 8 - log 1/2) / 2 = log 4, so P = 4/5
    logits = logits_of((0.5, 0.3, 0.1, 0.1), (0.1, 0.1, 0.4, 0.4))
    for preference, expected in ((1.0, -math.log(4 / 5)), (0.0, -math.log(1 / 5)), (0.5, -math.log(4 / 25) / 2)):
        loss, metrics = losses(logits, LETTERS, [preference])
        assert loss.tolist() == pytest.approx([expected])
    assert metrics["word_mass"].tolist() == [[pytest.approx(0.9)], [pytest.approx(0.6)]]


def test_pairs_stand_one_order_behind_the_other():
    # first pair log 4 and log 1/4, second pair log 1 and log 9: z = log 4 and -log 3
    logits = logits_of((0.4, 0.4, 0.2), (0.25, 0.25, 0.5), (0.1, 0.1, 0.8), (0.45, 0.45, 0.1))
    loss, _ = losses(logits, LETTERS, [1.0, 1.0], torch.full((2, 2), math.nan))
    assert loss.tolist() == pytest.approx([-math.log(4 / 5), -math.log(1 / 4)])


def test_orders_that_name_the_same_letter_are_inconsistent():
    # A has 0.8 in both orders: P1 = 0.8, 1 - P2 = 0.2; z = 0
    loss, metrics = losses(logits_of((0.4, 0.4, 0.2), (0.4, 0.4, 0.2)), LETTERS, [0.5], consistency=2.0)
    assert metrics["consistency_loss"].tolist() == pytest.approx([0.36])
    assert loss.tolist() == pytest.approx([math.log(2) + 0.72])


def test_one_order_of_letters_has_no_consistency():
    loss, metrics = losses(logits_of((0.4, 0.4, 0.2)), LETTERS, [1.0], consistency=2.0)
    assert loss.tolist() == pytest.approx([-math.log(4 / 5)])
    assert "consistency_loss" not in metrics


def test_yes_and_no_are_compared_between_answers():
    # odds 3 and 1/3: z = log 9; the first is right, of the second nothing is known
    logits = logits_of((0.6, 0.2, 0.2), (0.2, 0.6, 0.2))
    loss, metrics = losses(logits, YES_NO, [0.9], torch.tensor([[1.0], [math.nan]]), pointwise=0.5, word=1.0)
    assert metrics["preference_loss"].tolist() == pytest.approx([-math.log(0.9) * 0.9 - math.log(0.1) * 0.1])
    assert metrics["pointwise_loss"].tolist() == pytest.approx([-math.log(0.75)])
    assert loss.item() == pytest.approx(metrics["preference_loss"].item() - math.log(0.75) / 2 - math.log(0.8))


def test_grades_are_compared_by_their_expectation():
    # expected 2.5 and 1.5 of the words' own probability: z = 1
    loss, _ = losses(logits_of((0.0, 0.4, 0.4, 0.2), (0.3, 0.3, 0.0, 0.4)), GRADES, [1.0])
    assert loss.tolist() == pytest.approx([math.log(1 + math.exp(-1))])


@pytest.mark.parametrize(("words", "sign"), [(LETTERS, -1), (YES_NO, -1)])
def test_the_gradient_raises_the_better_answers_word_and_a_tie_has_none(words, sign):
    for preference, direction in ((1.0, sign), (0.0, -sign), (0.5, 0)):
        logits = torch.zeros(2, 4, requires_grad=True)
        weights = torch.tensor([[0.0, 0.0, 0.0, 0.0]]) if words is YES_NO else logits_of((0.5, 0.5, 1.0, 1.0))
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
    texts += [
        "Question:\nReply with A or B alone. [Answer A] [End of answer B]\nA\nB\nYes\nNo\n 1 2 3",
        " ".join(WORDS),
    ]
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
        rows.append(
            {"id": str(index), "question": f"big {index}", "answers": answers, "preference": 0.05 + 0.9 * (index % 2)}
        )
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
            assert places == sorted(places)
            assert text.endswith("alone.Judge:")
            assert len(order) == text.count("[End of answer")
        assert (built.preference, built.first_right, built.second_right) == (1.0, 1.0, 0.5)
        assert builder.counts.step == 1  # it writes no scores


def test_words_are_the_single_tokens_behind_the_prompt(chat_tokenizer, tokenizer):
    words = word_tokens(chat_tokenizer, get_template("letters"), (1, 10))
    assert [chat_tokenizer.convert_ids_to_tokens(list(ids)) for ids in words.ids] == [["A", "ĠA"], ["B", "ĠB"]]
    assert word_tokens(chat_tokenizer, get_template("grade"), (1, 3)).scores == (1, 2, 3)
    with pytest.raises(ConfigError, match=r"'10' is more than one token for this base.*such as \[1, 9\]"):
        word_tokens(chat_tokenizer, get_template("grade"), (1, 10))
    tokenizer.chat_template = CHAT
    with pytest.raises(ConfigError, match=r"yes-no: 'yes' is more than one token .*; use a different reading"):
        word_tokens(tokenizer, get_template("yes-no"), (1, 10))


def test_the_reading_names_the_template():
    judge = PreferenceArguments(train_data=[], reading="yes-no")
    assert (judge.template, judge.reading) == ("yes-no", "yes-no")
    assert PreferenceArguments(train_data=[], template="letters").reading == "letters"
    assert PreferenceArguments(train_data=[], reading="score-line").template == "judgelm-v1"
    with pytest.raises(ConfigError, match="template letters uses reading letters, not yes-no"):
        PreferenceArguments(train_data=[], template="letters", reading="yes-no")


@pytest.mark.parametrize(
    ("options", "finding"),
    [
        ({"reading": "letters", "pointwise_weight": 1.0}, "reading letters does not use it"),
        ({"reading": "yes-no", "consistency_weight": 1.0}, "no effect for reading yes-no"),
        ({"reading": "yes-no", "score_line_weight": 1.0}, "no effect for reading yes-no"),
        ({"reading": "yes-no", "both_orders": False}, "shows one answer per prompt"),
        ({"template": "letters-criterion"}, "use letters"),
        ({"template": "reasoned-chat"}, "train/grpo.py"),
    ],
)
def test_options_that_a_reading_lacks_are_refused(options, finding):
    with pytest.raises(ConfigError, match=finding):
        check_preference_arguments(PreferenceArguments(train_data=[], **options))


@pytest.mark.parametrize("arguments", [JudgeArguments, DPOArguments, GRPOArguments])
def test_other_recipes_name_the_one_that_trains_words(tmp_path, arguments):
    args = JudgeSFTConfig(output_dir=str(tmp_path), use_cpu=True, bf16=False)
    with pytest.raises(ConfigError, match=r"template letters scores .*use train/preference.py"):
        check_arguments(arguments(train_data=["rows.jsonl"], template="letters"), args)


@pytest.fixture(scope="module")
def trained(base, tmp_path_factory):
    """A LoRA judge of yes and no that learned the rule."""
    folder = tmp_path_factory.mktemp("word-training")
    rows = pairs_of_a_rule(folder / "rows.jsonl")
    steps = {"num_train_epochs": 6, "learning_rate": 0.005, "gradient_checkpointing": True, "logging_steps": 1}
    model = {"model_name_or_path": str(base), "dtype": "float32", "use_peft": True, "lora_r": 8}
    options = {"template": "", "reading": "yes-no", "eval_data": [rows], "lora_target_modules": ["all-linear"]}
    options |= {"word_weight": 0.5}
    config = recipe_runs.configure(folder, train_data=[rows], **steps | model | options)
    assert recipe_runs.run_here(config, recipe="preference") is None
    return folder


def test_a_judge_learns_a_rule_and_judges_by_its_reading_without_options(trained):
    out = trained / "out"
    card = find_card(str(out))
    assert (card.template, card.template_sha, card.reading) == ("yes-no", get_template("yes-no").sha, "yes-no")
    metrics = card.training["metrics"]
    assert metrics["agreement"]["value"] >= 0.9
    assert (metrics["order_rule"], metrics["agreement_by_mean"]) == ("as_judged", None)
    rows = [json.loads(line) for line in (trained / "rows.jsonl").read_text().splitlines()]
    with Judge(str(out)) as judge:
        chances = [judge.compare(row["question"], *row["answers"]).probability for row in rows]
    right = [(chance > 0.5) == (row["preference"] > 0.5) for chance, row in zip(chances, rows, strict=True)]
    assert sum(right) >= 18
    # the eval loss is the cross entropy of the probabilities that the judge gives afterwards
    entropies = [
        -row["preference"] * math.log(chance) - (1 - row["preference"]) * math.log(1 - chance)
        for chance, row in zip(chances, rows, strict=True)
    ]
    [checkpoint] = sorted(out.glob("checkpoint-*"))[-1:]
    history = json.loads((checkpoint / "trainer_state.json").read_text())["log_history"]
    masses = [entry["word_mass"] for entry in history if "word_mass" in entry]
    assert masses[-1] > 10 * masses[0]
    [loss] = [entry["eval_preference_loss"] for entry in history if "eval_preference_loss" in entry]
    assert sum(entropies) / len(rows) == pytest.approx(loss, abs=1e-3)
