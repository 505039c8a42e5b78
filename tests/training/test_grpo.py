"""Reinforcement: the reward, arguments, rows, and judges that train/grpo.py makes."""

import random
import re
import shutil
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer
from trl import ModelConfig, TrlParser

from benchmarks.synthetic.pairs import generate
from judgelm.errors import ConfigError, InputError
from judgelm.judge import Judge
from judgelm.modes import Reasoned
from judgelm.prompts.judge_card import find_card
from judgelm.prompts.truncation import Truncator
from judgelm.records import Sample
from judgelm.training import grpo
from judgelm.training.rows.builder import IGNORED, FastTokenizer, RowOptions
from judgelm.training.rows.dataset import Schedule, build_epochs
from judgelm.training.rows.pairs import JudgingPromptBuilder, JudgingPromptOptions
from judgelm.training.rows.sft import SFTRowBuilder
from tests.support import recipe_runs

JUDGE = grpo.GRPOArguments(train_data=[])
LIMIT = 100
GOOD = "Assistant 1 answers the question, and Assistant 2 does not.\n[[{}]]"


form = partial(grpo.read_form, min_letters=20)


@pytest.mark.parametrize(
    ("text", "ended", "expected"),
    [
        (GOOD.format(1), True, 1),
        (GOOD.format(2), True, 2),
        ("<think>The first one is right, as 2 + 2 is 4.</think>\n\n[[1]]", True, 1),
        (GOOD.format(1), False, "truncated"),  # it goes on and on
        ("<think>Let me see, and see again, and", True, "truncated"),
        ("[[1]]", True, "off_grammar"),  # no reasons
        ("12345678901234567890 ........\n[[1]]", True, "off_grammar"),
        (GOOD.format("tie"), True, "off_grammar"),
        ("Assistant 1 answers the question.", True, "off_grammar"),
        (GOOD.format(1) + " [[2]]", True, "off_grammar"),  # both on the last line
        ("", True, "off_grammar"),
    ],
)
def test_a_well_formed_reply_ends_has_reasons_and_a_verdict(text, ended, expected):
    verdict = form(text, ended=ended)
    assert verdict == expected if isinstance(expected, int) else verdict.code == expected


def rewards_of(policy, *, pairs=40, replies=4):
    """All rewards of a policy: called with the order (0, 1) and the better place, it writes text and tokens."""
    rng = random.Random(0)
    shown = [
        (pair, order, 3 - winner if order else winner)
        for pair in range(pairs)
        for winner in [rng.choice([1, 2])]
        for order in (0, 1)
        for _ in range(replies)
    ]
    written = [policy(best, rng) for _, _, best in shown]
    verdicts = [form(text, ended=tokens < LIMIT) for text, tokens in written]
    judged = zip(verdicts, shown, strict=True)
    attempts = [grpo.Attempt(pair, order, verdict == best) for verdict, (pair, order, best) in judged]
    return [
        reward
        + JUDGE.form_weight * (0 if verdict in (1, 2) else -1)
        + JUDGE.length_weight * grpo.length_penalty(tokens, soft=JUDGE.soft(LIMIT), limit=LIMIT)
        for reward, verdict, (_, tokens) in zip(grpo.both_orders_right(attempts), verdicts, written, strict=True)
    ]


DEGENERATE = {
    "always the first": lambda best, rng: (GOOD.format(1), 30),
    "always the second": lambda best, rng: (GOOD.format(2), 30),
    "always a tie": lambda best, rng: (GOOD.format("tie"), 30),
    "right without a reason": lambda best, rng: (f"[[{best}]]", 5),
    "right with an endless reason": lambda best, rng: (GOOD.format(best), LIMIT),
    "silent": lambda best, rng: ("", 1),
}


@pytest.mark.parametrize("name", DEGENERATE)
def test_a_degenerate_policy_gains_nothing_and_nothing_by_more_of_it(name):
    rewards = rewards_of(DEGENERATE[name])
    assert max(rewards) <= 0
    # all replies to a prompt get the same, so no reply has an advantage over another
    assert all(len(set(rewards[start : start + 4])) == 1 for start in range(0, len(rewards), 4))


