"""A judge as TRL's reward function: what TRL passes, and what it takes."""

import asyncio

import pytest

from judgelm.errors import InputError
from judgelm.judge import Judge
from judgelm.rewards.scoring import MethodOptions
from judgelm.rewards.trl import AsyncJudgeReward, JudgeReward, completion_text, question_text
from tests.support.known_judge import CHANCES, KnownEngine, known_judge, of_quality


def reward_function(method="reference", engine=None, **options):
    return JudgeReward(known_judge(engine), method, **options)


def called(function, completions, prompts=None, **columns):
    """As TRL 1.16 calls it: all by name, the columns as lists."""
    prompts = prompts or ["q"] * len(completions)
    given = {"prompts": prompts, "completions": completions, "completion_ids": [[1]] * len(completions)}
    return function(**given, trainer_state=None, log_extra=None, **columns)


def test_texts_and_messages():
    chat = [{"role": "system", "content": "s"}, {"role": "user", "content": "q"}]
    turns = [*chat, {"role": "assistant", "content": "a"}, {"role": "user", "content": [{"type": "text", "text": "b"}]}]
    texts = [question_text(prompt) for prompt in ("q", chat, turns)]
    assert texts == ["q", "q", "user: q\n\nassistant: a\n\nuser: b"]
    assert [completion_text(text) for text in ("a", [{"role": "assistant", "content": "a"}])] == ["a", "a"]


def test_the_reference_is_a_column():
    function = reward_function(reference="solution")
    messages = [[{"role": "assistant", "content": of_quality(level)}] for level in (4, 6)]
    rewards = called(function, messages, solution=[of_quality(5)] * 2)
    assert rewards == pytest.approx([CHANCES[-1], CHANCES[1]])
    with pytest.raises(InputError, match='no column "solution"'):
        called(function, messages, reference=[of_quality(5)] * 2)


def test_asynchronous_rewards_are_the_same_and_run_side_by_side():
    from trl.trainer.grpo_trainer import is_async_callable

    functions = [AsyncJudgeReward(known_judge(), "reference") for _ in range(2)]
    assert is_async_callable(functions[0])

    async def both():
        texts = [of_quality(4), of_quality(6)]
        return await asyncio.gather(*(called(each, texts, reference=[of_quality(5)] * 2) for each in functions))

    assert asyncio.run(both()) == [pytest.approx([CHANCES[-1], CHANCES[1]])] * 2


@pytest.mark.slow
def test_trl_trains_with_asynchronous_rewards(tiny_model, tmp_path):
    from datasets import Dataset
    from trl import GRPOConfig, GRPOTrainer

    rows = [{"prompt": f"what is {number} ?", "reference": of_quality(5)} for number in range(4)]
    functions = [AsyncJudgeReward(known_judge(), method) for method in ("reference", "score")]
    config = GRPOConfig(
        output_dir=str(tmp_path), max_steps=2, per_device_train_batch_size=4, num_generations=2, logging_steps=1,
        max_completion_length=4, report_to="none", use_cpu=True, bf16=False,
    )  # fmt: skip
    trainer = GRPOTrainer(str(tiny_model), reward_funcs=functions, args=config, train_dataset=Dataset.from_list(rows))
    trainer.train()
    steps = [row for row in trainer.state.log_history if "reward" in row]
    assert len(steps) == 2
    for row in steps:
        assert row["reward"] == pytest.approx(
            row["rewards/judge_reference/mean"] + row["rewards/judge_score/mean"], abs=1e-5
        )
        assert 0 < row["rewards/judge_score/mean"] < 1


def test_the_question_is_the_prompt_or_a_column():
    engine = KnownEngine()
    function = reward_function("score", engine)
    called(function, ["a"], prompts=[[{"role": "user", "content": "from the prompt"}]])
    called(function, ["a"], question=["from a column"])
    shown = {span.text for prompt in engine.prompts for span in prompt.spans if span.kind == "question"}
    assert shown == {"from the prompt", "from a column"}


def test_the_criteria_are_a_column_or_an_option():
    judge = Judge("Yes", engine="scripted")
    rows = [["c"], [{"text": "c", "weight": 2}, {"text": "d", "weight": -1}]]
    assert called(JudgeReward(judge, "checklist"), ["a", "b"], criteria=rows) == pytest.approx([1, 1 / 2])
    function = JudgeReward(judge, "checklist", options=MethodOptions(criteria=("c",)))
    assert called(function, ["a"]) == pytest.approx([1])
    with pytest.raises(InputError, match='no column "criteria"'):
        called(JudgeReward(judge, "checklist"), ["a"])


def test_the_fields_of_a_prompt_are_columns(tmp_path):
    (tmp_path / "mine.txt").write_text("{question} {context} {answer}\nreply: Yes/No")
    engine = KnownEngine(lambda prompt: {"Yes": 0.75, "No": 0.25})
    function = JudgeReward(known_judge(engine, prompt=tmp_path / "mine.txt"), "score")
    assert called(function, ["a", "b"], context=["c", "d"]) == pytest.approx([0.75, 0.75])
    assert {span.text for prompt in engine.prompts for span in prompt.spans} >= {"c", "d"}
    with pytest.raises(InputError, match='no column "context"'):
        called(function, ["a"])


def test_groups_are_the_completions_of_a_prompt():
    completions = [of_quality(level) for level in (5, 7, 6, 5)]
    rewards = called(reward_function("group"), completions, prompts=["q", "other", "q", "other"])
    assert rewards == pytest.approx([CHANCES[-1], CHANCES[2], CHANCES[1], CHANCES[-2]])


def test_failures_are_none_and_their_share_is_logged():
    logged = {}
    function = reward_function(engine=KnownEngine(lambda prompt: {"nonsense": 1.0}))
    rewards = called(function, ["a", "b"], reference=["c", None], log_metric=lambda *pair: logged.update([pair]))
    assert (rewards, logged) == ([None, None], {"judge_failures": 1.0})


def test_the_name_in_trls_logs():
    from trl.trainer.utils import get_callable_name

    assert get_callable_name(reward_function("group")) == "judge_group"
