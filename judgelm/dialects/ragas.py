"""ragas: its three metrics with prompts of their own, and the discrete metric with a prompt of the user's.

In the first three the texts stand escaped in a JSON object behind the instruction, which is the user's in part; the
schema of the reply says which metric it is. The discrete metric's prompt is the user's altogether: texts are found by
the usual labels at the start of a line, and what is found stays in doubt.

Source: ragas 0.4 (captured requests and replies).
"""

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.recognition import sample_of
from judgelm.dialects.text import explanation
from judgelm.dialects.verdicts import each_reply, expected_grade, is_fulfilled, rescale, same_reply

_ASPECT, _SIMPLE, _RUBRICS = "ragas-aspect-critic", "ragas-simple-criteria", "ragas-rubrics"
_KINDS = {"AspectCriticOutput": _ASPECT, "SimpleCriteriaOutput": _SIMPLE, "ScoreFeedback": _RUBRICS}
"""Titles of the replies' schemas."""

_FORM = (
    "\nPlease return the output in a JSON format that complies with the following schema as specified in JSON Schema:\n"
)
_TEXTS = "\nNow perform the same with the following input\ninput: "

_RANGE = re.compile(
    r"(?P<word>(?i:\b(?:scores?|scoring|rated?|rating|scale|grades?|from|between)\b)[^\d\n]{0,30})?"
    r"\b(?P<low>\d+)\s*(?:to|-|–|and|through)\s*(?P<high>\d+)\b"
)
_HIGHEST = 100
"""Ranges beyond it are of something else, such as years."""
_LEVEL = re.compile(r"score_?(\d+)_description")
_USUAL_RANGE = (0.0, 5.0)
"""Of criteria that name none; the client's documents use it."""

_DISCRETE = "ragas-discrete"
_LABELS = {
    "question": ("Question", "User Input", "User input", "Input", "Query", "Prompt", "Instruction"),
    "answer": ("Response", "Answer", "Output", "Model response", "Prediction", "Submission"),
    "reference": ("Reference", "Expected answer", "Expected", "Ground truth", "Ground Truth", "Target", "Gold answer"),
}
_GOOD = frozenset({"pass", "passed", "correct", "yes", "true", "accurate", "good", "acceptable", "valid", "1"})


def _recognise(name: str, request: ChatRequest) -> JudgeTask | None:
    texts = request.only("user")
    if texts is None:
        return None
    front, _, shown = texts[0].rpartition(_TEXTS)
    instruction, _, wanted = front.partition(_FORM)
    schema, row = _object(wanted), _object(shown)
    if schema is None or row is None or _KINDS.get(str(schema.get("title"))) != name:
        return None
    if not isinstance(row.get("response"), str):
        return None  # a whole dialogue: there is no one answer to judge
    criterion = re.split(r"\nCriteria Definition: |\n\nScoring Rubrics:\n", instruction, maxsplit=1)[-1].strip()
    contexts = row.get("retrieved_contexts") or row.get("reference_contexts")
    joined = "\n\n".join(str(context) for context in contexts) if isinstance(contexts, list) else None
    question, reference = _string(row.get("user_input")) or "", _string(row.get("reference"))
    sample = sample_of(question, (row["response"],), reference, criterion=criterion, context=joined)
    if name == _ASPECT:
        return JudgeTask(dialect=name, kind="label", sample=sample)
    scale = _levels(instruction, row.get("rubrics")) if name == _RUBRICS else _range(criterion)
    return JudgeTask(dialect=name, kind="grade", sample=sample, scale=scale)


