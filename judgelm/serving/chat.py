"""Ordinary chats: the model answers prompts that no dialect recognises."""

from collections.abc import Sequence

from judgelm.dialects.contract import ChatRequest, Message, Reply, digest
from judgelm.engines.base import Engine
from judgelm.errors import ConfigError, EngineError, InputError
from judgelm.modes.flow import RequestFlow
from judgelm.records import Completion, Prompt, Request, Role, Sampling, Span, Unparsed
from judgelm.serving.chat_response import ChatResponse, UnjudgedError

_DEFAULT_MAX_TOKENS = 512
_DEFAULT_TEMPERATURE = 1.0  # OpenAI's default
_INCOMPLETE = "\ufffd"  # an incomplete UTF-8 character decodes to this
_ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}


def ask(request: Request) -> RequestFlow[Completion]:
    """Send one request to the engine and return its completion."""
    [completion] = yield [request]
    return completion


def model_request(request: ChatRequest) -> Request:
    """Return the engine request for an ordinary chat.

    The default seed is a hash of the messages, so that identical requests get identical replies.
    """
    if request.forced_tool is not None or request.schema is not None or request.json_object:
        raise InputError(
            '"tool_choice", "response_format": not supported in ordinary chats, and this prompt is not a known judge '
            "prompt; request plain text"
        )
    temperature = _DEFAULT_TEMPERATURE if request.temperature is None else request.temperature
    message_hash = digest("\0".join(message.role + message.text for message in request.messages))
    sampling = Sampling(
        max_tokens=request.max_tokens or _DEFAULT_MAX_TOKENS,
        temperature=temperature,
        stop=request.stop,
        n=request.n,
        seed=0 if temperature == 0 else (int(message_hash[:8], 16) if request.seed is None else request.seed % 2**32),
    )
    return Request(key="chat", prompt=_prompt(request), sampling=sampling)


def chat_response(completion: Completion, request: ChatRequest) -> ChatResponse:
    """Convert the model's completion to a response."""
    reasons = completion.finish_reasons
    if failure := next((reason for reason in reasons if reason in ("error", "too_long")), None):
        raise UnjudgedError(Unparsed("engine" if failure == "error" else "too_long", "", completion.error))
    return ChatResponse(
        reply=Reply(texts=completion.texts),
        dialect=None,
        prompt_tokens=completion.prompt_tokens,
        completion_tokens=completion.completion_tokens,
        notes=chat_notes(request),
        thinking=completion.thinking,
        finish_reasons=tuple("length" if reason == "thinking" else reason for reason in reasons),
    )


def chat_notes(request: ChatRequest) -> tuple[str, ...]:
    """Return notes about the response to an ordinary chat."""
    notes = ["unrecognised prompt; answered as an ordinary chat"]
    if request.logprobs:
        notes.append("log-probabilities are not supported in ordinary chats")
    if request.ignored:
        notes.append(f"these fields are ignored in ordinary chats: {', '.join(request.ignored)}")
    return tuple(notes)


def check_chat(engine: Engine) -> None:
    """Raise ConfigError if the engine does not support chats. Call this before a worker uses the engine."""
    hello = model_request(ChatRequest(messages=(Message(role="user", text="Hello"),), max_tokens=1))
    try:
        engine.submit([hello])
    except EngineError as error:
        raise ConfigError(f"--chat: {error}; or omit --chat") from error
    engine.abort([hello.key])


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
        return Prompt(spans=(Span(request.messages[0].text, "question"),))
    spans: list[Span] = []
    for index, message in enumerate(request.messages):
        role = _role(index, message)
        if spans and spans[-1].role == role:  # merge consecutive messages with the same role
            spans.append(Span("\n\n", "question", role))
        spans.append(Span(message.text, "question", role))
    return Prompt(spans=tuple(spans), chat=True)


def _role(index: int, message: Message) -> Role:
    if message.role not in _ROLES:
        raise InputError(f'"messages", {index}: unsupported role {message.role!r}; expected one of {", ".join(_ROLES)}')
    return _ROLES[message.role]
