"""Request and response schemas for `/openapi.json`, from `schemas.yaml` or pydantic models."""

from pathlib import Path
from typing import Any

from pydantic import BaseModel

from judgelm.yaml_files import read_yaml

Schema = dict[str, Any]

SCHEMAS: dict[str, Schema] = read_yaml(Path(__file__).with_suffix(".yaml"))


def replies(*names: str, description: str = "Successful Response", events: bool = False) -> dict[int | str, Any]:
    """Return the `responses` of a route that replies with one of the named bodies or, if `events` is set, a stream."""
    content = {"application/json": {"schema": _one_of([SCHEMAS[name] for name in names])}}
    content |= {"text/event-stream": {"schema": SCHEMAS["Event"]}} if events else {}
    return {200: {"description": description, "content": content}}


ERRORS: dict[int | str, Any] = {
    "default": {"description": "An error.", "content": {"application/json": {"schema": SCHEMAS["Error"]}}}
}


def request_body(*bodies: str | type[BaseModel]) -> Schema:
    """Return the `openapi_extra` of a route that parses its body itself in order to enforce limits."""
    schemas = [SCHEMAS[body] if isinstance(body, str) else body.model_json_schema() for body in bodies]
    schema = _one_of([_inlined(schema, schema.get("$defs", {})) for schema in schemas])
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema}}}}


def _one_of(schemas: list[Schema]) -> Schema:
    return schemas[0] if len(schemas) == 1 else {"anyOf": schemas}


def _inlined(node: Any, definitions: Schema) -> Any:
    if isinstance(node, list):
        return [_inlined(each, definitions) for each in node]
    if not isinstance(node, dict):
        return node
    if "$ref" in node:
        return _inlined(definitions[node["$ref"].rpartition("/")[2]], definitions)
    return {name: _inlined(value, definitions) for name, value in node.items() if name != "$defs"}
