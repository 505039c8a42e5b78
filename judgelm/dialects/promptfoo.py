"""promptfoo's model-graded assertions: llm-rubric, closed QA, factuality, G-Eval and select-best.

Criteria and rubrics are the user's. The prompts of llm-rubric and select-best show no question. The texts of
select-best are counted by their indices, as many as there are in a row.

Source: promptfoo 0.121 (captured requests and replies).
"""

import json
from functools import partial

from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask, TaskKind
from judgelm.dialects.patterns import Pattern, Split
from judgelm.dialects.recognition import ambiguity_note, sample_of, task_from_split
from judgelm.dialects.text import explanation
from judgelm.dialects.verdicts import (
    best_answer,
    each_reply,
    grade_text,
    is_fulfilled,
    same_reply,
    winner_of_two,
)

_RUBRIC_SYSTEM = Pattern(
    "You are grading output according to a user-specified rubric. If the statement in the rubric is true, then the "
    "output passes the test. You respond with a JSON object with this structure: {reason: string, "
    "pass: boolean, score: number}{examples}"
)
_RUBRIC = Pattern("<Output>\n{first}\n</Output>\n<Rubric>\n{criterion}\n</Rubric>")

_CLOSED_QA = Pattern(
    "You are assessing a submitted answer on a given task based on a criterion. Here is the data:\n[BEGIN DATA]\n***\n"
    "[Task]: {question}\n***\n[Submission]: {first}\n***\n[Criterion]: {criterion}\n***\n[END DATA]\n"
    'Does the submission meet the criterion? {rules} Then print only the single character "Y" or "N" (without quotes '
    "or punctuation) on its own line corresponding to the correct answer. {end}\n\n    Reasoning:"
)

_FACTUALITY_SYSTEM = Pattern(
    "You are a precise factuality evaluator that compares a submitted answer to an expert answer.{categories}\n\n"
    'Respond ONLY with a JSON object in this format:\n{\n  "category": "[LETTER]",\n  "reason": "[DETAILED EXPLANATION]'
    '"\n}\n{rules}'
)
_FACTUALITY = Pattern(
    "I need you to compare these answers:\n\n<question>\n{question}\n</question>\n\n<expert_answer>\n{reference}\n"
    "</expert_answer>\n\n<submitted_answer>\n{first}\n</submitted_answer>\n\nPlease analyze the factual relationship "
    "between these answers according to the categories you've been given."
)

_GEVAL_STEPS = Pattern(
    "Given evaluation criteria that outline how you should judge a piece of text, generate 3-4 concise evaluation "
    "steps applicable to any text{rules}\n\n**EVALUATION CRITERIA**\n{criterion}\n\n**OUTPUT FORMAT**\nIMPORTANT:\n"
    '{format}\n\nFormat:\n{"steps": <list_of_strings>}\n\n{example}\nJSON:'
)
_STEPS = (
    "Note what the criteria ask of a reply.",
    "Check the reply against each of these points.",
    "Lower the score for every point that the reply does not meet.",
)
_GEVAL = Pattern(
    "You will be given one Reply for a Prompt below. Your task is to rate the Reply on one metric.{rules}\n\n"
    "**Evaluation Criteria**\n{criterion}\n\n**Evaluation Steps**\n{steps}\nGiven the evaluation steps, return a JSON "
    'with two keys: \n  1) a "score" key that MUST be an integer from 0 to 10, {wanted}\n\n**Prompt**\n{question}\n\n'
    "**Reply**\n{first}\n\n**OUTPUT FORMAT**\nIMPORTANT: \n{format}\n\nExample JSON:\n{example}\nJSON:"
)

_BEST = "You are comparing multiple pieces of text to see which best fits the following criteria: {criterion}\n\n"
_BEST_TEXTS = "Here are the pieces of text:\n\n\n"
_BEST_END = "\n\n\nOutput the index of the text that best fits the criteria. You must output a single integer."

_MOST_TEXTS = 64
"""A prompt of more is not of this dialect: thousands of imitated texts must not stop a server."""


def _recognise_user(name: str, system: Pattern, user: Pattern, request: ChatRequest) -> JudgeTask | None:
    """A label by a prompt in the user's message, below a known system message."""
    texts = request.only("system", "user")
    if texts is None or system.split(texts[0].strip()) is None:
        return None
    return _task(name, "label", user.split(texts[1].strip()))


def _recognise_lone(
    name: str, kind: TaskKind, role: str, pattern: Pattern, scale: tuple[float, float] | None, request: ChatRequest
) -> JudgeTask | None:
    """A task in the only message."""
    texts = request.only(role)
    return _task(name, kind, pattern.split(texts[0].strip()), scale) if texts else None


