"""Parses request bodies leniently, because real clients do not always follow the API.

For example, clients send `null` for any field, `content` as a list of text parts, `max_tokens` as a list with one
number, only a system message, or unknown fields. The role `developer` is converted to `system`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from judgelm.dialects.contract import ChatRequest, Message, Tool
from judgelm.errors import InputError
from judgelm.records import MAX_TOKENS

_NEUTRAL = {"top_p": 1, "presence_penalty": 0, "frequency_penalty": 0, "logit_bias": {}}
"""Sampling fields that do not affect verdicts, with their neutral values."""

_FORMATS = ("text", "json_object", "json_schema")
_MAX_STOP = 1000
_NOT_SHOWN = ("model", "messages", "prompt", "tools", "functions", "response_format")

_StopText = Annotated[str, Field(max_length=_MAX_STOP)]

Body = TypeVar("Body", bound="SamplingBody")


def _only_item(value: object) -> object:
    return value[0] if isinstance(value, list) and len(value) == 1 else value


def _count(low: int, high: int) -> Any:
    return Field(default=None, ge=low, le=high, description=f"an integer from {low} to {high}")


def _range(low: int, high: int) -> Any:
    return Field(default=None, ge=low, le=high, description=f"a number from {low} to {high}")


def _expecting(expected: str) -> Any:
    return Field(default=None, description=expected)


class TextPart(BaseModel):
    """A text part in a message."""

    type: Literal["text"]
    text: str


class MessageBody(BaseModel):
    """A chat message."""

    role: str = Field(description="a string")
    content: str | list[TextPart] | None = _expecting("a string or a list of text parts")


class ResponseFormat(BaseModel):
    """The requested reply format."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: Any = None


class StreamOptions(BaseModel):
    """Options for a streamed reply."""

    include_usage: bool | None = _expecting("true or false")


class SamplingBody(BaseModel):
    """Fields shared by chat and plain completions. Error messages quote the fields' descriptions."""

    model_config = ConfigDict(strict=True)

    model: str | None = _expecting("a string")
    n: int | None = _count(1, 128)
    max_tokens: Annotated[int | None, BeforeValidator(_only_item)] = _count(1, MAX_TOKENS)
    max_completion_tokens: Annotated[int | None, BeforeValidator(_only_item)] = _count(1, MAX_TOKENS)
    temperature: float | None = _range(0, 2)
    stop: _StopText | Annotated[list[_StopText], Field(max_length=16)] | None = _expecting(
        f"a string or a list of at most 16 strings, each with at most {_MAX_STOP} characters"
    )
    seed: int | None = _expecting("an integer")
    top_p: float | None = _range(0, 1)
    presence_penalty: float | None = _range(-2, 2)
    frequency_penalty: float | None = _range(-2, 2)
    logit_bias: dict[str, Any] | None = _expecting("an object")
    stream: bool | None = _expecting("true or false")
    stream_options: StreamOptions | None = _expecting("an object")

    def fields(self) -> dict[str, Any]:
        """Convert these fields to keyword arguments for `ChatRequest`."""
        ignored = (name for name, neutral in _NEUTRAL.items() if getattr(self, name) not in (None, neutral))
        stop = [self.stop] if isinstance(self.stop, str) else self.stop or ()
        return {
            "n": self.n or 1,
            "max_tokens": self.max_completion_tokens or self.max_tokens,
            "temperature": self.temperature,
            "top_p": self.top_p,
            "stop": tuple(text for text in stop if text),
            "seed": self.seed,
            "ignored": tuple(ignored),
        }


class ChatBody(SamplingBody):
    """Body of a chat completion request."""

    messages: list[MessageBody] = Field(min_length=1, description="a list of at least one message")
    response_format: ResponseFormat | None = _expecting(f"an object whose type is {' or '.join(_FORMATS)}")
    logprobs: Annotated[bool, BeforeValidator(bool)] = False
    top_logprobs: int | None = _count(0, 20)
    tools: list[Any] | None = _expecting("a list")
    functions: list[Any] | None = _expecting("a list")
    tool_choice: Any = None
    function_call: Any = None


class CompletionBody(SamplingBody):
    """Body of a plain completion request. Only one prompt is supported."""

    prompt: str | Annotated[list[str], Field(min_length=1, max_length=1)] = Field(
        description="one string; send each prompt as a separate request"
    )
    logprobs: bool | Annotated[int, Field(ge=0, le=20)] | None = _expecting("an integer from 0 to 20")


def read_chat(body: Mapping[str, Any]) -> ChatRequest:
    """Parse the body of a chat completion request, or raise InputError."""
    chat = _validated(ChatBody, body)
    form = chat.response_format
    outer = form.json_schema if form is not None and form.type == "json_schema" else None
    tools = _tools(chat)
    return ChatRequest(
        messages=tuple(
            Message(role="system" if message.role == "developer" else message.role, text=_text(message.content))
            for message in chat.messages
        ),
        logprobs=chat.logprobs,
        top_logprobs=chat.top_logprobs or 0,
        tools=tools,
        forced_tool=_forced(chat, tools),
        schema=_mapping(_mapping(outer).get("schema")) if form is not None and form.type == "json_schema" else None,
        json_object=form is not None and form.type == "json_object",
        body=body,
        **chat.fields(),
    )


def read_completion(body: Mapping[str, Any]) -> ChatRequest:
    """Parse the body of a plain completion request, or raise InputError."""
    plain = _validated(CompletionBody, body)
    return ChatRequest(
        messages=(Message(role="prompt", text=plain.prompt if isinstance(plain.prompt, str) else plain.prompt[0]),),
        plain=True,
        logprobs=plain.logprobs is not None and plain.logprobs is not False,
        top_logprobs=int(plain.logprobs or 0) if not isinstance(plain.logprobs, bool) else 0,
        body=body,
        **plain.fields(),
    )


def _validated(model: type[Body], body: Mapping[str, Any]) -> Body:
    try:
        return model.model_validate(body)
    except ValidationError as error:
        finding = error.errors(include_url=False)[0]
        fields = {**model.model_fields, **MessageBody.model_fields, **ResponseFormat.model_fields}
        loc = finding["loc"] if finding["loc"][0] == "messages" else finding["loc"][:1]
        place = [part for part in loc if isinstance(part, int) or part in fields][:3]
        if place[-1] == "role":
            place.pop()
        expected = (
            fields[str(place[-1])].description if isinstance(place[-1], str) else "an object with role and content"
        )
        got = "" if place[0] in _NOT_SHOWN else f", got {finding['input']!r:.100}"
        where = ", ".join(str(part) if isinstance(part, int) else f'"{part}"' for part in place)
        raise InputError(f"{where}: expected {expected}{got}") from error


def _text(content: str | list[TextPart] | None) -> str:
    return "".join(part.text for part in content) if isinstance(content, list) else content or ""


def _tools(chat: ChatBody) -> tuple[Tool, ...]:
    present = [tool.get("function") for tool in chat.tools or () if isinstance(tool, Mapping)]
    named = [_mapping(tool) for tool in (*present, *(chat.functions or ()))]
    return tuple(
        Tool(name=tool["name"], parameters=_mapping(tool.get("parameters")))
        for tool in named
        if isinstance(tool.get("name"), str)
    )


def _forced(chat: ChatBody, tools: tuple[Tool, ...]) -> str | None:
    for choice in (chat.tool_choice, chat.function_call):
        outer = _mapping(choice)
        name = _mapping(outer.get("function", outer)).get("name")
        if isinstance(name, str):
            return name
        if choice in ("required", "any") and len(tools) == 1:
            return tools[0].name
    return None


def _mapping(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
