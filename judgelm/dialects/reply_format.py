"""Converts replies to the JSON format in the request's `response_format`."""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from judgelm.dialects import replies
from judgelm.dialects.contract import ChatRequest, JudgeResult, JudgeTask, Reply
from judgelm.errors import InputError
from judgelm.records import Winner

_TYPES: dict[str, tuple[type, ...]] = {
    "object": (dict,), "array": (list,), "string": (str,), "boolean": (bool,), "null": (type(None),),
    "number": (int, float), "integer": (int,),
}  # fmt: skip
_CHECKED = {"type", "enum", "const", "properties", "required", "additionalProperties", "items", "minimum", "maximum"}
_ABOUT = {"title", "description", "default", "examples", "format", "$schema", "$id", "$defs", "definitions"}
_MAX_DEPTH = 32
_MAX_SCHEMA = 20_000
_NOUN = re.compile(r"\b(assistant|answer|response|model|output|option|candidate)s?\b")
_VERDICTS = {
    "pair": "an enum of A, B, and optionally tie", "label": "a boolean, or an enum of the prompt's words",
    "grade": "a number, or an enum of the prompt's words", "choice": "an enum of the prompt's words", "prepare": "none",
}  # fmt: skip
_NAMES: dict[str, Winner] = {
    "a": 1, "1": 1, "first": 1, "b": 2, "2": 2, "second": 2,
    "tie": "tie", "c": "tie", "draw": "tie", "equal": "tie", "both": "tie", "neither": "tie",
}  # fmt: skip


def in_format(reply: Reply, task: JudgeTask, request: ChatRequest, result: JudgeResult) -> Reply:
    """Convert a reply to the request's `response_format`, if any. Function calls are not converted.

    Raises:
        InputError: the reply cannot be converted, or the request forces a call and the dialect replies with text.
    """
    if request.forced_tool is not None and reply.tool is None:
        raise InputError(f'"tool_choice": {task.dialect} replies are text; omit it')
    if reply.tool is not None or (request.schema is None and not request.json_object):
        return reply
    if len(str(request.schema)) > _MAX_SCHEMA:
        raise InputError(f'"response_format": the schema is longer than {_MAX_SCHEMA} characters; use a smaller schema')
    drawn = replies.results_per_reply(request, result)
    verdicts = reply.verdicts or [None] * len(reply.texts)
    each = zip(reply.texts, verdicts, drawn, strict=True)
    texts = tuple(_text(text, verdict, task, request, result) for text, verdict, result in each)
    return reply if texts == reply.texts else replace(reply, texts=texts, logprobs=())


def _text(text: str, word: str | float | None, task: JudgeTask, request: ChatRequest, result: JudgeResult) -> str:
    finding = _misfit(text, request.schema)
    if not finding:
        return text
    row = None if request.schema is None else _row(word, task, result, request.schema)
    written = None if row is None else json.dumps(row, ensure_ascii=False)
    if written is None or _misfit(written, request.schema):
        raise InputError(
            f'"response_format": the {task.dialect} reply {text!r:.80} does not match: {finding}; '
            f"omit response_format, or use a schema with string fields and one verdict field ({_VERDICTS[task.kind]})"
        )
    return written


def _misfit(text: str, schema: Mapping[str, Any] | None) -> str:
    try:
        value = json.loads(text)
    except ValueError:
        return "it is not JSON"
    if not isinstance(value, dict):
        return "it is not a JSON object"
    return "" if schema is None else _finding(value, schema, "the reply", _MAX_DEPTH)


