"""A judge plugin for verifiers (0.4), found by the ID `judgelm`.

    [[env.taskset.task.judges]]
    id = "judgelm"
    model = "small-judge"
    method = "reference"

Source: verifiers 0.4.0, `verifiers/v1/judge.py` and `verifiers/v1/judges/reference.py`.
"""

import json
from typing import Any

from pydantic import Field
from verifiers.v1.configs.judge import JudgeConfig
from verifiers.v1.judge import Judge, JudgeResponse, JudgeView, judge_question, judge_response
from verifiers.v1.task import TaskData
from verifiers.v1.trace import Trace
from verifiers.v1.types import ID, Usage

from judgelm.errors import ConfigError
from judgelm.rewards.scoring import Method, RewardedAnswer, shared_rewards


class VerifiersJudgeConfig(JudgeConfig):
    """Options of the plugin.

    Attributes:
        model: see `judgelm.Judge`; if empty, the default judge.
        base_url: OpenAI-compatible server with the judge. If empty, the judge is loaded in this process.
        api_key_var: environment variable with the server's key.
        method: `reference`, `score`, or `checklist`; see `judgelm.rewards.scoring.AnswerRewards`.
        options: further options for `judgelm.Judge`, such as `dtype` or `prompt`.
        question_field: field of the task with the question; if empty, the task's prompt.
        answer_field: field of the task with the reference answer.
        criteria_field: field of the task with the criteria, for `checklist`.
        view: whether the last reply or the whole trace is judged.
    """

    id: ID = "judgelm"
    model: str = ""
    base_url: str = ""
    api_key_var: str = "OPENAI_API_KEY"
    method: Method = "reference"
    options: dict[str, Any] = Field(default_factory=dict)
    question_field: str = ""
    answer_field: str = "answer"
    criteria_field: str = "criteria"
    view: JudgeView = "last_reply"


class VerifiersJudge(Judge[float, VerifiersJudgeConfig]):
    """Rewards a rollout with a judgelm judge. Without a verdict, it raises an error, so that verifiers retries."""

    async def score(self, task: TaskData, trace: Trace) -> float:
        """Return a reward in [0, 1], and record the judgment in the trace."""
        config = self.config
        if config.headers or config.prompt is not None or config.sampling.model_dump(exclude_none=True):
            raise ConfigError("judge judgelm: headers, prompt, and sampling are not supported; use options")
        options = dict(config.options)
        engine = options.pop("engine", "openai" if config.base_url else "auto")
        if config.base_url:
            endpoint = {"base_url": config.base_url, "api_key_env": config.api_key_var}
            options["engine_args"] = endpoint | options.get("engine_args", {})
        rewards = shared_rewards(config.model or None, engine, config.method, json.dumps(options, sort_keys=True))
        reference = getattr(task, config.answer_field, None)
        question, answer = judge_question(task, config.question_field), judge_response(trace, config.view)
        reward, judgment = await rewards.reward_one(
            RewardedAnswer(
                question,
                answer,
                reference if isinstance(reference, str) else None,
                getattr(task, config.criteria_field, None),
                {name: value for name in rewards.fields if (value := getattr(task, name, None)) is not None},
            )
        )
        usage = Usage(prompt_tokens=judgment.prompt_tokens, completion_tokens=judgment.completion_tokens)
        text = json.dumps(judgment.to_dict(), ensure_ascii=False)
        request = {"model": config.model, "method": config.method, "question": question, "answer": answer}
        response = JudgeResponse(text=text, parsed=reward, usage=usage)
        trace.record_judge_call(name=self.reward_name, request=request, response=response)
        return reward
