"""Answers to prompts that no dialect recognises: the model gets the client's own messages."""

import json
import re
import time
from collections.abc import Mapping, Sequence
from typing import Any

from judgelm.dialects.contract import ChatRequest, Message, Reply, Tool, digest
from judgelm.dialects.request_body import ChatBody, CompletionBody
from judgelm.engines.base import Engine
from judgelm.errors import ConfigError, EngineError, InputError
from judgelm.modes.flow import RequestFlow
from judgelm.records import Completion, Grammar, Prompt, Request, Sampling, Unparsed
from judgelm.serving.chat_response import ChatResponse, UnjudgedError

DEFAULT_MAX_TOKENS = 4096
_SAMPLING: Mapping[str, float] = {"temperature": 1.0, "top_p": 1.0, "top_k": 0}  # OpenAI's defaults
_MAX_CHECK_S = 60.0
_INCOMPLETE = "\ufffd"  # an incomplete UTF-8 character decodes to this
_ROLES = ("system", "user", "assistant", "tool")
_READ = ChatBody.model_fields.keys() | CompletionBody.model_fields.keys()
_NO_NOTE = frozenset(
    {"continue_final_message", "add_generation_prompt", "parallel_tool_calls", "user", "metadata", "store", "echo"}
)
_SHOWN_SCHEMA = re.compile(
    r"(?:following schema as specified in JSON Schema:"  # ragas
    r"|Here is the output schema(?: \([^()]*\))?:"  # LangChain
    r"|match the following json_schema:)"  # instructor
    r"\s*(?:```(?:json)?\s*)?(?=\{)"
)
_CALL = '{"type": "function", "function": {"name": NAME, "parameters": SCHEMA}}'


def ask(request: Request) -> RequestFlow[Completion]:
    """Send one request to the engine and return its completion."""
    [completion] = yield [request]
    return completion


def model_request(
    request: ChatRequest, default_tokens: int = DEFAULT_MAX_TOKENS, defaults: Mapping[str, float] = _SAMPLING
) -> Request:
    """Return the engine request with the client's messages, tools, reply format, and sampling parameters.

    Replies that do not fit into the context window are cut at its end. The default seed is a hash of the messages, so
    that identical requests get identical replies. `defaults` contains the model's own temperature, top_p, and top_k.

    Raises:
        InputError: a field is invalid or not supported.
    """
    if request.top_logprobs and not request.logprobs:
        raise InputError('"top_logprobs": requires logprobs; set logprobs to true')
    given = {"temperature": request.temperature, "top_p": request.top_p}
    chosen = {**_SAMPLING, **defaults, **{name: value for name, value in given.items() if value is not None}}
    temperature = chosen["temperature"]
    message_hash = digest("\0".join(message.role + message.text for message in request.messages))
    sampling = Sampling(
        max_tokens=request.max_tokens or default_tokens,
        temperature=temperature,
        top_p=chosen["top_p"],
        top_k=int(chosen["top_k"]),
        stop=request.stop,
        n=request.n,
        seed=0 if temperature == 0 else (int(message_hash[:8], 16) if request.seed is None else request.seed % 2**32),
        grammar=_grammar(request),
        logprobs=request.top_logprobs if request.logprobs else None,
        reserve=1,
    )
    return Request(key="chat", prompt=_prompt(request), sampling=sampling)


def chat_response(completion: Completion, request: ChatRequest) -> ChatResponse:
    """Convert the model's completion to a response."""
    reasons = completion.finish_reasons
    if "invalid" in reasons:
        raise InputError(f'"messages": {completion.error}')
    if failure := next((reason for reason in reasons if reason in ("error", "too_long")), None):
        raise UnjudgedError(Unparsed("engine" if failure == "error" else "too_long", "", completion.error), "reply")
    notes = chat_notes(request)
    if request.logprobs and completion.logprobs is None:
        notes += ("the engine does not support log-probabilities",)
    logprobs = completion.logprobs or ()
    call = _call(completion.texts[0], called_tools(request))
    return ChatResponse(
        reply=call or Reply(texts=completion.texts, logprobs=logprobs[0] if logprobs else ()),
        dialect=None,
        prompt_tokens=completion.prompt_tokens,
        completion_tokens=completion.completion_tokens,
        notes=notes,
        thinking=completion.thinking,
        finish_reasons=tuple("length" if reason == "thinking" else reason for reason in reasons),
        logprobs=() if call else logprobs,
    )


