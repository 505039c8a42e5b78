"""The metrics in ragas."""

import json
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any

from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask, sample_of, user_text
from judgelm.dialects.replies import each_reply, expected_grade, explanation, is_fulfilled, rescale, same_reply
from judgelm.dialects.splits import Pattern

# ragas has metrics with built-in prompts, in which the texts are in a JSON object after the instruction. The reply
# schema identifies the metric; in `ragas.metrics.collections`, a system message repeats it. For the discrete metric,
# users write the prompt, so we search for common labels at the start of a line, and the split is always uncertain.
_RAGAS_KINDS = {
    "ragas-aspect-critic": ("AspectCriticOutput",),
    "ragas-simple-criteria": ("SimpleCriteriaOutput",),
    "ragas-rubrics": ("ScoreFeedback", "RubricScoreOutput", "InstanceRubricScoreOutput"),
}

_SCHEMA_START = (
    "\nPlease return the output in a JSON format that complies with the following schema as specified in JSON Schema:\n"
)
_TEXTS_START = "\nNow perform the same with the following input\ninput: "
_RANGE = re.compile(
    r"(?P<word>(?i:\b(?:scores?|scoring|rated?|rating|scale|grades?|from|between)\b)[^\d\n]{0,30})?"
    r"\b(?P<low>\d+)\s*(?:to|-|–|and|through)\s*(?P<high>\d+)\b"
)
_MAX_RANGE = 100
"""Larger ranges are probably years, not scales."""

_LEVEL = re.compile(r"score_?(\d+)_description")
_DEFAULT_RANGE = (0.0, 5.0)

_LABELS = {
    "question": ("Question", "User Input", "User input", "Input", "Query", "Prompt", "Instruction"),
    "answer": ("Response", "Answer", "Output", "Model response", "Prediction", "Submission"),
    "reference": ("Reference", "Expected answer", "Expected", "Ground truth", "Ground Truth", "Target", "Gold answer"),
}
_GOOD = frozenset({"pass", "passed", "correct", "yes", "true", "accurate", "good", "acceptable", "valid", "1"})


def _recognise_ragas(name: str, request: ChatRequest) -> JudgeTask | None:
    text = user_text(request)
    if text is None:
        return None
    front, _, shown = text.rpartition(_TEXTS_START)
    instruction, _, wanted = front.partition(_SCHEMA_START)
    schema, row = _object(wanted), _object(shown)
    if schema is None or row is None or str(schema.get("title")) not in _RAGAS_KINDS[name]:
        return None
    if not isinstance(row.get("response"), str):
        return None  # dialogues do not have a single answer to judge
    criterion = re.split(r"\nCriteria Definition: |\n\nScoring Rubrics:\n", instruction, maxsplit=1)[-1].strip()
    if isinstance(rubrics := row.get("rubrics"), dict):  # InstanceSpecificRubrics
        criterion = "\n".join(f"{level}: {meaning}" for level, meaning in rubrics.items())
    contexts = row.get("retrieved_contexts") or row.get("reference_contexts")
    joined = "\n\n".join(str(context) for context in contexts) if isinstance(contexts, list) else None
    question, reference = (
        text if isinstance(text := row.get(key), str) else None for key in ("user_input", "reference")
    )
    sample = sample_of(question or "", (row["response"],), reference, criterion=criterion, context=joined)
    if name == "ragas-aspect-critic":
        return JudgeTask(dialect=name, kind="label", sample=sample)
    scale = _levels(instruction, rubrics) if name == "ragas-rubrics" else _range(criterion)
    return JudgeTask(dialect=name, kind="grade", sample=sample, scale=scale)


def _object(text: str) -> Mapping[str, Any] | None:
    try:
        value, _ = json.JSONDecoder().raw_decode(text)
    except json.JSONDecodeError:
        return None
    return value if isinstance(value, dict) else None


def _range(criterion: str) -> tuple[float, float]:
    ranges = [match for match in _RANGE.finditer(criterion) if float(match["low"]) < float(match["high"]) <= _MAX_RANGE]
    if not ranges:
        return _DEFAULT_RANGE
    best = max(ranges, key=lambda match: bool(match["word"]))
    return float(best["low"]), float(best["high"])


def _levels(instruction: str, own: object) -> tuple[float, float]:
    keys = list(own) if isinstance(own, Mapping) else instruction.split("\n")
    levels = [float(match[1]) for key in keys if (match := _LEVEL.match(str(key)))]
    return (min(levels), max(levels)) if len(set(levels)) > 1 else (1.0, 5.0)


def _aspect_text(task: JudgeTask, result: JudgeResult) -> str:
    return json.dumps({"reason": explanation(result), "verdict": int(is_fulfilled(result))}, ensure_ascii=False)


def _ragas_grade(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    """Round the grade, because the client rejects grades that are not integers."""
    assert task.scale is not None
    words = "feedback" if task.dialect == "ragas-rubrics" else "reason"
    score = int(rescale(expected_grade(result), task.scale, whole=True))
    return json.dumps({words: explanation(result), "score": score}, ensure_ascii=False)


def _recognise_discrete(request: ChatRequest) -> JudgeTask | None:
    texts = request.only("system", "user")
    if texts is None or '"DiscreteResponseModel"' not in texts[0]:
        return None
    inner: Any = _object(texts[0][texts[0].find("{") :])
    for name in ("properties", "value", "enum"):
        inner = inner.get(name) if isinstance(inner, Mapping) else None
    if not isinstance(inner, list):
        return None
    good = [value for value in inner if str(value).lower() in _GOOD]
    bad = [value for value in inner if str(value).lower() not in _GOOD]
    if len(good) != 1 or len(bad) != 1 or (parts := _labelled(texts[1], inner)) is None:
        return None
    sample = sample_of(parts.get("question", ""), (parts["answer"],), parts.get("reference"))
    doubt = "this is a custom prompt, so its texts were located by common labels"
    facts = {"good": good[0], "bad": bad[0]}
    return JudgeTask(dialect="ragas-discrete", kind="label", sample=sample, facts=facts, doubt=doubt)


def _labelled(prompt: str, values: Sequence[object]) -> Mapping[str, str] | None:
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
        texts[order[-1]] = ahead  # for example, "Answer with pass or fail."
    return texts


def _discrete_text(task: JudgeTask, result: JudgeResult) -> str:
    value = task.facts["good" if is_fulfilled(result) else "bad"]
    return json.dumps({"reason": explanation(result), "value": value}, ensure_ascii=False)


DIALECTS: tuple[Dialect, ...] = (
    *(
        Dialect(
            name=name,
            recognise=partial(_recognise_ragas, name),
            render=same_reply(_aspect_text) if name == "ragas-aspect-critic" else each_reply(_ragas_grade),
        )
        for name in _RAGAS_KINDS
    ),
    Dialect(name="ragas-discrete", recognise=_recognise_discrete, render=same_reply(_discrete_text)),
)
