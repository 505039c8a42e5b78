"""promptfoo's model-graded assertions."""

import json
from collections.abc import Callable
from dataclasses import replace

from judgelm.dialects import replies
from judgelm.dialects.contract import (
    ChatRequest,
    Dialect,
    JudgeResult,
    JudgeTask,
    last_text,
    task_from_split,
    template_dialect,
)
from judgelm.dialects.splits import TEMPLATES, Pattern

# The assertions are llm-rubric, closed QA, factuality, G-Eval, and select-best. The prompts for llm-rubric and
# select-best do not contain a question.
_bare_user, _bare_system = last_text("user", strip=str.strip), last_text("system", strip=str.strip)
_REPLY_STEPS = (
    "Note what the criteria ask of a reply.",
    "Check the reply against each of these points.",
    "Lower the score for every point that the reply does not meet.",
)
_BEST = (
    "You are comparing multiple pieces of text to see which best fits the following criteria: {criterion}\n\n"
    "Here are the pieces of text:\n\n\n"
)
_BEST_END = "\n\n\nOutput the index of the text that best fits the criteria. You must output a single integer."
_MAX_TEXTS = 64
"""Reject hostile prompts that contain thousands of fake texts."""


def _recognise_best(request: ChatRequest) -> JudgeTask | None:
    text = _bare_system(request) or ""
    most = 0
    while most <= _MAX_TEXTS and f'<Text index="{most}">\n' in text:
        most += 1
    if most > _MAX_TEXTS:
        return None
    for count in range(most, 1, -1):
        if (split := _best_template(count).split(text)) is not None:
            slots = [f"text_{index}" for index in range(count)]
            return task_from_split("promptfoo-select-best", "pair" if count == 2 else "choice", split, answers=slots)
    return None


def _best_template(count: int) -> Pattern:
    texts = "\n\n".join(f'<Text index="{index}">\n{{text_{index}}}\n</Text>' for index in range(count))
    return Pattern(_BEST + texts + _BEST_END)


def _rubric_text(task: JudgeTask, result: JudgeResult) -> str:
    """`score` is the probability that the rubric is met. The client uses `pass` unless the user sets a threshold."""
    passes = replies.is_fulfilled(result)
    score = round(result.correct, 4) if result.correct is not None else float(passes)
    return json.dumps({"reason": replies.explanation(result), "pass": passes, "score": score}, ensure_ascii=False)


def _closed_qa_text(task: JudgeTask, result: JudgeResult) -> str:
    """Put the letter last, because the client only parses the last line."""
    return f"{replies.explanation(result)}\n{'Y' if replies.is_fulfilled(result) else 'N'}"


def _factuality_text(task: JudgeTask, result: JudgeResult) -> str:
    """Return `C` (same details) or `D` (disagreement); P(correct) cannot distinguish the other categories."""
    category = "C" if replies.is_fulfilled(result) else "D"
    return json.dumps({"category": category, "reason": replies.explanation(result)}, ensure_ascii=False)


def _promptfoo_grade(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    """Omit numbers from the reason, because the prompt does not allow the score there."""
    reason = json.dumps(replies.explanation(result, digits=False), ensure_ascii=False)
    return f'{{"score":{replies.grade_text(result, task.scale)},"reason":{reason}}}'


def _best_text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    pair = len(task.sample.answers) == 2
    return str(replies.winner_of_two(task, result) - 1 if pair else replies.best_answer(task, result))


def _system_and_user(name: str, text: Callable[[JudgeTask, JudgeResult], str]) -> Dialect:
    system = TEMPLATES[f"{name}-system"]
    dialect = template_dialect(
        name,
        "label",
        text=last_text("system", "user", strip=str.strip),
        accepts=lambda request, split: system.split(request.messages[0].text.strip()) is not None,
        render=replies.same_reply(text),
    )
    return replace(dialect, templates=(*dialect.templates, system))


DIALECTS: tuple[Dialect, ...] = (
    _system_and_user("promptfoo-llm-rubric", _rubric_text),
    template_dialect("promptfoo-closedqa", "label", text=_bare_system, render=replies.same_reply(_closed_qa_text)),
    _system_and_user("promptfoo-factuality", _factuality_text),
    template_dialect(
        "promptfoo-g-eval", "grade", text=_bare_user, scale=(0, 10), render=replies.each_reply(_promptfoo_grade)
    ),
    template_dialect(
        "promptfoo-g-eval-steps",
        "prepare",
        text=_bare_user,
        render=replies.same_reply(
            lambda task, result: json.dumps({"steps": list(_REPLY_STEPS)}, separators=(",", ":"))
        ),
    ),
    Dialect(
        name="promptfoo-select-best",
        recognise=_recognise_best,
        render=replies.each_reply(_best_text),
        templates=(_best_template(2),),
    ),
)
