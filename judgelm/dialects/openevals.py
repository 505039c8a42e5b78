"""The evaluators in openevals and agentevals."""

import json
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from judgelm.dialects import replies
from judgelm.dialects.contract import ChatRequest, Dialect, JudgeResult, JudgeTask, Reply, task_from_split, user_text
from judgelm.dialects.splits import Pattern, TemplateSplit

# openevals sends arbitrary prompts with texts in tags, and a schema or a forced function called `score`. The type of
# `score` in the schema (boolean, number in [0, 1], or a choice of numbers) determines the kind of verdict. Some prompts
# look for faults, so a high score means a bad answer. For these prompts, we invert the judge's grade.
_FUNCTION = "score"
_MET = "criteria in the prompt are met"

_FAULTS = (
    "You are an expert content moderator evaluating opinions for toxicity.",
    "You are an expert evaluator assessing whether text contains biased or unfair content.",
    "You are an expert evaluator assessing sensitive personal information is contained.",
    "You are an expert conversation evaluator. You will be shown a response from an AI agent.\n"
    "Your task is to assess whether the agent returned a blank, empty, or low-effort response.",
)
"""First lines of the prompts TOXICITY, FAIRNESS, PII_LEAKAGE, and LAZINESS."""

_TAGS = (("input", "output"), ("inputs", "outputs"), ("input", "plan", "output"), ("context", "outputs"))
"""Tags around the texts. The last two are those of PLAN_ADHERENCE and RAG_GROUNDEDNESS."""

_SLOTS = {"input": "question", "inputs": "question", "output": "first", "outputs": "first"}
_REFERENCE_END = "\n</reference_outputs>"


def _recognise_openevals(request: ChatRequest) -> JudgeTask | None:
    schema = _score_schema(request)
    if schema is None or request.roles not in (("user",), ("system", "user")):
        return None
    text = request.messages[-1].text
    split = next((split for tags in _TAGS if (split := _split_tags(text, *tags)) is not None), None)
    return None if split is None else _scored_task("openevals", schema, split)


def _scored_task(dialect: str, schema: Mapping[str, Any], split: TemplateSplit) -> JudgeTask:
    fields = schema["properties"]
    shown: dict[str, Any] = {name: split.values[name] for name in ("context", "plan") if name in split.values}
    choices = tuple(float(choice) for choice in fields["score"].get("enum", ()))
    fault = split.values["criterion"].startswith(_FAULTS)
    facts = {"choices": choices, "reasoning": "reasoning" in fields, "fault": fault}
    if fields["score"]["type"] == "boolean":
        return task_from_split(dialect, "label", split, facts=facts, **shown)
    scale = (min(choices), max(choices)) if choices else (0.0, 1.0)
    return task_from_split(dialect, "grade", split, scale=scale, facts=facts, **shown)


def _score_schema(request: ChatRequest) -> Mapping[str, Any] | None:
    schema = request.schema
    if request.forced_tool == _FUNCTION:
        schema = next((tool.parameters for tool in request.tools if tool.name == _FUNCTION), None)
    properties = schema.get("properties") if schema is not None else None
    if not isinstance(properties, Mapping) or not set(properties) <= {"reasoning", "score"}:
        return None
    score = properties.get("score")
    if not isinstance(score, Mapping) or _MET not in str(score.get("description")):
        return None
    choices = score.get("enum", [])
    numbers = isinstance(choices, list) and all(
        isinstance(choice, int | float) and not isinstance(choice, bool) for choice in choices
    )
    return schema if score.get("type") == "boolean" or (score.get("type") == "number" and numbers) else None