def _recognise_best(request: ChatRequest) -> JudgeTask | None:
    texts = request.only("system")
    if texts is None:
        return None
    text = texts[0].strip()
    most = 0
    while most <= _MOST_TEXTS and f'<Text index="{most}">\n' in text:
        most += 1
    if most > _MOST_TEXTS:
        return None
    for count in range(most, 1, -1):
        if (split := _texts_pattern(count).split(text)) is not None:
            answers = tuple(split.values[f"text_{index}"] for index in range(count))
            return JudgeTask(
                dialect="promptfoo-select-best",
                kind="pair" if count == 2 else "choice",
                sample=sample_of("", answers, criterion=split.values["criterion"]),
                doubt=ambiguity_note(split),
            )
    return None


def _texts_pattern(count: int) -> Pattern:
    texts = "\n\n".join(f'<Text index="{index}">\n{{text_{index}}}\n</Text>' for index in range(count))
    return Pattern(_BEST + _BEST_TEXTS + texts + _BEST_END)


def _task(name: str, kind: TaskKind, split: Split | None, scale: tuple[float, float] | None = None) -> JudgeTask | None:
    if split is None:
        return None
    return task_from_split(name, kind, split, scale=scale, criterion=split.values.get("criterion"))


def _rubric_text(task: JudgeTask, result: JudgeResult) -> str:
    """`score` is the probability that the rubric is fulfilled; `pass` decides unless the user sets a threshold."""
    passes = is_fulfilled(result)
    score = round(result.correct, 4) if result.correct is not None else float(passes)
    return json.dumps({"reason": explanation(result), "pass": passes, "score": score}, ensure_ascii=False)


def _closed_qa_text(task: JudgeTask, result: JudgeResult) -> str:
    """The letter once, on the last line; the prompt wants it twice, the client reads the last."""
    return f"{explanation(result)}\n{'Y' if is_fulfilled(result) else 'N'}"


def _factuality_text(task: JudgeTask, result: JudgeResult) -> str:
    """`C` (the same details) or `D` (a disagreement): a probability of being correct says no more."""
    verdict = {"category": "C" if is_fulfilled(result) else "D", "reason": explanation(result)}
    return json.dumps(verdict, ensure_ascii=False)


def _geval_text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    """Minified, with decimals (the client takes them); the prompt wants no score within the reason."""
    reason = json.dumps(explanation(result, digits=False), ensure_ascii=False)
    return f'{{"score":{grade_text(result, task.scale)},"reason":{reason}}}'


def _steps_text(task: JudgeTask, result: JudgeResult) -> str:
    return json.dumps({"steps": list(_STEPS)}, separators=(",", ":"))


def _best_text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    """The index alone; of equals the one whose hash is lowest, whatever the order shown."""
    pair = len(task.sample.answers) == 2
    return str(winner_of_two(task, result) - 1 if pair else best_answer(task, result))


DIALECTS: tuple[Dialect, ...] = (
    Dialect(
        name="promptfoo-llm-rubric",
        recognise=partial(_recognise_user, "promptfoo-llm-rubric", _RUBRIC_SYSTEM, _RUBRIC),
        render=same_reply(_rubric_text),
        templates=(_RUBRIC, _RUBRIC_SYSTEM),
    ),
    Dialect(
        name="promptfoo-closedqa",
        recognise=partial(_recognise_lone, "promptfoo-closedqa", "label", "system", _CLOSED_QA, None),
        render=same_reply(_closed_qa_text),
        templates=(_CLOSED_QA,),
    ),
    Dialect(
        name="promptfoo-factuality",
        recognise=partial(_recognise_user, "promptfoo-factuality", _FACTUALITY_SYSTEM, _FACTUALITY),
        render=same_reply(_factuality_text),
        templates=(_FACTUALITY, _FACTUALITY_SYSTEM),
    ),
    Dialect(
        name="promptfoo-g-eval",
        recognise=partial(_recognise_lone, "promptfoo-g-eval", "grade", "user", _GEVAL, (0, 10)),
        render=each_reply(_geval_text),
        templates=(_GEVAL,),
    ),
    Dialect(
        name="promptfoo-g-eval-steps",
        recognise=partial(_recognise_lone, "promptfoo-g-eval-steps", "prepare", "user", _GEVAL_STEPS, None),
        render=same_reply(_steps_text),
        templates=(_GEVAL_STEPS,),
    ),
    Dialect(
        name="promptfoo-select-best",
        recognise=_recognise_best,
        render=each_reply(_best_text),
        templates=(_texts_pattern(2),),
    ),
)