def test_a_coin_gains_a_quarter_and_a_correct_judge_everything():
    # P(right) is 1/2 in either order, so both are right in a quarter
    assert rewards_of(lambda best, rng: (GOOD.format(best), 30)) == [1.0] * 320
    coin = rewards_of(lambda best, rng: (GOOD.format(rng.choice([1, 2])), 30), pairs=400)
    assert sum(coin) / len(coin) == pytest.approx(0.25, abs=0.03)


def test_the_reward_by_hand():
    # pair 0: 2 of 3 right as given, 1 of 3 right swapped; pair 1: never right as given
    rights = {(0, 0): [1, 1, 0], (0, 1): [0, 0, 1], (1, 0): [0, 0, 0], (1, 1): [1, 1, 1]}
    attempts = [grpo.Attempt(*key, bool(right)) for key, group in rights.items() for right in group]
    third = 1 / 3
    assert grpo.both_orders_right(attempts) == pytest.approx([third, third, 0, 0, 0, 2 * third, 0, 0, 0, 0, 0, 0])
    attempts = [grpo.Attempt(*each, True) for each in ((0, 0), (1, 0), (1, 1))]
    assert grpo.both_orders_right(attempts) == [None, 1.0, 1.0]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1), st.booleans()), max_size=40), st.randoms())
def test_the_sequence_of_the_attempts_does_not_matter(attempts, rng):
    attempts = [grpo.Attempt(*each) for each in attempts]
    order = rng.sample(range(len(attempts)), len(attempts))
    rewards = dict(zip(order, grpo.both_orders_right([attempts[index] for index in order]), strict=True))
    assert [rewards[index] for index in range(len(attempts))] == grpo.both_orders_right(attempts)


@given(st.lists(st.booleans(), min_size=1, max_size=8), st.lists(st.booleans(), min_size=1, max_size=8))
def test_the_mean_reward_is_the_share_of_pairs_of_replies_that_are_both_right(given_, swapped):
    attempts = [grpo.Attempt(0, 0, right) for right in given_] + [grpo.Attempt(0, 1, right) for right in swapped]
    rewards = grpo.both_orders_right(attempts)
    both = sum(a and b for a in given_ for b in swapped) / (len(given_) * len(swapped))
    assert sum(rewards[: len(given_)]) / len(given_) == pytest.approx(both)
    assert sum(rewards[len(given_) :]) / len(swapped) == pytest.approx(both)


def test_length_costs_nothing_up_to_the_soft_limit_and_then_linearly():
    prices = [grpo.length_penalty(tokens, soft=60, limit=100) for tokens in (0, 60, 70, 80, 100, 150)]
    assert prices == pytest.approx([0, 0, -0.25, -0.5, -1, -1])


