"""Use a judge as verl's custom reward function.

    reward.custom_reward_function.path=pkg://judgelm.rewards.verl
    reward.custom_reward_function.name=compute_score
    +reward.custom_reward_function.reward_kwargs.model=small-judge

verl 0.9 requests rewards in many concurrent tasks, which share the judge's batches. Each reward worker loads a copy of
the judge. If the judge is large, use a server instead: `model=NAME engine=openai engine_args.base_url=URL`.
"""

import json
from collections.abc import Mapping
from typing import Any

from judgelm.errors import EngineError, InputError
from judgelm.rewards.scoring import Method, RewardedAnswer, UnrewardedError, shared_rewards


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
    """Compute the reward for one response.

    Args:
        data_source: ignored.
        solution_str: the response.
        ground_truth: the reference answer, for method `reference`.
        extra_info: contains the question and, for method `checklist`, a list of `criteria`; for a judge with a prompt
            file, also the values of its other slots.
        model: see `Judge`.
        engine: see `Judge`.
        method: `reference`, `score`, or `checklist`; see `AnswerRewards`.
        question: key of the question in `extra_info`.
        failure_score: score to return if there is no verdict. By default, an error is raised, which stops training.
        options: options for `Judge`.

    Returns:
        `score`, which is in [0, 1], and `judged`, which is 0 if there is no verdict.
    """
    text = (extra_info or {}).get(question)
    if not isinstance(text, str):
        raise InputError(f'extra_info has no string "{question}"; set question= to the key of the question')
    reference = ground_truth if isinstance(ground_truth, str) else None
    for name in ("reward_router_address", "reward_model_tokenizer"):
        options.pop(name, None)
    rewards = shared_rewards(model, engine, method, json.dumps(_plain(options), sort_keys=True))
    info = _plain(extra_info or {})
    fields = {name: info[name] for name in rewards.fields if name in info}
    try:
        reward, _ = await rewards.reward_one(
            RewardedAnswer(text, solution_str, reference, info.get("criteria"), fields)
        )
    except UnrewardedError as error:
        if failure_score is None:
            raise EngineError(f"{error}; set failure_score to use a fixed score in such cases") from error
        return {"score": failure_score, "judged": 0.0}
    return {"score": reward, "judged": 1.0}


def _plain(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, str) or not hasattr(value, "__iter__"):
        return value
    return [_plain(each) for each in value]
