"""An ordinary chat: a client's own messages, which the model answers as they are.

For prompts that no dialect knows, where the server lets the model chat. Nothing in them is judged.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from judgelm.dialects.contract import ChatRequest, Message, Reply
from judgelm.dialects.text import digest
from judgelm.engines.base import Engine
from judgelm.errors import ConfigError, EngineError, InputError
from judgelm.modes.flow import Asking
from judgelm.records import Completion, Prompt, Request, Role, Sampling, Span, Unparsed
from judgelm.serving.responses import ChatResponse, UnjudgedError

_MOST_TOKENS = 512
_USUAL_TEMPERATURE = 1.0  # where the client does not say, as the API has it
_HALF = "\ufffd"  # what tokenizers make of a character whose last bytes are still to come
_ROLES: dict[str, Role] = {"system": "system", "user": "user", "assistant": "assistant"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatFlow:
    """Lets the model answer one request; a flow that ends in its completion."""

    request: Request

    def __call__(self) -> Asking[Completion]:
        """Ask."""
        [completion] = yield [self.request]
        return completion


def chat_flow(asked: ChatRequest) -> ChatFlow:
    """The chat in a request.

    Without a seed of the client's the seed is made of the messages, so that the same request gives the same reply.

    Raises:
        InputError: a role that a chat does not have, or a form of the reply that is not held to here.
    """
    if asked.forced_tool is not None or asked.schema is not None or asked.json_object:
        raise InputError(
            '"tool_choice", "response_format": no dialect knows this prompt, and an ordinary chat here calls no '
            "functions and holds to no schema; ask for plain text"
        )
    temperature = _USUAL_TEMPERATURE if asked.temperature is None else asked.temperature
    said = digest("\0".join(one.role + one.text for one in asked.messages))
    sampling = Sampling(
        max_tokens=asked.max_tokens or _MOST_TOKENS,
        temperature=temperature,
        stop=asked.stop,
        n=asked.n,
        seed=0 if temperature == 0 else (int(said[:8], 16) if asked.seed is None else asked.seed % 2**32),
    )
    return ChatFlow(request=Request(key="chat", prompt=_prompt(asked), sampling=sampling))


def chat_response(completion: Completion, asked: ChatRequest) -> ChatResponse:
    """The model's own answer.

    Raises:
        UnjudgedError: there is none.
    """
    reasons = completion.finish_reasons
    if lacking := next((one for one in reasons if one in ("error", "too_long")), None):
        raise UnjudgedError(Unparsed("engine" if lacking == "error" else "too_long", "", completion.error))
    return ChatResponse(
        reply=Reply(texts=completion.texts),
        dialect=None,
        prompt_tokens=completion.prompt_tokens,
        completion_tokens=completion.completion_tokens,
        notes=chat_notes(asked),
        thinking=completion.thinking,
        finish_reasons=tuple("length" if one == "thinking" else one for one in reasons),
    )


def chat_notes(asked: ChatRequest) -> tuple[str, ...]:
    """What must be known of an ordinary chat's answer."""
    said = "no dialect knows this prompt, so the model answered it as in an ordinary chat"
    return (said, "log-probabilities are not given in an ordinary chat") if asked.logprobs else (said,)


def check_chat(engine: Engine) -> None:
    """See, before any service drives the engine, that it can be asked to chat: a chat is handed over and taken back.

    Raises:
        ConfigError: it cannot; the message says what it lacks.
    """
    hello = chat_flow(ChatRequest(messages=(Message(role="user", text="Hello"),), max_tokens=1)).request
    try:
        engine.submit([hello])
    except EngineError as error:
        raise ConfigError(f"--chat: {error}; or leave --chat out") from error
    engine.abort([hello.key])


def stable_text(text: str, stop: Sequence[str]) -> str:
    """What of an unfinished reply stays as it is, whatever comes next.

    Left out at the end are half a character, and what may be the beginning of a text that ends the reply.
    """
    text = text.rstrip(_HALF)
    text = text[: min((place for mark in stop if (place := text.find(mark)) >= 0), default=len(text))]
    begun = max((size for mark in stop for size in range(1, len(mark)) if text.endswith(mark[:size])), default=0)
    return text[: len(text) - begun]


def _prompt(asked: ChatRequest) -> Prompt:
    if asked.plain:
        return Prompt(spans=(Span(asked.messages[0].text, "question"),))
    spans: list[Span] = []
    for place, message in enumerate(asked.messages):
        role = _role(place, message)
        if spans and spans[-1].role == role:  # neighbours of one role become one message
            spans.append(Span("\n\n", "question", role))
        spans.append(Span(message.text, "question", role))
    return Prompt(spans=tuple(spans), chat=True)


def _role(place: int, message: Message) -> Role:
    if message.role not in _ROLES:
        raise InputError(
            f'"messages", {place}: role {message.role!r} is not known in an ordinary chat; there are: '
            f"{', '.join(_ROLES)}"
        )
    return _ROLES[message.role]