GRPO = {"template": "reasoned-compact", "max_completion_length": 12, "num_generations": 4, "least_letters": 0}
GRPO |= {"per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "num_train_epochs": 1, "save_steps": 2}
"""16 replies a step: 4 to each of 4 prompts, 2 pairs."""
EOS = 7
LONG = "The first answer is right, and the second one is not.\n"


def write_decided_pairs(path):
    """Eight pairs without a tie."""
    rows = [row for row in generate(20, seed=0, split="train") if row["score"][0] != row["score"][1]][:8]
    return recipe_runs.write_rows(path, rows)


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    return write_decided_pairs(tmp_path_factory.mktemp("world") / "pairs.jsonl")


def parsed(tmp_path, **options):
    config = recipe_runs.configure(tmp_path, train_data=["rows.jsonl"], **(GRPO | options))
    parser = TrlParser((grpo.GRPOArguments, grpo.JudgeGRPOConfig, ModelConfig))
    return parser.parse_args_and_config(["--config", str(config)])[:2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"template": "judgelm-compact"}, "reasoning first"),
        ({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 1}, "gives 1 prompts with 4 replies each"),
        ({"max_completion_length": 256}, "it must be less than max_length"),
        ({"soft_length": 12}, "soft_length is 12; it must be less than"),
        ({"form_weight": -1}, "form_weight is -1"),
        ({"num_iterations": 2}, "num_iterations is 2"),
        ({"reward_weights": [1.0]}, "form_weight and length_weight"),
        ({"global_batch": 64}, "GRPO does not support"),
        ({"train_sampling_strategy": "group_by_length"}, "pairs are always shuffled"),
        ({"eval_data": ["a.jsonl"], "eval_pairs": 0}, "GRPO has no eval loss"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_way_out(tmp_path, options, message):
    with pytest.raises(ConfigError, match=message):
        grpo.check_grpo_arguments(*parsed(tmp_path, **options))


def test_trl_generates_with_the_versions_of_vllm_that_it_supports():
    # TRL 1.16.0 states vllm<=0.31.0,>=0.22.0 in its metadata, and only warns of others
    assert not any(map(grpo.vllm_fault, ("0.22.0", "0.31.0", "0.31.0+cu129", "0.30.1rc1")))
    for installed in ("0.21.9", "0.31.1", "0.32.0+cpu", "1.0"):
        assert re.match(rf"vllm {re.escape(installed)} is installed, .*pip install 'vllm", grpo.vllm_fault(installed))


def test_a_training_with_vllm_but_without_a_vllm_of_trls_ends_before_it_begins(tmp_path, monkeypatch):
    monkeypatch.setattr("judgelm.training.grpo.packages_distributions", dict)  # no package is installed
    with pytest.raises(ConfigError, match="use_vllm is set, but vllm is not installed"):
        grpo.check_grpo_arguments(*parsed(tmp_path, use_vllm=True))


def test_the_parts_of_the_reward_are_trls_reward_functions():
    rewards = grpo.VerdictRewards(grpo.GRPOArguments(train_data=[], least_letters=20), limit=8, eos_ids=[EOS])
    texts = [LONG + "[[1]]", LONG + "[[1]]", LONG + "[[2]]", "[[2]]"]
    ids = [[1, EOS], [1, 2, 3, EOS], [1] * 8, [2, EOS]]  # the third has no end
    columns = {"pair": [0, 0, 0, 0], "order": [0, 0, 1, 1], "best": [1, 1, 2, 2]}
    assert (rewards.form(texts, ids), rewards.length(ids)) == ([0, 0, -1, -1], [0, 0, -1, 0])
    assert rewards.both_orders_right(texts, ids, **columns, trainer_state=None) == [0, 0, 0, 0]
    right = [LONG + "[[1]]", LONG + "[[2]]", LONG + "[[2]]", LONG + "[[2]]"]
    # as given 1 of 2 is right, swapped both
    assert rewards.both_orders_right(right, [[1, EOS]] * 4, **columns) == [1, 0, 0.5, 0.5]


@pytest.fixture(scope="module")
def trained(tiny_model, pairs, tmp_path_factory):
    """A judge that the recipe made of a random model in 4 steps, with checkpoints after 2 and 4."""
    data = {"model_name_or_path": str(tiny_model), "train_data": [pairs], "eval_data": [pairs], "eval_pairs": 4}
    return recipe_runs.train(tmp_path_factory.mktemp("grpo"), recipe="grpo", **GRPO | data), GRPO | data


def test_a_random_model_is_trained_and_its_card_says_how(trained):
    folder, _ = trained
    logged = recipe_runs.history(folder / "checkpoint-4", "reward")
    assert [entry["step"] for entry in logged] == [1, 2, 3, 4]
    for entry in logged:
        parts = {name: entry[f"rewards/{name}/mean"] for name in ("both_orders_right", "form", "length")}
        weighed = parts["both_orders_right"] + 0.2 * parts["form"] + 0.1 * parts["length"]
        assert entry["reward"] == pytest.approx(weighed, abs=1e-5)
        assert parts["form"] == -1  # nonsense
    card = find_card(str(folder))
    assert (card.template, card.training["method"], card.training["steps"]) == ("reasoned-compact", "grpo", 4)
    assert (card.training["num_generations"], card.training["generated_by"]) == (4, "transformers")
    assert card.training["metrics"]["failed"] == 1
    with Judge(str(folder), engine="transformers") as judge:
        assert isinstance(judge.mode("pair"), Reasoned)


def test_a_resumed_run_ends_as_one_that_was_not_stopped(trained, tmp_path):
    folder, options = trained
    shutil.copytree(folder / "checkpoint-2", tmp_path / "out/checkpoint-2")
    out = recipe_runs.train(tmp_path, recipe="grpo", **options)
    first, second = (recipe_runs.losses_of(each / "checkpoint-4") for each in (folder, out))
    assert second == pytest.approx(first, abs=1e-6)


def test_too_few_pairs_for_a_step_are_refused(tiny_model, pairs, tmp_path):
    options = {"model_name_or_path": str(tiny_model), "train_data": [pairs], "gradient_accumulation_steps": 16}
    message = recipe_runs.run_here(recipe_runs.configure(tmp_path, **(GRPO | options)), recipe="grpo")
    assert re.search("8 training pairs, .* needs 16", message)


def test_reasons_come_first_in_the_rows_of_a_fine_tuning_too(tiny_model, pairs):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    builder = SFTRowBuilder(tokenizer, RowOptions(template="reasoned-compact", window=512, reference_drop_prob=1))
    for row in builder.read([pairs]):
        target = tokenizer.decode(row.input_ids[row.labels != IGNORED])
        assert re.fullmatch(r"Assistant 1 .*\n\[\[[12]\]\]" + re.escape(tokenizer.eos_token), target)


REASONED = "reasoned-compact"
PROMPT_OPTIONS = JudgingPromptOptions(template=REASONED, window=200, reply_tokens=64)


@pytest.fixture
def write(tmp_path):
    return lambda *rows: recipe_runs.write_rows(tmp_path / "rows.jsonl", rows)


def pair(first, second, **label):
    return {"question": "q", "answers": [first, second]} | label


def test_the_prompts_are_those_of_the_mode(tokenizer, write):
    path = write(pair("a", "b", winner="2"))
    builder = JudgingPromptBuilder(tokenizer, PROMPT_OPTIONS)
    [row] = builder.read([path])
    requests = next(Reasoned(template=REASONED, both_orders=True)(Sample(id="0", question="q", answers=("a", "b"))))
    truncator = Truncator(FastTokenizer(tokenizer), PROMPT_OPTIONS.window)
    texts = [truncator.truncate(request.prompt, PROMPT_OPTIONS.reply_tokens).text for request in requests]
    assert [row.prompt, row.swapped, row.winner] == [*texts, 2]


def test_ties_and_what_does_not_fit_are_left_out_and_counted(tokenizer, write):
    long = "word " * 300
    path = write(
        pair("a", "b", winner="tie"),
        pair("a", "b", preference=0.5),
        pair("a", "b", winner="1", question=long),
        pair("a", long, preference=0.9),  # is cut
        pair("a", "b", scores=[3, 7]),
    )
    builder = JudgingPromptBuilder(tokenizer, PROMPT_OPTIONS)
    assert [row.winner for row in builder.read([path])] == [1, 2]
    assert dict(builder.counts.left_out) == {"a tie": 2, "too long": 1}
    assert (builder.counts.made, builder.counts.cut) == (2, 1)


def test_both_orders_stand_side_by_side_and_whole_steps_alone(tokenizer, write, tmp_path):
    path = write(*(pair(f"a{index}", "b", winner=str(1 + index % 2), id=str(index)) for index in range(5)))
    schedule = Schedule(epochs=1, steps=None, batch=4, group_by_length=False, seed=0)
    built = build_epochs(tokenizer, PROMPT_OPTIONS, [path], schedule, tmp_path / "rows", JudgingPromptBuilder)
    paired = grpo.in_both_orders(built, step=4)
    shown = [paired.dataset[index] for index in range(len(paired.dataset))]
    assert [(row["pair"], row["order"]) for row in shown] == [(index // 2, index % 2) for index in range(8)]
    for first, swapped in zip(shown[::2], shown[1::2], strict=True):
        number = int(first["sample_id"])
        assert first["best"] == 1 + number % 2 == 3 - swapped["best"]
        assert f"[1] a{number}\n[2] b" in first["prompt"]
        assert f"[1] b\n[2] a{number}" in swapped["prompt"]
    assert paired.per_epoch == 10


def test_a_file_of_ties_is_refused(tokenizer, write):
    with pytest.raises(InputError, match=r"no usable rows \(1 a tie\)"):
        list(JudgingPromptBuilder(tokenizer, PROMPT_OPTIONS).read([write(pair("a", "b", winner="tie"))]))
