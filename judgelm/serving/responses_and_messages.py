"""Routes for OpenAI's Responses API and Anthropic's Messages API.

Requests are converted to chat completions, and the replies are converted back. Streaming is not supported.

Sources: requests and parsers in openai 3.52 (`responses.create`, `.parse`) and anthropic 2.11 (`messages.create`).
"""

import json
import secrets
import time
from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response

from judgelm.dialects.contract import ChatRequest
from judgelm.dialects.request_body import read_chat
from judgelm.errors import InputError
from judgelm.serving.chat_response import ChatResponse
from judgelm.serving.http_errors import HttpError
from judgelm.serving.openai_format import chat_logprobs
from judgelm.serving.openai_routes import CompletionHandler, Reader, Writer

_TEXTS = ("text", "input_text", "output_text")
_TEXT_TYPES = f"a string or a list of text parts (types {', '.join(_TEXTS)})"
Row = dict[str, Any]


def other_routes(completions: CompletionHandler) -> APIRouter:
    """Return the routes for both APIs."""
    router = APIRouter()

    async def responses(request: Request) -> Response:
        return await completions.answer(request, read_response, response_row)

    async def messages(request: Request) -> Response:
        return await completions.answer(request, read_message, message_row)

    router.post("/v1/responses", summary="Judge a prompt sent through the Responses API")(responses)
    router.post("/v1/messages", summary="Judge a prompt sent through Anthropic's Messages API")(messages)
    return router


def _text(content: object, place: str) -> str:
    if content is None or isinstance(content, str):
        return content or ""
    parts = content if isinstance(content, list) else [None]
    texts = [
        part["text"]
        for part in parts
        if isinstance(part, Mapping) and part.get("type") in _TEXTS and isinstance(part.get("text"), str)
    ]
    if len(texts) < len(parts):
        raise InputError(f'"{place}": expected {_TEXT_TYPES}')
    return "".join(texts)


def _list(body: Mapping[str, Any], name: str) -> list[Mapping[str, Any]]:
    value = body.get(name)
    rows = [] if value is None else value
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise InputError(f'"{name}": expected a list of objects')
    return rows


