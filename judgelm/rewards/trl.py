"""Use judges as `reward_funcs=` in TRL trainers (GRPO, RLOO).

from judgelm import Judge from judgelm.rewards.trl import JudgeReward reward = JudgeReward(Judge("small-judge"),
"reference") trainer = GRPOTrainer(model, reward_funcs=[reward], ...)
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from accelerate import PartialState
from accelerate.utils import gather_object

from judgelm.errors import InputError
from judgelm.judge import Judge
from judgelm.rewards.scoring import ALONE, AnswerRewards, Method, MethodOptions, RewardedAnswer, groups_of

Text = str | Sequence[Mapping[str, Any]]
"""A TRL prompt or completion: a string or messages."""


class JudgeReward:
    """Computes rewards for completions using a judge; see `AnswerRewards`.

    If the judge has a prompt file, the values of its other slots are read from the columns with the same names.
    Completions with a None reward get no advantage. The share of None rewards is logged as `judge_failures`.

    Args:
        judge: must be closed by the caller.
        method: see `AnswerRewards`.
        question: column with the question. If the column is missing, the prompt or its user message is used.
        reference: column with the reference answer; required for `reference`.
        criteria: column with the criteria for `checklist`, as strings or as objects with `text` and `weight`.

    Raises:
        ConfigError: The method is unknown, or the judge does not support it.
    """

    def __init__(
        self,
        judge: Judge,
        method: Method = "reference",
        *,
        question: str = "question",
        reference: str = "reference",
        criteria: str = "criteria",
        options: MethodOptions | None = None,
    ) -> None:
        self._rewards = AnswerRewards(judge, method, options)
        self._columns = (question, reference, criteria)
        self._has_criteria = bool(options and options.criteria)
        self.__name__ = f"judge_{method}"

    def __call__(
        self,
        prompts: Sequence[Text],
        completions: Sequence[Text],
        *,
        log_metric: Callable[[str, float], None] | None = None,
        **columns: Any,
    ) -> list[float | None]:
        """Return one reward per completion. TRL passes dataset columns as keyword arguments."""
        question, reference, criteria = self._columns
        if self._rewards.method == "reference" and reference not in columns:
            raise InputError(f'the dataset has no column "{reference}"; set reference= to the column of references')
        if self._rewards.method == "checklist" and criteria not in columns and not self._has_criteria:
            raise InputError(f'the dataset has no column "{criteria}"; set criteria= to the column with criteria')
        if missing := [name for name in self._rewards.fields if name not in columns]:
            raise InputError(f'the dataset has no column "{missing[0]}", which the judge\'s prompt shows; add it')
        questions = columns.get(question) or [question_text(prompt) for prompt in prompts]
        references = columns.get(reference) or [None] * len(prompts)
        checklists = columns.get(criteria) or [None] * len(prompts)
        own = [{name: columns[name][index] for name in self._rewards.fields} for index in range(len(prompts))]
        answers = [
            RewardedAnswer(query, completion_text(text), known, checklist, fields)
            for query, text, known, checklist, fields in zip(
                questions, completions, references, checklists, own, strict=True
            )
        ]
        rewards = self._rewards(answers) if self._rewards.method in ALONE else self._in_groups(answers)
        if log_metric is not None and rewards:
            log_metric("judge_failures", sum(reward is None for reward in rewards) / len(rewards))
        return rewards

    def close(self) -> None:
        """Stop the queue. The judge stays open."""
        self._rewards.close()

    def _in_groups(self, own: list[RewardedAnswer]) -> list[float | None]:
        state = PartialState()
        counts = gather_object([len(own)])
        answers = [RewardedAnswer(*answer) for answer in gather_object(own)]
        groups = list(groups_of(answers).values())
        mine = [index for group in groups[state.process_index :: state.num_processes] for index in group]
        judged = dict(gather_object(list(zip(mine, self._rewards([answers[index] for index in mine]), strict=True))))
        begin = sum(counts[: state.process_index])
        return [judged[index] for index in range(begin, begin + len(own))]


class AsyncJudgeReward(JudgeReward):
    """Like `JudgeReward`, but TRL runs it at the same time as other asynchronous rewards."""

    async def __call__(self, *arguments: Any, **columns: Any) -> list[float | None]:  # type: ignore[override]
        """Return one reward per completion."""
        return await asyncio.to_thread(super().__call__, *arguments, **columns)


def question_text(prompt: Text) -> str:
    """Extract the question from a prompt: the string, the only user message, or all messages with their roles."""
    if isinstance(prompt, str):
        return prompt
    messages = [message for message in prompt if message["role"] != "system"]
    if len(messages) == 1:
        return _content(messages[0])
    return "\n\n".join(f"{message['role']}: {_content(message)}" for message in messages)


def completion_text(completion: Text) -> str:
    """Return the text of a completion or of all its messages."""
    return completion if isinstance(completion, str) else "\n\n".join(map(_content, completion))


def _content(message: Mapping[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)
