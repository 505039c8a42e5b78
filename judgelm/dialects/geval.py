"""The original G-Eval script: four metrics of a summary, one system message each, a bare number wanted.

The prompts stand in files that users change; recognised are the form at the end, the metric with its scale, and the
headings around the texts. The metric of fluency shows no source.

Source: G-Eval, the authors' script (captured requests and replies).
"""

import re

from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.recognition import task_from_split
from judgelm.dialects.verdicts import each_reply, grade_text

_NAME = "geval"
_HEAD = re.compile(
    r"You will be given (?:one summary written for a news article|a news article)\..*?"
    r"\n\nEvaluation Criteria:\n\n(?P<criterion>.*?)(?=\n\n\nExample:\n)",
    re.DOTALL,
)
_TEXTS = (
    Pattern("\n\n\nExample:\n\n\nSource Text:\n\n{question}\n\nSummary:\n\n{first}"),
    Pattern("\n\n\nExample:\n\n\nSource Text: \n\n{question}\n\nSummary: \n\n{first}"),
    Pattern("\n\n\nExample:\n\nSummary:\n\n{first}"),
)
_FORM = re.compile(r"\n\n\nEvaluation Form \(scores ONLY\):\n\n- (?P<metric>[A-Z][a-z]+)(?: \(\d+-\d+\))?:\s*\Z")


def _recognise(request: ChatRequest) -> JudgeTask | None:
    texts = request.only("system")
    form = _FORM.search(texts[0]) if texts else None
    head = _HEAD.match(texts[0]) if texts else None
    if texts is None or form is None or head is None:
        return None
    scale = re.search(rf"{form['metric']} \((\d+)-(\d+)\)", head["criterion"])
    body = texts[0][head.end() : form.start()]
    split = next((split for pattern in _TEXTS if (split := pattern.split(body)) is not None), None)
    if scale is None or split is None:
        return None
    limits = (float(scale[1]), float(scale[2]))
    return task_from_split(_NAME, "grade", split, scale=limits, criterion=head["criterion"])


def _text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    """A bare number: the client takes the first one of each reply, decimals too, and averages over the replies."""
    return grade_text(result, task.scale)


DIALECTS: tuple[Dialect, ...] = (Dialect(name=_NAME, recognise=_recognise, render=each_reply(_text), templates=_TEXTS),)
