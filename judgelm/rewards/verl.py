"""A judge as verl's custom reward function, which verl's reward loop finds by name.

    reward.custom_reward_function.path=pkg://judgelm.rewards.verl
    reward.custom_reward_function.name=compute_score
    +reward.custom_reward_function.reward_kwargs.model=small-judge

verl 0.9 asks for one response at a time, from many tasks at once; they share the judge's batches. Each of its reward
workers loads its own judge, so give a large one as a server: `model=NAME engine=openai engine_args.base_url=URL`.
"""

import asyncio
import json
from collections.abc import Mapping
from functools import cache
from typing import Any

from judgelm.errors import ConfigError, EngineError, InputError
from judgelm.judge import Judge
from judgelm.rewards.scoring import ALONE, AnswerRewards, Method, RewardedAnswer


async def compute_score(
    data_source: str,
    solution_str: str,
    ground_truth: Any,
    extra_info: Mapping[str, Any] | None = None,
    *,
    model: str | None = None,
    engine: str = "auto",
    method: Method = "reference",
    question: str = "question",
    failure_score: float | None = None,
    **options: Any,
) -> dict[str, float]:
    """Reward one response.

    Args:
        data_source: of the row; not used.
        solution_str: the response.
        ground_truth: the reference answer, for `reference`; for the other methods it may be None.
        extra_info: of the row; holds the question, and for `checklist` the list `criteria`.
        model: as `Judge` takes it.
        engine: as `Judge` takes it.
        method: `reference`, `score` or `checklist`, see `AnswerRewards`; verl passes no whole groups.
        question: key of `extra_info` with the question.
        failure_score: the score of a response that the judge has no verdict on. verl has no place for a missing
            reward, so without it such a response stops the training.
        options: further options of `Judge`; those that verl itself passes are left out.

    Returns:
        `score` in [0, 1], and `judged`, 0 where the judge had no verdict.

    Raises:
        ConfigError: a method that needs whole groups.
        InputError: the row has no question, or no reference or criteria where they are needed.
        EngineError: no verdict, and no `failure_score`; or the engine broke.
    """
    text = (extra_info or {}).get(question)
    if not isinstance(text, str):
        raise InputError(f'extra_info has no text "{question}"; put the question there, or name its key by question=')
    reference = ground_truth if isinstance(ground_truth, str) else None
    for name in ("reward_router_address", "reward_model_tokenizer"):
        options.pop(name, None)
    rewards = _rewards(model, engine, method, json.dumps(_plain(options), sort_keys=True))
    sample = rewards.sample(RewardedAnswer(text, solution_str, reference, _plain((extra_info or {}).get("criteria"))))
    if sample is None and method == "checklist":
        raise InputError('extra_info has no "criteria", and method "checklist" needs a list of them')
    if sample is None:
        raise InputError('the row\'s ground_truth is no text, and method "reference" needs a reference answer')
    judgment = await asyncio.wrap_future(rewards.queue.submit(sample))
    reward = rewards.reward(judgment)
    if reward is not None:
        return {"score": reward, "judged": 1.0}
    if failure_score is None:
        failure = judgment.failure
        cause = f"{failure.code}: {failure.why or failure.text}" if failure else "it names no winner"
        raise EngineError(
            f"the judge has no verdict on a response ({cause}), and verl needs a score; set "
            "reward_kwargs.failure_score to train on"
        )
    return {"score": failure_score, "judged": 0.0}


@cache
def _rewards(model: str | None, engine: str, method: Method, options: str) -> AnswerRewards:
    """The judge of this process, loaded once."""
    if method not in ALONE:
        raise ConfigError(f"method {method} compares the answers of a group, which verl does not pass; use reference")
    return AnswerRewards(Judge(model, engine=engine, **json.loads(options)), method)


def _plain(value: Any) -> Any:
    """Nested mappings and lists of OmegaConf as Python's own."""
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return value
    return [_plain(each) for each in value]