def _object(text: str) -> Mapping[str, Any] | None:
    """The JSON object at the start of a text."""
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _string(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _inner(value: object, name: str) -> object:
    return value.get(name) if isinstance(value, Mapping) else None


def _range(criterion: str) -> tuple[float, float]:
    """The range that a criterion names, such as "0 to 5": one behind a word for scoring goes before any other."""
    ranges = [match for match in _RANGE.finditer(criterion) if float(match["low"]) < float(match["high"]) <= _HIGHEST]
    if not ranges:
        return _USUAL_RANGE
    best = max(ranges, key=lambda match: bool(match["word"]))
    return float(best["low"]), float(best["high"])


def _levels(instruction: str, own: object) -> tuple[float, float]:
    """The lowest and highest level of the rubric, which stands in the instruction or with the texts."""
    keys = list(own) if isinstance(own, Mapping) else instruction.split("\n")
    levels = [float(match[1]) for key in keys if (match := _LEVEL.match(str(key)))]
    return (min(levels), max(levels)) if len(set(levels)) > 1 else (1.0, 5.0)


def _aspect_text(task: JudgeTask, result: JudgeResult) -> str:
    verdict = {"reason": explanation(result), "verdict": 1 if is_fulfilled(result) else 0}
    return json.dumps(verdict, ensure_ascii=False)


def _grade_text(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    """Whole numbers: the client refuses others."""
    assert task.scale is not None
    words = "feedback" if task.dialect == _RUBRICS else "reason"
    verdict = {words: explanation(result), "score": int(rescale(expected_grade(result), task.scale, whole=True))}
    return json.dumps(verdict, ensure_ascii=False)


def _recognise_discrete(request: ChatRequest) -> JudgeTask | None:
    texts = request.only("system", "user")
    if texts is None or '"DiscreteResponseModel"' not in texts[0]:
        return None
    schema = _object(texts[0][texts[0].find("{") :])
    values = _inner(_inner(_inner(schema, "properties"), "value"), "enum")
    if not isinstance(values, list):
        return None
    good = [value for value in values if str(value).lower() in _GOOD]
    bad = [value for value in values if str(value).lower() not in _GOOD]
    if len(good) != 1 or len(bad) != 1 or (parts := _labelled(texts[1], values)) is None:
        return None
    sample = sample_of(parts.get("question", ""), (parts["answer"],), parts.get("reference"))
    doubt = "the prompt is the user's own: its texts were found by usual labels"
    facts = {"good": good[0], "bad": bad[0]}
    return JudgeTask(dialect=_DISCRETE, kind="label", sample=sample, facts=facts, doubt=doubt)


def _labelled(prompt: str, values: Sequence[object]) -> Mapping[str, str] | None:
    """The texts behind "Question: " and the like, each at the start of a line; None where no answer is found."""
    text = "\n" + prompt
    starts = {}
    for part, labels in _LABELS.items():
        matches = [(start, label) for label in labels if (start := text.find(f"\n{label}: ")) >= 0]
        if matches:
            starts[part] = min(matches)
    if "answer" not in starts:
        return None
    order = sorted(starts, key=lambda part: starts[part])
    split = Pattern("{lead}" + "".join(f"\n{starts[part][1]}: {{{part}}}" for part in order)).split(text)
    if split is None:
        return None
    texts = {part: split.values[part] for part in order}
    ahead, line_end, last_line = texts[order[-1]].rpartition("\n")
    if line_end and all(re.search(rf"\b{re.escape(str(value))}\b", last_line) for value in values):
        texts[order[-1]] = ahead  # "Answer with pass or fail."
    return texts


def _discrete_text(task: JudgeTask, result: JudgeResult) -> str:
    value = task.facts["good" if is_fulfilled(result) else "bad"]
    return json.dumps({"reason": explanation(result), "value": value}, ensure_ascii=False)


DIALECTS: tuple[Dialect, ...] = (
    Dialect(name=_ASPECT, recognise=partial(_recognise, _ASPECT), render=same_reply(_aspect_text)),
    Dialect(name=_SIMPLE, recognise=partial(_recognise, _SIMPLE), render=each_reply(_grade_text)),
    Dialect(name=_RUBRICS, recognise=partial(_recognise, _RUBRICS), render=each_reply(_grade_text)),
    Dialect(name=_DISCRETE, recognise=_recognise_discrete, render=same_reply(_discrete_text)),
)
