"""`train/grpo.py`: its arguments, its reward in TRL's trainer, and judges that it makes."""

import json
import re
import shutil

import pytest
from transformers import AutoTokenizer
from trl import ModelConfig, TrlParser

from benchmarks.synthetic.pairs import generate
from judgelm.errors import ConfigError
from judgelm.judge import Judge
from judgelm.modes import Reasoned
from judgelm.prompts.judge_card import find_card
from judgelm.training.grpo import GRPOArguments, VerdictRewards, check_grpo_arguments
from judgelm.training.precision import JudgeGRPOConfig, vllm_fault
from judgelm.training.rows.builder import SFTRowBuilder
from judgelm.training.rows.records import IGNORED, RowOptions
from tests.support import recipe_runs

GRPO = {
    "template": "reasoned-compact", "max_length": 256, "max_completion_length": 12, "num_generations": 4,
    "per_device_train_batch_size": 8, "gradient_accumulation_steps": 2, "num_train_epochs": 1, "save_steps": 2,
    "least_letters": 0,
}  # fmt: skip
"""16 replies a step: 4 to each of 4 prompts, 2 pairs."""
EOS = 7
LONG = "The first answer is right, and the second one is not.\n"


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    path = tmp_path_factory.mktemp("world") / "pairs.jsonl"
    rows = [row for row in generate(20, seed=0, split="train") if row["score"][0] != row["score"][1]][:8]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def parsed(tmp_path, **options):
    config = recipe_runs.configure(tmp_path, train_data=["rows.jsonl"], **(GRPO | options))
    judge, args, _ = TrlParser((GRPOArguments, JudgeGRPOConfig, ModelConfig)).parse_args_and_config(
        ["--config", str(config)]
    )
    return judge, args


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"template": "judgelm-compact"}, "begins with a score line"),
        ({"per_device_train_batch_size": 4, "gradient_accumulation_steps": 1}, "4 to each of 1 prompts; .* double one"),
        ({"max_completion_length": 256}, "the reply must leave room for the prompt"),
        ({"soft_length": 12}, "soft_length is 12; it is less than max_completion_length"),
        ({"form_weight": -1}, "form_weight is -1"),
        ({"num_iterations": 2}, "num_iterations is 2"),
        ({"reward_weights": [1.0]}, "the weights of the reward are form_weight and length_weight"),
        ({"global_batch": 64}, "has no meaning for GRPO"),
        ({"train_sampling_strategy": "group_by_length"}, "random order"),
        ({"eval_data": ["a.jsonl"], "eval_pairs": 0}, "an evaluation judges pairs"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_way_out(tmp_path, options, message):
    judge, args = parsed(tmp_path, **options)
    with pytest.raises(ConfigError, match=message):
        check_grpo_arguments(judge, args)


@pytest.mark.parametrize("installed", ["0.22.0", "0.30.0", "0.31.0", "0.31.0+cu129", "0.30.1rc1"])
def test_trl_generates_with_the_versions_of_vllm_that_it_supports(installed):
    assert vllm_fault(installed) is None


@pytest.mark.parametrize("installed", ["0.21.9", "0.31.1", "0.32.0", "0.32.0+cpu", "1.0"])
def test_another_vllm_is_refused_with_the_range(installed):
    # TRL 1.16.0 states vllm<=0.31.0,>=0.22.0 in its metadata, and only warns of others
    assert re.match(rf"vllm {re.escape(installed)} is installed, .*0\.31\.0.*pip install 'vllm", vllm_fault(installed))


def test_a_training_with_vllm_but_without_a_vllm_of_trls_ends_before_it_begins(tmp_path, monkeypatch):
    monkeypatch.setattr("judgelm.training.precision.packages_distributions", dict)  # no package is installed
    judge, args = parsed(tmp_path, use_vllm=True)
    with pytest.raises(ConfigError, match="use_vllm is set, but vllm is not installed"):
        check_grpo_arguments(judge, args)


def test_without_a_gpu_transformers_generates_and_rewards_are_not_scaled_by_group(tmp_path):
    _, args = parsed(tmp_path)
    assert (args.use_vllm, args.scale_rewards, args.shuffle_dataset, args.max_length) == (False, "batch", False, 256)


def test_the_parts_of_the_reward_are_trls_reward_functions():
    judge = GRPOArguments(train_data=[], least_letters=20)
    rewards = VerdictRewards(judge, limit=8, eos_ids=[EOS])
    texts = [LONG + "[[1]]", LONG + "[[1]]", LONG + "[[2]]", "[[2]]"]
    ids = [[1, EOS], [1, 2, 3, EOS], [1] * 8, [2, EOS]]  # the third has no end
    columns = {"pair": [0, 0, 0, 0], "order": [0, 0, 1, 1], "best": [1, 1, 2, 2]}
    assert rewards.form(texts, ids) == [0, 0, -1, -1]
    assert rewards.length(ids) == [0, 0, -1, 0]
    assert rewards.both_orders_right(texts, ids, **columns, trainer_state=None) == [0, 0, 0, 0]
    right = [LONG + "[[1]]", LONG + "[[2]]", LONG + "[[2]]", LONG + "[[2]]"]
    # as given 1 of 2 is right, swapped both
    assert rewards.both_orders_right(right, [[1, EOS]] * 4, **columns) == [1, 0, 0.5, 0.5]


@pytest.fixture(scope="module")
def trained(tiny_model, pairs, tmp_path_factory):
    """A judge that the recipe made of a random model in 4 steps, with checkpoints after 2 and 4."""
    folder = tmp_path_factory.mktemp("grpo")
    options = {"model_name_or_path": str(tiny_model), "train_data": [pairs], "eval_data": [pairs], "eval_pairs": 4}
    config = recipe_runs.configure(folder, **(GRPO | options))
    assert recipe_runs.run_here(config, recipe="grpo") is None
    return folder / "out", config


def history(folder):
    state = json.loads((folder / "trainer_state.json").read_text())
    return [entry for entry in state["log_history"] if "reward" in entry]


def test_a_random_model_is_trained_and_its_card_says_how(trained):
    folder, _ = trained
    logged = history(folder / "checkpoint-4")
    assert [entry["step"] for entry in logged] == [1, 2, 3, 4]
    for entry in logged:
        parts = {name: entry[f"rewards/{name}/mean"] for name in ("both_orders_right", "form", "length")}
        weighed = parts["both_orders_right"] + 0.2 * parts["form"] + 0.1 * parts["length"]
        assert entry["reward"] == pytest.approx(weighed, abs=1e-5)
        assert parts["form"] == -1  # nonsense
    card = find_card(str(folder))
    assert (card.template, card.training["method"], card.training["steps"]) == ("reasoned-compact", "grpo", 4)
    assert card.training["metrics"]["failed"] == 1
    assert card.training["num_generations"] == 4
    assert card.training["generated_by"] == "transformers"


def test_the_judge_judges_pairs_as_it_was_trained(trained):
    folder, _ = trained
    with Judge(str(folder), engine="transformers") as judge:
        assert isinstance(judge.mode("pair"), Reasoned)
        assert judge.compare("q", "a", "b", max_tokens=8).failure is not None  # nonsense


def test_a_resumed_run_ends_as_one_that_was_not_stopped(trained, tmp_path):
    folder, config = trained
    values = json.loads(config.read_text()) | {"output_dir": str(tmp_path / "out")}
    stopped = recipe_runs.configure(tmp_path, **values)
    (tmp_path / "out").mkdir()
    shutil.copytree(folder / "checkpoint-2", tmp_path / "out" / "checkpoint-2")
    assert recipe_runs.run_here(stopped, recipe="grpo") is None
    first, second = (recipe_runs.losses_of(each / "checkpoint-4") for each in (folder, tmp_path / "out"))
    assert second == pytest.approx(first, abs=1e-6)


def test_too_few_pairs_for_a_step_are_refused(tiny_model, pairs, tmp_path):
    options = {"model_name_or_path": str(tiny_model), "train_data": [pairs], "gradient_accumulation_steps": 16}
    message = recipe_runs.run_here(recipe_runs.configure(tmp_path, **(GRPO | options)), recipe="grpo")
    assert re.search(r"have 8 pairs, and replies are drawn to 16 at once", message)


def test_reasons_come_first_in_the_rows_of_a_fine_tuning_too(tiny_model, pairs):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    builder = SFTRowBuilder(tokenizer, RowOptions(template="reasoned-compact", window=512, reference_drop_prob=1))
    for row in builder.read([pairs]):
        target = tokenizer.decode(row.input_ids[row.labels != IGNORED])
        assert re.fullmatch(r"Assistant 1 .*\n\[\[[12]\]\]" + re.escape(tokenizer.eos_token), target)