def _split_tags(text: str, *tags: str) -> TemplateSplit | None:
    start, end = f"<{tags[0]}>\n", f"\n</{tags[-1]}>"
    before, opened, rest = text.partition(start)
    body = opened + rest
    last, last_reference = body.rfind(end), body.rfind(_REFERENCE_END)
    template = "\n\n".join(f"<{tag}>\n{{{_SLOTS.get(tag, tag)}}}\n</{tag}>" for tag in tags)
    split: TemplateSplit | None = None
    if last_reference > last:
        whole = Pattern(template + "\n\n{lead}:\n\n<reference_outputs>\n{reference}\n</reference_outputs>")
        split = whole.split(body[: last_reference + len(_REFERENCE_END)])
    if split is None:
        split = Pattern(template).split(body[: last + len(end)])
    if split is None:
        return None
    several = split.ambiguous or body.count(start) > 1 or (last_reference < last and body.count(end) > 1)
    return TemplateSplit(values={**split.values, "criterion": before.strip()}, ambiguous=several)


def _render_openevals(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> Reply:
    texts = tuple(_openevals_text(task, drawn) for drawn in replies.results_per_reply(request, result))
    if request.forced_tool == _FUNCTION:
        return Reply(tool=_FUNCTION, arguments=texts[0])
    return Reply(texts=texts)


def _openevals_text(task: JudgeTask, result: JudgeResult) -> str:
    score = _openevals_score(task, result)
    if not task.facts["reasoning"]:
        return json.dumps({"score": score})
    if task.facts["fault"] and result.correct is not None:
        result = replace(result, correct=1 - result.correct)  # the probability that the criterion is met
    # the schema asks for this sentence at the end of the reasoning
    reasoning = f"{replies.explanation(result)} Thus, the score should be: {json.dumps(score)}."
    return json.dumps({"reasoning": reasoning, "score": score}, ensure_ascii=False)


def _openevals_score(task: JudgeTask, result: JudgeResult) -> bool | float:
    fault = bool(task.facts["fault"])
    if task.kind == "label":
        return replies.is_fulfilled(result) != fault
    assert task.scale is not None
    low, high = task.scale
    score = replies.rescale(replies.expected_grade(result), (high, low) if fault else (low, high))
    choices: tuple[float, ...] = task.facts["choices"]
    if choices:
        return min(sorted(choices), key=lambda choice: round(abs(choice - score), 9))
    return float(replies.format_number(score, 4))


# agentevals sends the same kind of request about an agent's trajectory, optionally preceded by a reference trajectory.
# All messages are in one string with role tags. There is no question, so we use the user's first message.
_REFERENCE_TRAJECTORY, _TRAJECTORY = "<reference_trajectory>\n", "<trajectory>\n"
_TRAJECTORY_END = "\n</trajectory>"
_FIRST_USER = re.compile(r"(?:<system>\n.*?\n</system>\n\n)?<user>\n(.*?)\n</user>", re.DOTALL)
_BOTH = Pattern(
    _REFERENCE_TRAJECTORY + "{reference}\n</reference_trajectory>{lead}" + _TRAJECTORY + "{first}" + _TRAJECTORY_END
)
_ALONE = Pattern(_TRAJECTORY + "{first}" + _TRAJECTORY_END)


def _recognise_agentevals(request: ChatRequest) -> JudgeTask | None:
    schema, text = _score_schema(request), user_text(request)
    if schema is None or text is None:
        return None
    tags = {_REFERENCE_TRAJECTORY: _BOTH, _TRAJECTORY: _ALONE}
    starts = {place: pattern for tag, pattern in tags.items() if (place := text.find(tag)) >= 0}
    if not starts:
        return None
    start, end = min(starts), text.rfind(_TRAJECTORY_END) + len(_TRAJECTORY_END)
    split = starts[start].split(text[start:end])
    if split is None or _REFERENCE_TRAJECTORY in text[end:]:
        return None
    user = _FIRST_USER.match(split.values["first"])
    texts = {"criterion": text[:start].strip(), "question": user[1] if user else ""}
    return _scored_task("agentevals", schema, replace(split, values={**split.values, **texts}))


DIALECTS: tuple[Dialect, ...] = (
    Dialect(name="openevals", recognise=_recognise_openevals, render=_render_openevals),
    Dialect(name="agentevals", recognise=_recognise_agentevals, render=_render_openevals),
)
