"""inspect_ai's model-graded scorers: against a criterion (`model_graded_qa`) and against a fact (`model_graded_fact`).

The instructions behind the data are the user's; the letters offered in them are `C` and `I`, or `C`, `P` and `I`. A
probability of being correct says nothing about being partly so; `P` is never given. The client has taken out of the
answer what looks like its own delimiters; the split gives what the prompt holds.

Source: inspect_ai 0.3 (captured requests and replies).
"""

from functools import partial

from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.recognition import task_from_split
from judgelm.dialects.text import explanation
from judgelm.dialects.verdicts import is_fulfilled, same_reply

_QA = Pattern(
    "You are assessing a submitted answer on a given task based on a criterion. Here is the data:\n\n[BEGIN DATA]\n"
    "***\n[Task]: {question}\n***\n[Submission]: {first}\n***\n[Criterion]: {reference}\n***\n[END DATA]\n\n"
    "Does the submission meet the criterion?\n{instructions}"
)
_FACT = Pattern(
    "You are comparing a submitted answer to an expert answer on a given question. Here is the data:\n\n[BEGIN DATA]\n"
    "************\n[Question]: {question}\n************\n[Expert]: {reference}\n************\n[Submission]: {first}\n"
    "************\n[END DATA]\n\nCompare the factual content of the submitted answer with the expert answer. Ignore "
    "any differences in style, grammar, or punctuation.\n\nDoes the submission contain the content in the expert "
    "answer?\n{instructions}"
)
_NAMES = {"inspect-model-graded-qa": _QA, "inspect-model-graded-fact": _FACT}


def _recognise(name: str, request: ChatRequest) -> JudgeTask | None:
    texts = request.only("user")
    split = _NAMES[name].split(texts[0].lstrip("\n")) if texts else None
    if split is None or "GRADE: " not in split.values["instructions"]:
        return None
    return task_from_split(name, "label", split)


def _text(task: JudgeTask, result: JudgeResult) -> str:
    return f"{explanation(result)}\n\nGRADE: {'C' if is_fulfilled(result) else 'I'}"


DIALECTS: tuple[Dialect, ...] = tuple(
    Dialect(name=name, recognise=partial(_recognise, name), render=same_reply(_text), templates=(template,))
    for name, template in _NAMES.items()
)