def chat_notes(request: ChatRequest) -> tuple[str, ...]:
    """Return notes about a response by the model."""
    notes = ["unrecognised prompt; answered by the model"]
    notes += [] if _shown_schema(request) is None else ["the reply follows the JSON schema in the prompt"]
    fields = (name for name in request.ignored if name != "top_p")
    if ignored := (*fields, *sorted(str(name) for name in request.body.keys() - _READ - _NO_NOTE)):
        notes.append(f"these fields are ignored: {', '.join(ignored)}")
    return tuple(notes)


def called_tools(request: ChatRequest) -> tuple[Tool, ...]:
    """Return the tools of which the reply must call one; empty if the reply is text.

    Raises:
        InputError: a tool is invalid or unknown, or the request leaves it to the model whether to call a tool.
    """
    tools = tuple(Tool(name=row["function"]["name"], parameters=_parameters(row)) for row in _tools(request.body))
    named = request.forced_tool
    body = request.body
    choice = body.get("function_call") if body.get("tool_choice") is None else body["tool_choice"]
    if named is None and choice not in ("required", "any"):
        if tools and choice != "none":
            expected = "expected required, none, or the name of a function, because calls in a text are not parsed"
            raise InputError(f'"tool_choice": {expected}, got {str(choice or "auto")[:40]!r}')
        return ()
    called = tools if named is None else tuple(tool for tool in tools if tool.name == named)[:1]
    if not called:
        names = ", ".join(tool.name for tool in tools) or "none"
        raise InputError(f'"tool_choice": no tool named {str(named or "")[:40]!r}; available: {names:.200}')
    if request.n > 1:
        raise InputError(f'"n": expected 1 for a function call, got {request.n}')
    return called


def check_chat(engine: Engine) -> None:
    """Raise ConfigError if the engine cannot answer a greeting. Call this before a worker uses the engine."""
    hello = model_request(ChatRequest(messages=(Message(role="user", text="Hello"),), max_tokens=1))
    done: list[Completion] = []
    until = time.monotonic() + _MAX_CHECK_S
    try:
        engine.submit([hello])
        while not done and time.monotonic() < until:
            done = engine.collect(1.0)
    except EngineError as error:
        raise ConfigError(f"--unknown answer: {error}; or pass --unknown refuse") from error
    engine.abort([hello.key])
    if done and not done[0].texts:
        raise ConfigError(f"--unknown answer: {done[0].error}; or pass --unknown refuse")


def stable_text(text: str, stop: Sequence[str]) -> str:
    """Return the part of an unfinished reply that later tokens cannot change.

    Drops a trailing incomplete character and anything that could be the start of a stop string.
    """
    text = text.rstrip(_INCOMPLETE)
    stopped = Sampling(max_tokens=1, stop=tuple(stop)).cut_at_stop(text)
    text = text if stopped is None else stopped
    started = max((size for mark in stop for size in range(1, len(mark)) if text.endswith(mark[:size])), default=0)
    return text[: len(text) - started]


def _prompt(request: ChatRequest) -> Prompt:
    if request.plain:
        return Prompt(messages=({"role": "user", "content": request.messages[0].text},))
    rows = request.body.get("messages") or [{"role": each.role, "content": each.text} for each in request.messages]
    messages = [_message(index, row) for index, row in enumerate(rows)]
    prefill = ""
    if request.body.get("continue_final_message"):
        if messages[-1]["role"] != "assistant" or len(messages) == 1:
            raise InputError('"continue_final_message": expected an assistant message after other messages')
        prefill = messages.pop()["content"]
    elif request.body.get("add_generation_prompt") is False:
        raise InputError('"add_generation_prompt": false is only supported with continue_final_message')
    return Prompt(chat=True, messages=tuple(messages), tools=_tools(request.body), prefill=prefill)


