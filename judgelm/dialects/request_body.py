"""The JSON body of a request, read for dialects; odd fields that clients really send are accepted.

Known oddities: `null` for anything, `content` as a list of text parts, `max_tokens` as a list of one number, a system's
message alone, fields that no server knows. The role `developer`, which newer models have, is `system` here.
"""

from collections.abc import Mapping
from typing import Any

from judgelm.dialects.contract import ChatRequest, Message, Tool
from judgelm.errors import InputError
from judgelm.records import MAX_TOKENS

_MOST_REPLIES = 128
_RANGES = {"temperature": (0, 2), "top_p": (0, 1), "presence_penalty": (-2, 2), "frequency_penalty": (-2, 2)}
_NEUTRAL = {"top_p": (1,), "presence_penalty": (0,), "frequency_penalty": (0,), "logit_bias": ({},)}
"""Fields that change what a model draws, with the values that change nothing; no reply here depends on them."""

_FORMATS = ("text", "json_object", "json_schema")
_MOST_STOPS, _LONGEST_STOP = 16, 1000


def read_chat(body: Mapping[str, Any]) -> ChatRequest:
    """The body of a chat completion.

    Raises:
        InputError: it is none; the message names the field.
    """
    messages = body.get("messages")
    if not isinstance(messages, list) or not messages:
        raise InputError('"messages": expected a list of messages, at least one')
    forms = _format(body)
    return ChatRequest(
        messages=tuple(_message(index, message) for index, message in enumerate(messages)),
        n=_count(body, "n", 1, most=_MOST_REPLIES),
        logprobs=bool(body.get("logprobs")),
        top_logprobs=_count(body, "top_logprobs", 0, most=20),
        tools=_tools(body),
        forced_tool=_forced(body),
        schema=_schema(forms),
        json_object=forms.get("type") == "json_object",
        max_tokens=_most_tokens(body),
        temperature=_number(body, "temperature"),
        stop=_stop(body),
        seed=_seed(body),
        ignored=_ignored(body),
    )


def read_completion(body: Mapping[str, Any]) -> ChatRequest:
    """The body of a plain completion of one prompt.

    Raises:
        InputError: it is none, or has several prompts.
    """
    prompt = body.get("prompt")
    if isinstance(prompt, list) and len(prompt) == 1:
        [prompt] = prompt
    if not isinstance(prompt, str):
        raise InputError('"prompt": expected one text; send several prompts as several requests')
    logprobs = body.get("logprobs")
    return ChatRequest(
        messages=(Message(role="prompt", text=prompt),),
        plain=True,
        n=_count(body, "n", 1, most=_MOST_REPLIES),
        logprobs=logprobs is not None and logprobs is not False,
        top_logprobs=0 if logprobs is None or isinstance(logprobs, bool) else _count(body, "logprobs", 0, most=20),
        max_tokens=_most_tokens(body),
        temperature=_number(body, "temperature"),
        stop=_stop(body),
        seed=_seed(body),
        ignored=_ignored(body),
    )


def _message(index: int, message: object) -> Message:
    if not isinstance(message, Mapping) or not isinstance(message.get("role"), str):
        raise InputError(f'"messages", {index}: expected an object with role and content')
    role = message["role"]
    return Message(role="system" if role == "developer" else role, text=_text(index, message.get("content")))


def _text(index: int, content: object) -> str:
    if content is None:
        return ""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        parts = [
            part.get("text") if isinstance(part, Mapping) and part.get("type") == "text" else None for part in content
        ]
        if all(isinstance(part, str) for part in parts):
            return "".join(part for part in parts if part is not None)
    raise InputError(f'"messages", {index}, "content": expected a text or a list of text parts')


def _count(body: Mapping[str, Any], name: str, usual: int, *, most: int) -> int:
    value = body.get(name)
    if value is None:
        return usual
    if not isinstance(value, int) or isinstance(value, bool) or not min(usual, 1) <= value <= most:
        raise InputError(f'"{name}": expected a whole number from {min(usual, 1)} to {most}, got {_shown(value)}')
    return value


