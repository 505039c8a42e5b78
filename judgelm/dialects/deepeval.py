"""G-Eval in DeepEval and opik."""

import json
import math
import re
from collections.abc import Mapping, Sequence

from judgelm.dialects import replies
from judgelm.dialects.contract import (
    ChatRequest,
    Dialect,
    JudgeResult,
    JudgeTask,
    Reply,
    ambiguity_note,
    last_text,
    sample_of,
    template_dialect,
)
from judgelm.dialects.splits import TEMPLATES, Pattern
from judgelm.records import Sample, TokenLogprobs

# DeepEval's G-Eval first requests evaluation steps for a criterion, then a grade (optionally in strict mode). Users
# choose the fields, so we split the texts by the list of field names in the prompt.
_FIELDS = (
    *("Input", "Actual Output", "Expected Output", "Context", "Retrieval Context", "Metadata", "Tags"),
    *("Expected Tools", "Tools Called"),
)
_OUTPUT = "Actual Output"
_CONTEXTS = ("Context", "Retrieval Context")
_WANTED = re.compile(
    r"You are an evaluator\. Given the following [^\n]+, assess the response below and return a JSON object with two "
    r"fields:\n\n- `\"score\"`: an integer between (\d+) and (\d+), "
)
_STEPS_START = "\n---\n\nEvaluation Steps:\n"
_CASE_START = "\n\nTest Case:\n"
_NAMES_START = "\n\nParameters:\n"
_GRADE_END = re.compile(
    r"\n\n---\n\*\*Example JSON:\*\*\n\{\n  \"reason\": \"[^\"\n]*\",\n  \"score\": \d+\n\}\n\nJSON:\s*\Z"
)
_STRICT = TEMPLATES["deepeval-geval-strict"]
_STRICT_STEPS = "\nEvaluation Steps:\n"
_STEPS = (
    "Read the given fields and note what the criteria ask for.",
    "Compare the actual output with what the criteria ask for, and with the other fields.",
    "Lower the score for every point in which the actual output falls short of the criteria.",
)
_MIN_PROBABILITY = 0.01
"""The client ignores tokens with a lower probability."""

_stripped_user = last_text("user", strip=str.rstrip)


def _opik_text(request: ChatRequest) -> str | None:
    """Join the messages, because opik's system message contains the criteria."""
    texts = request.only("system", "user")
    return None if texts is None else "\n".join(text.strip() for text in texts)


def _recognise_grade(request: ChatRequest) -> JudgeTask | None:
    texts = request.only("user")
    wanted = _WANTED.match(texts[0]) if texts else None
    end = _GRADE_END.search(texts[0]) if texts else None
    if texts is None or wanted is None or end is None:
        return None
    steps, _, rest = texts[0][: end.start()].partition(_STEPS_START)[2].partition(_CASE_START)
    fields, _, names = rest.rpartition(_NAMES_START)  # if any part is missing, the fields are empty
    sample, why = _sample_in_fields(fields, _names(names.partition("\n")[0]), steps)
    if sample is None:
        return None
    if _CASE_START in rest:
        why = "a text contains the line that introduces the test case"
    scale = (float(wanted[1]), float(wanted[2]))
    return JudgeTask(dialect="deepeval-geval", kind="grade", sample=sample, scale=scale, doubt=why)


def _recognise_strict(request: ChatRequest) -> JudgeTask | None:
    text = _stripped_user(request)
    split = None if text is None else _STRICT.split(text)
    names = _names(split.values["names"]) if split else ()
    if split is None or not names:
        return None
    _, _, body = split.values["steps"].partition(_STRICT_STEPS)
    steps, start, fields = body.partition(f"\n\n{names[0]}:\n")
    sample, why = _sample_in_fields(start[2:] + fields, names, steps)
    if sample is None:
        return None
    if start in fields:
        why = "a text contains the line that introduces the first field"
    return JudgeTask(dialect="deepeval-geval-strict", kind="label", sample=sample, doubt=why or ambiguity_note(split))