def _object(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = body.get(name)
    return value if isinstance(value, Mapping) else {}


def read_response(body: Mapping[str, Any]) -> ChatRequest:
    """Parse a Responses API body."""
    for name in ("previous_response_id", "conversation", "background", "prompt"):
        if body.get(name):
            raise HttpError(400, "unsupported_value", f'"{name}": not supported; send the complete input', param=name)
    content = body.get("input")
    turns = [{"role": "user", "content": content}] if isinstance(content, str) else _list(body, "input")
    if others := [turn["type"] for turn in turns if turn.get("type", "message") != "message"]:
        raise InputError(f'"input": items of type {str(others[0])[:40]!r} are not supported; send only messages')
    messages = [{"role": turn.get("role", "user"), "content": _text(turn.get("content"), "input")} for turn in turns]
    if body.get("instructions") is not None:
        messages.insert(0, {"role": "system", "content": _text(body["instructions"], "instructions")})
    chat: Row = _shared(body) | {"messages": messages, "max_tokens": body.get("max_output_tokens")}
    form = _object(_object(body, "text"), "format")
    if form.get("type") == "json_schema":
        chat["response_format"] = {"type": "json_schema", "json_schema": dict(form)}
    elif form:
        chat["response_format"] = dict(form)
    include = body.get("include") or ()
    chat["logprobs"] = bool(body.get("top_logprobs")) or "message.output_text.logprobs" in include
    chat["top_logprobs"] = body.get("top_logprobs")
    chat["tools"] = [{"type": "function", "function": dict(tool)} for tool in _list(body, "tools")]
    return read_chat(chat | {"tool_choice": body.get("tool_choice")})


def read_message(body: Mapping[str, Any]) -> ChatRequest:
    """Parse a Messages API body."""
    messages: list[Row] = [
        {"role": turn.get("role"), "content": _text(turn.get("content"), "messages")}
        for turn in _list(body, "messages")
    ]
    if body.get("system"):
        messages.insert(0, {"role": "system", "content": _text(body["system"], "system")})
    chat = _shared(body) | {"messages": messages, "max_tokens": body.get("max_tokens")}
    chat["stop"] = body.get("stop_sequences")
    chat["continue_final_message"] = len(messages) > 1 and messages[-1]["role"] == "assistant"  # as in Anthropic's API
    chat["tools"] = [
        {"type": "function", "function": {"name": tool.get("name"), "parameters": tool.get("input_schema")}}
        for tool in _list(body, "tools")
    ]
    choice = _object(body, "tool_choice")
    return read_chat(chat | {"tool_choice": {"name": choice["name"]} if "name" in choice else choice.get("type")})


def _shared(body: Mapping[str, Any]) -> Row:

    if body.get("stream"):
        raise HttpError(400, "unsupported_value", '"stream": not supported by this API; omit it', param="stream")
    return {name: body[name] for name in ("model", "temperature", "top_p") if name in body}


def response_row(response: ChatResponse, body: Mapping[str, Any], model: str) -> Row:
    """Build a Responses API reply."""
    name, reply = secrets.token_hex(12), response.reply
    if reply.tool is not None:
        call = {"call_id": f"call_{name}", "name": reply.tool, "arguments": reply.arguments}
        item: Row = {"type": "function_call", "id": f"fc_{name}", **call, "status": "completed"}
    else:
        text: Row = {"type": "output_text", "text": reply.texts[0], "annotations": []}
        if body.get("top_logprobs") or reply.logprobs:
            text["logprobs"] = chat_logprobs(reply.logprobs)
        item = {"type": "message", "id": f"msg_{name}", "role": "assistant", "status": "completed", "content": [text]}
    is_complete = _finish(response) != "length"
    read, written = response.prompt_tokens, response.completion_tokens
    usage: Row = {"input_tokens": read, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": written}
    usage |= {"output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": read + written}
    return {
        "id": f"resp_{name}", "object": "response", "created_at": int(time.time()),
        "status": "completed" if is_complete else "incomplete",
        "incomplete_details": None if is_complete else {"reason": "max_output_tokens"},
        "error": None, "model": model, "output": [item], "instructions": body.get("instructions"),
        "metadata": body.get("metadata") or {}, "parallel_tool_calls": False,
        "temperature": body.get("temperature"), "top_p": body.get("top_p"),
        "text": body.get("text") or {"format": {"type": "text"}},
        "tools": body.get("tools") or [], "tool_choice": body.get("tool_choice") or "auto", "usage": usage,
    }  # fmt: skip


def _finish(response: ChatResponse) -> str:
    return response.finish_reasons[0] if response.finish_reasons else "stop"


def message_row(response: ChatResponse, body: Mapping[str, Any], model: str) -> Row:
    """Build a Messages API reply."""
    name, reply = secrets.token_hex(12), response.reply
    if reply.tool is not None:
        arguments = json.loads(reply.arguments)
        part: Row = {"type": "tool_use", "id": f"toolu_{name}", "name": reply.tool, "input": arguments}
        reason = "tool_use"
    else:
        part = {"type": "text", "text": reply.texts[0]}
        reason = "max_tokens" if _finish(response) == "length" else "end_turn"
    usage = {"input_tokens": response.prompt_tokens, "output_tokens": response.completion_tokens}
    return {
        "id": f"msg_{name}", "type": "message", "role": "assistant", "model": model, "content": [part],
        "stop_reason": reason, "stop_sequence": None, "usage": usage,
    }  # fmt: skip


OTHER_APIS: dict[str, tuple[Reader, Writer]] = {
    "/v1/responses": (read_response, response_row),
    "/v1/messages": (read_message, message_row),
}