def _most_tokens(body: Mapping[str, Any]) -> int | None:
    name = "max_tokens" if body.get("max_completion_tokens") is None else "max_completion_tokens"
    value = body.get(name)
    if isinstance(value, list) and len(value) == 1:
        [value] = value
    if value is None:
        return None
    if not isinstance(value, int) or isinstance(value, bool) or not 1 <= value <= MAX_TOKENS:
        raise InputError(f'"{name}": expected a whole number from 1 to {MAX_TOKENS}, got {_shown(value)}')
    return value


def _number(body: Mapping[str, Any], name: str) -> float | None:
    value = body.get(name)
    if value is None:
        return None
    least, most = _RANGES[name]
    if not isinstance(value, int | float) or isinstance(value, bool) or not least <= value <= most:
        raise InputError(f'"{name}": expected a number from {least} to {most}, got {_shown(value)}')
    return float(value)


def _ignored(body: Mapping[str, Any]) -> tuple[str, ...]:
    """The fields that would change what a model draws."""
    values: dict[str, object] = {name: _number(body, name) for name in _NEUTRAL if name in _RANGES}
    bias = body.get("logit_bias")
    if bias is not None and not isinstance(bias, Mapping):
        raise InputError(f'"logit_bias": expected an object, got {_shown(bias)}')
    values["logit_bias"] = bias
    return tuple(name for name, value in values.items() if value is not None and value not in _NEUTRAL[name])


def _stop(body: Mapping[str, Any]) -> tuple[str, ...]:
    value = body.get("stop")
    texts = [value] if isinstance(value, str) else value or []
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise InputError(f'"stop": expected a text or a list of texts, got {_shown(value)}')
    if len(texts) > _MOST_STOPS or any(len(text) > _LONGEST_STOP for text in texts):
        raise InputError(f'"stop": expected at most {_MOST_STOPS} texts of at most {_LONGEST_STOP} characters')
    return tuple(text for text in texts if text)


def _seed(body: Mapping[str, Any]) -> int | None:
    value = body.get("seed")
    if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
        raise InputError(f'"seed": expected a whole number, got {_shown(value)}')
    return value


def _tools(body: Mapping[str, Any]) -> tuple[Tool, ...]:
    """Functions of the present form (`tools`) or of the former one (`functions`)."""
    present = [tool.get("function") for tool in _list(body, "tools") if isinstance(tool, Mapping)]
    former = _list(body, "functions")
    named = [tool for tool in [*present, *former] if isinstance(tool, Mapping) and isinstance(tool.get("name"), str)]
    return tuple(Tool(name=tool["name"], parameters=_mapping(tool.get("parameters"))) for tool in named)


def _forced(body: Mapping[str, Any]) -> str | None:
    for name in ("tool_choice", "function_call"):
        choice = body.get(name)
        if isinstance(choice, Mapping):
            inner = choice.get("function", choice)
            if isinstance(inner, Mapping) and isinstance(inner.get("name"), str):
                return str(inner["name"])
        tools = _tools(body)
        if choice in ("required", "any") and len(tools) == 1:
            return tools[0].name
    return None


def _format(body: Mapping[str, Any]) -> Mapping[str, Any]:
    value = body.get("response_format")
    if value is None:
        return {}
    if not isinstance(value, Mapping) or value.get("type") not in _FORMATS:
        raise InputError(f'"response_format": expected an object whose type is {" or ".join(_FORMATS)}')
    return value


def _schema(forms: Mapping[str, Any]) -> Mapping[str, Any] | None:
    """Of a reply held to a JSON schema."""
    if forms.get("type") != "json_schema":
        return None
    outer = _mapping(forms.get("json_schema"))
    return _mapping(outer.get("schema"))


def _shown(value: object) -> str:
    return f"{value!r:.100}"


def _list(body: Mapping[str, Any], name: str) -> list[Any]:
    value = body.get(name)
    if value is not None and not isinstance(value, list):
        raise InputError(f'"{name}": expected a list')
    return value or []


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
