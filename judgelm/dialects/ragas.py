"""ragas: its three metrics with prompts of their own, and the discrete metric with a prompt of the user's.

In the first three the texts stand escaped in a JSON object behind the instruction, which is the user's in part; the
schema of the reply says which metric it is. The discrete metric's prompt is the user's altogether: texts are found by
the usual labels at the start of a line, and what is found stays in doubt.

Source: ragas 0.4 (captured requests and replies).
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask, Reply
from judgelm.dialects.patterns import Pattern
from judgelm.dialects.probabilities import is_fulfilled
from judgelm.dialects.recognition import sample_of
from judgelm.dialects.text import expected_grade, explanation, rescale, results_per_reply

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


def _recognise(name: str, asked: ChatRequest) -> JudgeTask | None:
    texts = asked.only("user")
    if texts is None:
        return None
    front, _, shown = texts[0].rpartition(_TEXTS)
    instruction, _, wanted = front.partition(_FORM)
    schema, given = _object(wanted), _object(shown)
    if schema is None or given is None or _KINDS.get(str(schema.get("title"))) != name:
        return None
    if not isinstance(given.get("response"), str):
        return None  # a whole dialogue: there is no one answer to judge
    criterion = re.split(r"\nCriteria Definition: |\n\nScoring Rubrics:\n", instruction, maxsplit=1)[-1].strip()
    contexts = given.get("retrieved_contexts") or given.get("reference_contexts")
    context = "\n\n".join(str(one) for one in contexts) if isinstance(contexts, list) else None
    question, reference = _string(given.get("user_input")) or "", _string(given.get("reference"))
    sample = sample_of(question, (given["response"],), reference, criterion=criterion, context=context)
    if name == _ASPECT:
        return JudgeTask(dialect=name, task="label", sample=sample)
    scale = _levels(instruction, given.get("rubrics")) if name == _RUBRICS else _range(criterion)
    return JudgeTask(dialect=name, task="grade", sample=sample, scale=scale)


def _recognise_aspect(asked: ChatRequest) -> JudgeTask | None:
    return _recognise(_ASPECT, asked)


def _recognise_simple(asked: ChatRequest) -> JudgeTask | None:
    return _recognise(_SIMPLE, asked)


def _recognise_rubrics(asked: ChatRequest) -> JudgeTask | None:
    return _recognise(_RUBRICS, asked)


def _object(text: str) -> Mapping[str, Any] | None:
    """The JSON object at the start of a text."""
    try:
        found, _ = json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError:
        return None
    return found if isinstance(found, dict) else None


def _string(found: object) -> str | None:
    return found if isinstance(found, str) else None


def _inner(found: object, name: str) -> object:
    return found.get(name) if isinstance(found, Mapping) else None


def _range(criterion: str) -> tuple[float, float]:
    """The range that a criterion names, such as "0 to 5": one behind a word for scoring goes before any other."""
    found = [one for one in _RANGE.finditer(criterion) if float(one["low"]) < float(one["high"]) <= _HIGHEST]
    if not found:
        return _USUAL_RANGE
    best = max(found, key=lambda one: bool(one["word"]))
    return float(best["low"]), float(best["high"])


def _levels(instruction: str, own: object) -> tuple[float, float]:
    """The lowest and highest level of the rubric, which stands in the instruction or with the texts."""
    keys = list(own) if isinstance(own, Mapping) else instruction.split("\n")
    levels = [float(found[1]) for key in keys if (found := _LEVEL.match(str(key)))]
    return (min(levels), max(levels)) if len(set(levels)) > 1 else (1.0, 5.0)


def _render_aspect(case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    verdict = {"reason": explanation(finding), "verdict": 1 if is_fulfilled(finding) else 0}
    return Reply(texts=(json.dumps(verdict, ensure_ascii=False),) * asked.n)


def _render_grade(case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    """Whole numbers: the client refuses others."""
    assert case.scale is not None
    words = "feedback" if case.dialect == _RUBRICS else "reason"
    texts = []
    for one in results_per_reply(asked, finding):
        verdict = {words: explanation(one), "score": int(rescale(expected_grade(one), case.scale, whole=True))}
        texts.append(json.dumps(verdict, ensure_ascii=False))
    return Reply(texts=tuple(texts))


def _recognise_discrete(asked: ChatRequest) -> JudgeTask | None:
    texts = asked.only("system", "user")
    if texts is None or '"DiscreteResponseModel"' not in texts[0]:
        return None
    schema = _object(texts[0][texts[0].find("{") :])
    values = _inner(_inner(_inner(schema, "properties"), "value"), "enum")
    if not isinstance(values, list):
        return None
    good = [value for value in values if str(value).lower() in _GOOD]
    bad = [value for value in values if str(value).lower() not in _GOOD]
    if len(good) != 1 or len(bad) != 1 or (found := _labelled(texts[1], values)) is None:
        return None
    sample = sample_of(found.get("question", ""), (found["answer"],), found.get("reference"))
    doubt = "the prompt is the user's own: its texts were found by usual labels"
    facts = {"good": good[0], "bad": bad[0]}
    return JudgeTask(dialect=_DISCRETE, task="label", sample=sample, facts=facts, doubt=doubt)


def _labelled(prompt: str, values: Sequence[object]) -> Mapping[str, str] | None:
    """The texts behind "Question: " and the like, each at the start of a line; None where no answer is found."""
    text = "\n" + prompt
    places = {}
    for part, labels in _LABELS.items():
        found = [(place, label) for label in labels if (place := text.find(f"\n{label}: ")) >= 0]
        if found:
            places[part] = min(found)
    if "answer" not in places:
        return None
    order = sorted(places, key=lambda part: places[part])
    split = Pattern("{lead}" + "".join(f"\n{places[part][1]}: {{{part}}}" for part in order)).split(text)
    if split is None:
        return None
    texts = {part: split.values[part] for part in order}
    ahead, line_end, last_line = texts[order[-1]].rpartition("\n")
    if line_end and all(re.search(rf"\b{re.escape(str(value))}\b", last_line) for value in values):
        texts[order[-1]] = ahead  # "Answer with pass or fail."
    return texts


def _render_discrete(case: JudgeTask, asked: ChatRequest, finding: JudgeResult) -> Reply:
    value = case.facts["good" if is_fulfilled(finding) else "bad"]
    return Reply(texts=(json.dumps({"reason": explanation(finding), "value": value}, ensure_ascii=False),) * asked.n)


DIALECTS: tuple[Dialect, ...] = (
    Dialect(name=_ASPECT, recognise=_recognise_aspect, render=_render_aspect),
    Dialect(name=_SIMPLE, recognise=_recognise_simple, render=_render_grade),
    Dialect(name=_RUBRICS, recognise=_recognise_rubrics, render=_render_grade),
    Dialect(name=_DISCRETE, recognise=_recognise_discrete, render=_render_discrete),
)