def _message(index: int, row: Mapping[str, Any]) -> dict[str, Any]:
    role, content = "system" if row["role"] == "developer" else row["role"], row.get("content")
    if role not in _ROLES:
        expected = ", ".join(("developer", *_ROLES))
        raise InputError(f'"messages", {index}: unsupported role {role[:40]!r}; expected one of {expected}')
    # text parts are joined as in vLLM
    text = "\n".join(part["text"] for part in content) if isinstance(content, list) else content or ""
    message: dict[str, Any] = {"role": role, "content": text}
    message |= {name: row[name] for name in ("name", "tool_call_id") if isinstance(row.get(name), str)}
    if role == "assistant" and (calls := row.get("tool_calls")):
        if not (isinstance(calls, list) and all(map(_is_call, calls))):
            expected = 'a list of {"type": "function", "function": {"name": NAME, "arguments": JSON}}'
            raise InputError(f'"messages", {index}, "tool_calls": expected {expected}')
        message["tool_calls"] = calls
    return message


def _is_call(call: object) -> bool:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(function, Mapping):
        return False
    return isinstance(function.get("name"), str) and isinstance(function.get("arguments", ""), str)


def _tools(body: Mapping[str, Any]) -> tuple[Mapping[str, Any], ...]:
    """Return the functions in OpenAI's current format."""
    rows = body.get("tools") or [{"type": "function", "function": each} for each in body.get("functions") or ()]
    for index, row in enumerate(rows):
        function = row.get("function") if isinstance(row, Mapping) else None
        is_named = isinstance(function, Mapping) and isinstance(function.get("name"), str)
        if not is_named or not isinstance(_parameters(row), Mapping):
            raise InputError(f'"tools", {index}: expected {_CALL}')
    return tuple(rows)


def _parameters(row: Mapping[str, Any]) -> Any:
    return row["function"].get("parameters") or {"type": "object"}


def _grammar(request: ChatRequest) -> Grammar | None:
    schema = _shown_schema(request) or ({"type": "object"} if request.json_object else request.schema)
    if tools := called_tools(request):
        schema = tools[0].parameters if len(tools) == 1 else _any_call(tools)
    elif schema == {}:
        raise InputError('"response_format": expected a JSON schema with at least one key in "json_schema", "schema"')
    return None if schema is None else Grammar("json_schema", json.dumps(schema))


def _shown_schema(request: ChatRequest) -> Mapping[str, Any] | None:
    """Return the JSON schema that ragas, LangChain, or instructor write into a prompt, if there is exactly one."""
    if request.schema is not None or request.tools or request.forced_tool or request.body.get("continue_final_message"):
        return None
    found: list[Mapping[str, Any]] = []
    for message in request.messages:
        for match in _SHOWN_SCHEMA.finditer(message.text):
            try:
                schema, _ = json.JSONDecoder().raw_decode(message.text, match.end())
            except (ValueError, RecursionError):
                continue
            if isinstance(schema.get("properties"), Mapping) and schema not in found:
                found.append(schema)
    return {**found[0], "type": "object"} if len(found) == 1 else None


def _any_call(tools: Sequence[Tool]) -> dict[str, Any]:
    """Return a schema for `{"name": ..., "parameters": ...}`. References are resolved from the root of a schema."""
    schema: dict[str, Any] = {"anyOf": []}
    for tool in tools:
        parameters = dict(tool.parameters)
        for name in ("$defs", "definitions"):
            inner = parameters.pop(name, None)
            known = schema.setdefault(name, {}) if isinstance(inner, Mapping) else {}
            for key, value in inner.items() if isinstance(inner, Mapping) else ():
                if known.setdefault(key, value) != value:
                    raise InputError(f'"tools": two schemas define {str(key)[:40]!r} differently; rename one')
        fields = {"name": {"enum": [tool.name]}, "parameters": parameters}
        call = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
        schema["anyOf"].append(call)
    return schema


def _call(text: str, tools: Sequence[Tool]) -> Reply | None:
    """Return the call, or None for a text and for a call that was cut off."""
    if not tools:
        return None
    try:
        call = json.loads(text)
        if len(tools) == 1:
            return Reply(tool=tools[0].name, arguments=text)
        return Reply(tool=call["name"], arguments=json.dumps(call["parameters"], ensure_ascii=False))
    except (ValueError, RecursionError, LookupError, TypeError):
        return None
