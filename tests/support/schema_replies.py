"""Replies that match any JSON schema a client sends."""

import json
from functools import partial

from judgelm.records import Completion
from tests.support.known_judge import KnownEngine


def smallest(schema, root=None):
    """A small value that matches a schema. Any string is "yes", which most clients take for a verdict."""
    value = partial(smallest, root=schema if root is None else root)
    if "$ref" in schema:
        found = value.keywords["root"]
        for name in schema["$ref"].removeprefix("#/").split("/"):
            found = found[name]
        return value(found)
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return value(schema[key][0])
    if choices := [schema["const"]] if "const" in schema else schema.get("enum"):
        return choices[0]
    kind = schema.get("type", "object")
    if kind == "object":
        return {name: value(field) for name, field in schema.get("properties", {}).items()}
    if kind == "array":
        return [value(schema["items"])]
    return {"string": "yes", "integer": 1, "number": 1, "boolean": True, "null": None}[kind]


class SchemaEngine(KnownEngine):
    """A judge that also writes what a schema asks for, or a rating."""

    def write(self, prompt):
        return "1" if "a rating of 0, 1, or 2" in "".join(prompt.texts) else super().write(prompt)

    def answer(self, request):
        grammar = request.sampling.grammar
        if grammar is None or grammar.kind != "json_schema":
            return super().answer(request)
        text = json.dumps(smallest(json.loads(grammar.text)))
        return Completion(
            key=request.key, texts=(text,), finish_reasons=("stop",), prompt_tokens=1, completion_tokens=1
        )
