"""Use a judge as verl's custom reward function.

    reward.custom_reward_function.path=pkg://judgelm.rewards.verl
    reward.custom_reward_function.name=compute_score
    +reward.custom_reward_function.reward_kwargs.model=small-judge

In verl 0.9, many concurrent tasks request one reward each and share the judge's batches. Each reward worker loads a
judge, so use a server for large judges: `model=NAME engine=openai engine_args.base_url=URL`.
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
        data_source: not used.
        solution_str: the response.
        ground_truth: the reference answer for `reference`.
        extra_info: contains the question and, for `checklist`, a `criteria` list.
        model: see `Judge`.
        engine: see `Judge`.
        method: `reference`, `score`, or `checklist`; see `AnswerRewards`.
        question: key of the question in `extra_info`.
        failure_score: score for a response without a verdict. Default: such a response stops training.
        options: options of `Judge`.

    Returns:
        `score`, in [0, 1], and `judged`, 0 without a verdict.
    """
    text = (extra_info or {}).get(question)
    if not isinstance(text, str):
        raise InputError(f'extra_info has no string "{question}"; set question= to the question\'s key')
    reference = ground_truth if isinstance(ground_truth, str) else None
    for name in ("reward_router_address", "reward_model_tokenizer"):
        options.pop(name, None)
    rewards = _rewards(model, engine, method, json.dumps(_plain(options), sort_keys=True))
    sample = rewards.sample(RewardedAnswer(text, solution_str, reference, _plain((extra_info or {}).get("criteria"))))
    if sample is None and method == "checklist":
        raise InputError('extra_info has no "criteria"; method "checklist" needs a list of them')
    if sample is None:
        raise InputError('ground_truth is not a string; method "reference" needs a reference answer')
    judgment = await asyncio.wrap_future(rewards.queue.submit(sample))
    reward = rewards.reward(judgment)
    if reward is not None:
        return {"score": reward, "judged": 1.0}
    if failure_score is None:
        failure = judgment.failure
        cause = f"{failure.code}: {failure.why or failure.text}" if failure else "no winner"
        raise EngineError(f"no verdict on a response ({cause}), but verl needs a score; set failure_score")
    return {"score": failure_score, "judged": 0.0}


@cache
def _rewards(model: str | None, engine: str, method: Method, options: str) -> AnswerRewards:
    if method not in ALONE:
        raise ConfigError(f"method {method} needs groups of answers, which verl does not provide; use reference")
    return AnswerRewards(Judge(model, engine=engine, **json.loads(options)), method)


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return value
    return [_plain(each) for each in value]