def _finding(value: Any, schema: object, place: str, depth: int) -> str:
    """Return why a value does not match a schema, or "". Unsupported schemas never match."""
    if not isinstance(schema, Mapping) or depth == 0:
        return f"the schema of {place} is not supported"
    if unknown := sorted(str(name) for name in schema.keys() - _CHECKED - _ABOUT):
        return f"the schema of {place} contains {unknown[0][:40]!r}, which is not supported"
    kinds = schema.get("type")
    names = [kinds] if isinstance(kinds, str) else kinds if isinstance(kinds, list) else []
    if kinds is not None and not any(_is_of(value, str(name)) for name in names):
        return f"{place} is not of type {kinds!r:.60}"
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if choices is not None and not (isinstance(choices, list) and value in choices):
        return f"{place} is {value!r:.40}, which is not one of the schema's choices"
    if isinstance(value, int | float) and not isinstance(value, bool):
        least, most = schema.get("minimum", value), schema.get("maximum", value)
        if not (_is_of(least, "number") and _is_of(most, "number") and least <= value <= most):
            return f"{place} is {value}, which is outside the schema's range"
    return _inner_finding(value, schema, place, depth)


def _inner_finding(value: Any, schema: Mapping[str, Any], place: str, depth: int) -> str:
    if isinstance(value, list) and "items" in schema:
        findings = (_finding(item, schema["items"], f"an item of {place}", depth - 1) for item in value)
        return next(filter(None, findings), "")
    if not isinstance(value, dict):
        return ""
    fields, required = schema.get("properties", {}), schema.get("required", [])
    if not isinstance(fields, Mapping) or not isinstance(required, list):
        return f"the schema of {place} is not supported"
    if missing := [name for name in required if name not in value]:
        return f"{place} is missing {missing[0]!r:.40}"
    if schema.get("additionalProperties") is False and (others := value.keys() - fields.keys()):
        return f"{place} contains {min(others)!r}, which the schema does not allow"
    known = [name for name in value if name in fields]
    findings = (_finding(value[name], fields[name], f"field {name!r:.40}", depth - 1) for name in known)
    return next(filter(None, findings), "")


def _is_of(value: Any, name: str) -> bool:
    return isinstance(value, _TYPES.get(name, ())) and (name == "boolean" or not isinstance(value, bool))


def _row(
    word: str | float | None, task: JudgeTask, result: JudgeResult, schema: Mapping[str, Any]
) -> dict[str, Any] | None:
    """Fill in a schema with one verdict field and otherwise only strings; return None for other schemas."""
    row: dict[str, Any] = {}
    fields, verdicts = schema.get("properties"), 0
    for name, field in fields.items() if isinstance(fields, Mapping) else ():
        if not isinstance(field, Mapping):
            return None
        if field.get("type") == "string" and "enum" not in field:
            row[name] = replies.scores_and_reason(result, None)
            continue
        verdict = _verdict(word, task, result, field)
        if verdict is None:
            return None
        row[name], verdicts = verdict, verdicts + 1
    return row if verdicts == 1 else None


def _verdict(word: str | float | None, task: JudgeTask, result: JudgeResult, field: Mapping[str, Any]) -> Any:
    choices = field.get("enum")
    if word is not None and isinstance(choices, list) and word in choices:
        return word
    if task.kind == "label" and choices is None and field.get("type") == "boolean":
        return replies.is_fulfilled(result)
    if task.kind == "pair" and isinstance(choices, list):
        names = _winners(choices)
        return None if names is None else names[replies.winner_with_ties(task, result, ties="tie" in names)]
    is_number = choices is None and field.get("type") in ("number", "integer")
    if task.kind != "grade" or task.scale is None or not is_number:
        return None
    low, high = task.scale
    if (field.get("minimum", low), field.get("maximum", high)) != (low, high):
        return None  # the schema's scale is not the prompt's scale
    grade = replies.rescale(replies.expected_grade(result), task.scale, whole=field["type"] == "integer")
    return int(grade) if field["type"] == "integer" else round(grade, 2)


def _winners(choices: Sequence[object]) -> dict[Winner, object] | None:
    names: dict[Winner, object] = {}
    for choice in choices:
        winner = _NAMES.get(_NOUN.sub(" ", str(choice).casefold().replace("_", " ")).strip(" []()"))
        if winner is None or winner in names or isinstance(choice, bool):
            return None
        names[winner] = choice
    return names if {1, 2} <= names.keys() else None