def _names(line: str) -> tuple[str, ...]:
    names = tuple(re.split(r", and | and |, ", line))
    return names if all(name in _FIELDS for name in names) and len(set(names)) == len(names) else ()


def _sample_in_fields(text: str, names: Sequence[str], steps: str) -> tuple[Sample | None, str]:
    if _OUTPUT not in names:
        return None, ""
    pattern = Pattern("".join(f"{name}:\n{{{_slot(name)}}} \n\n" for name in names))
    split = pattern.split(text.rstrip("\n") + "\n\n")  # the number of blank lines depends on the template
    if split is None:
        return None, ""
    question, reference = split.values.get(_slot("Input"), ""), split.values.get(_slot("Expected Output"))
    context = "\n\n".join(split.values[_slot(name)] for name in _CONTEXTS if name in names) or None
    answers = (split.values[_slot(_OUTPUT)],)
    return sample_of(question, answers, reference, criterion=steps.strip(), context=context), ambiguity_note(split)


def _slot(name: str) -> str:
    return name.lower().replace(" ", "_")


def _render_grade(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> Reply:
    assert task.scale is not None
    scale = task.scale
    drawn = replies.results_per_reply(request, result)
    texts = tuple(_graded(each, replies.grade_text(each, scale, whole=request.logprobs)) for each in drawn)
    if not request.logprobs:
        return Reply(texts=texts)
    grade = replies.grade_text(drawn[0], scale, whole=True)
    probabilities = {grade: 0.0} | {str(whole): share for whole, share in _whole_grades(result, scale).items()}
    before_end = replies.verdict_logprobs(texts[0].removesuffix("}"), grade, probabilities, request.top_logprobs)
    end = TokenLogprobs(token="}", logprob=0.0, candidates=(("}", 0.0),)[: request.top_logprobs])
    return Reply(texts=texts, logprobs=(*before_end, end))


def _graded(result: JudgeResult, grade: str) -> str:
    """Omit digits from the reason, because the client searches the tokens for the grade."""
    reason = json.dumps(replies.explanation(result, digits=False), ensure_ascii=False)
    return f'{{"reason": {reason}, "score": {grade}}}'


def _whole_grades(result: JudgeResult, scale: tuple[float, float]) -> Mapping[int, float]:
    """Split each score's probability between the two nearest integer grades, so that the mean is the expected grade."""
    shares: dict[int, float] = {}
    for score, share in result.grades or ((replies.expected_grade(result), 1.0),):
        rescaled = replies.rescale(score, scale)
        below = math.floor(rescaled)
        for grade, part in ((below, 1 - (rescaled - below)), (below + 1, rescaled - below)):
            shares[grade] = shares.get(grade, 0.0) + part * share
    likely = {grade: share for grade, share in shares.items() if share >= _MIN_PROBABILITY}
    total = sum(likely.values())
    return {grade: share / total for grade, share in likely.items()}


DIALECTS: tuple[Dialect, ...] = (
    Dialect(name="deepeval-geval", recognise=_recognise_grade, render=_render_grade),
    Dialect(
        name="deepeval-geval-strict",
        recognise=_recognise_strict,
        render=replies.same_reply(lambda task, result: _graded(result, "1" if replies.is_fulfilled(result) else "0")),
        templates=(_STRICT,),
    ),
    template_dialect(
        "deepeval-geval-steps",
        "prepare",
        text=_stripped_user,
        render=replies.same_reply(lambda task, result: json.dumps({"steps": list(_STEPS)})),
    ),
    template_dialect("opik-g-eval", "grade", text=_opik_text, scale=(0, 10), render=_render_grade),
    template_dialect(
        "opik-g-eval-steps",
        "prepare",
        text=_opik_text,
        render=replies.same_reply(lambda task, result: "\n".join(_STEPS)),
    ),
)
