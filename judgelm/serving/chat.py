"""Ordinary chats: the model answers a prompt that no dialect knows."""

from collections.abc import Sequence
from dataclasses import dataclass

from judgelm.dialects.contract import ChatRequest, Message, Reply, digest
from judgelm.engines.base import Engine
from judgelm.errors import ConfigError, EngineError, InputError
from judgelm.modes.flow import RequestFlow
from judgelm.records import Completion, Prompt, Request, Role, Sampling, Span, Unparsed
from judgelm.serving.chat_response import ChatResponse, UnjudgedError

_MOST_TOKENS = 512
_USUAL_TEMPERATURE = 1.0  # where the client does not say, as the API has it
_HALF = "\ufffd"  # decoded from a character whose last bytes are still missing
_ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatFlow:
    """A flow of one request that ends in its completion."""

    request: Request

    def __call__(self) -> RequestFlow[Completion]:
        """Yield the request; return its completion."""
        [completion] = yield [self.request]
        return completion


def chat_flow(request: ChatRequest) -> ChatFlow:
    """The flow of a chat request.

    Without a seed of the client the seed is a hash of the messages, so that the same request gives the same reply.

    Raises:
        InputError: an unknown role, or a reply format that is not supported.
    """
    if request.forced_tool is not None or request.schema is not None or request.json_object:
        raise InputError(
            '"tool_choice", "response_format": no dialect knows this prompt, and ordinary chats do not support '
            "functions or schemas; request plain text"
        )
    temperature = _USUAL_TEMPERATURE if request.temperature is None else request.temperature
    message_hash = digest("\0".join(message.role + message.text for message in request.messages))
    sampling = Sampling(
        max_tokens=request.max_tokens or _MOST_TOKENS,
        temperature=temperature,
        stop=request.stop,
        n=request.n,
        seed=0 if temperature == 0 else (int(message_hash[:8], 16) if request.seed is None else request.seed % 2**32),
    )
    return ChatFlow(request=Request(key="chat", prompt=_prompt(request), sampling=sampling))


def chat_response(completion: Completion, request: ChatRequest) -> ChatResponse:
    """The model's own answer.

    Raises:
        UnjudgedError: the model gave none.
    """
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
    """Notes on the answer of an ordinary chat."""
    notes = ["no dialect knows this prompt, so the model answered it as in an ordinary chat"]
    if request.logprobs:
        notes.append("log-probabilities are not given in an ordinary chat")
    if request.ignored:
        notes.append(f"not supported in an ordinary chat and ignored: {', '.join(request.ignored)}")
    return tuple(notes)


def check_chat(engine: Engine) -> None:
    """Check that the engine can chat, before a worker drives it: a chat is submitted and aborted.

    Raises:
        ConfigError: it cannot; the message says why.
    """
    hello = chat_flow(ChatRequest(messages=(Message(role="user", text="Hello"),), max_tokens=1)).request
    try:
        engine.submit([hello])
    except EngineError as error:
        raise ConfigError(f"--chat: {error}; or leave --chat out") from error
    engine.abort([hello.key])


def stable_text(text: str, stop: Sequence[str]) -> str:
    """The beginning of an unfinished reply that no later token can change.

    Half a character and a possible beginning of a stop text are left out at the end.
    """
    text = text.rstrip(_HALF)
    stopped = Sampling(max_tokens=1, stop=tuple(stop)).cut_at_stop(text)
    text = text if stopped is None else stopped
    begun = max((size for mark in stop for size in range(1, len(mark)) if text.endswith(mark[:size])), default=0)
    return text[: len(text) - begun]


def _prompt(request: ChatRequest) -> Prompt:
    if request.plain:
        return Prompt(spans=(Span(request.messages[0].text, "question"),))
    spans: list[Span] = []
    for index, message in enumerate(request.messages):
        role = _role(index, message)
        if spans and spans[-1].role == role:  # neighbours of one role become one message
            spans.append(Span("\n\n", "question", role))
        spans.append(Span(message.text, "question", role))
    return Prompt(spans=tuple(spans), chat=True)


def _role(index: int, message: Message) -> Role:
    if message.role not in _ROLES:
        raise InputError(
            f'"messages", {index}: role {message.role!r} is unknown in an ordinary chat; available: {", ".join(_ROLES)}'
        )
    return _ROLES[message.role]
