"""Formats replies as OpenAI JSON, either complete or as server-sent events."""

import json
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from judgelm.records import TokenLogprobs
from judgelm.serving.chat_response import ChatResponse


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """The fields of an OpenAI response apart from its choices.

    Attributes:
        model: model name in the client's request.
        function: whether to use the deprecated `function_call` instead of `tool_calls`.
        usage: whether to end a stream with token counts.
    """

    model: str
    fingerprint: str
    plain: bool = False
    function: bool = False
    usage: bool = False
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    def around(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        """Wrap the choices in a complete reply or a chunk."""
        name = f"{'cmpl' if self.plain else 'chatcmpl'}-{self.id}"
        row: dict[str, Any] = {"id": name, "object": kind, "created": self.created, "model": self.model}
        return row | {"system_fingerprint": self.fingerprint, "choices": choices}


class StreamEncoder:
    """Encodes a reply as events: one per token if log-probabilities are available, otherwise one per word."""

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._kind = "text_completion" if envelope.plain else "chat.completion.chunk"
        self._sent = ""

    def opening(self, index: int = 0) -> Iterator[bytes]:
        """Yield the events that precede a text."""
        if not self._envelope.plain:
            yield self._delta(index, {"role": "assistant", "content": "", "refusal": None})

    def more(self, text: str) -> bytes:
        """Return an event with the text added since the last call. `text` is the complete text so far."""
        assert text.startswith(self._sent), "text that was sent must not change"
        piece, offset = text[len(self._sent) :], len(self._sent)
        self._sent = text
        return self._piece(0, piece, (), offset)

    def ending(self, response: ChatResponse) -> Iterator[bytes]:
        """Yield the remaining events, then `[DONE]`."""
        if response.reply.tool is not None:
            for delta in _call_in_pieces(response, self._envelope):
                yield self._delta(0, delta)
            yield from self._thinking(0, response)
            yield self._end(0, response)
        for index, text in enumerate(response.reply.texts):
            if index:
                yield from self.opening(index)
            yield from self._rest(index, text, response)
        if self._envelope.usage:
            yield _event(self._envelope.around(self._kind, []) | {"usage": usage(response)})
        yield _DONE

    def _rest(self, index: int, text: str, response: ChatResponse) -> Iterator[bytes]:
        offset = 0 if index else len(self._sent)
        tokens = _tokens(response, index)
        yield from self._thinking(index, response)
        pieces: list[tuple[str, Sequence[TokenLogprobs]]] = [(token.token, (token,)) for token in tokens]
        if response.logprobs and "".join(token.token for token in tokens) != text:
            pieces = [(text, tokens)]  # a token can be a part of a character, or of a stop string
        for piece, logprobs in pieces or [(word, ()) for word in _PIECE.findall(text[offset:])]:
            yield self._piece(index, piece, logprobs, offset)
            offset += len(piece)
        yield self._end(index, response)

    def _end(self, index: int, response: ChatResponse) -> bytes:
        empty: dict[str, Any] = {"text": ""} if self._envelope.plain else {"delta": {}}
        return self._chunk(_choice(index, {**empty, "logprobs": None}, _finish(index, response, self._envelope)))

    def _thinking(self, index: int, response: ChatResponse) -> Iterator[bytes]:
        if (thinking := _thinking(index, response)) and not self._envelope.plain:
            yield self._delta(index, thinking)

    def _piece(self, index: int, piece: str, tokens: Sequence[TokenLogprobs], offset: int) -> bytes:
        content: dict[str, Any] = {"text": piece} if self._envelope.plain else {"delta": {"content": piece}}
        return self._chunk(_choice(index, {**content, "logprobs": _logprobs(tokens, self._envelope, offset)}))

    def _delta(self, index: int, delta: dict[str, Any]) -> bytes:
        return self._chunk(_choice(index, {"delta": delta, "logprobs": None}))

    def _chunk(self, choice: dict[str, Any]) -> bytes:
        more = {"usage": None} if self._envelope.usage else {}
        return _event(self._envelope.around(self._kind, [choice]) | more)


def stream_events(response: ChatResponse, envelope: Envelope) -> Iterator[bytes]:
    """Yield a complete reply as events."""
    encoder = StreamEncoder(envelope)
    if response.reply.tool is None:
        yield from encoder.opening()
    yield from encoder.ending(response)


def completion_body(response: ChatResponse, envelope: Envelope) -> bytes:
    """Return the complete reply."""
    contents: list[dict[str, Any]]
    if envelope.plain:
        kind, contents = "text_completion", [{"text": text} for text in response.reply.texts]
    else:
        kind, contents = "chat.completion", [{"message": message} for message in _messages(response, envelope)]
    choices = []
    for index, content in enumerate(contents):
        content["logprobs"] = _logprobs(_tokens(response, index), envelope)
        choices.append(_choice(index, content, _finish(index, response, envelope)))
    return json.dumps(envelope.around(kind, choices) | {"usage": usage(response)}).encode()


_PIECE = re.compile(r"\S+\s*|\s+")
_MIN_LOGPROB = -9999.0  # OpenAI's value for probability 0, because JSON does not support infinity
_DONE = b"data: [DONE]\n\n"


def usage(response: ChatResponse) -> dict[str, int]:
    """Return the token counts of a response."""
    prompt, completion = response.prompt_tokens, response.completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _choice(index: int, content: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": index, **content, "finish_reason": finish}


def _finish(index: int, response: ChatResponse, envelope: Envelope) -> str:
    if response.reply.tool is None:
        return response.finish_reasons[index] if response.finish_reasons else "stop"
    return "function_call" if envelope.function else "tool_calls"


def _messages(response: ChatResponse, envelope: Envelope) -> list[dict[str, Any]]:
    reply = response.reply
    if reply.tool is None:
        return [
            {"role": "assistant", "content": text, "refusal": None} | _thinking(index, response)
            for index, text in enumerate(reply.texts)
        ]
    call = {"name": reply.tool, "arguments": reply.arguments}
    made = {"function_call": call} if envelope.function else {"tool_calls": [_tool_call(call, envelope)]}
    return [{"role": "assistant", "content": None, "refusal": None, **made} | _thinking(0, response)]


def _thinking(index: int, response: ChatResponse) -> dict[str, str]:
    """As in vLLM, thinking has a separate field, which clients do not parse."""
    thinking = response.thinking[index] if index < len(response.thinking) else ""
    return {"reasoning_content": thinking} if thinking else {}


def _tool_call(call: Mapping[str, str], envelope: Envelope) -> dict[str, Any]:
    return {"id": f"call_{envelope.id}", "type": "function", "function": call}


def _call_in_pieces(response: ChatResponse, envelope: Envelope) -> Iterator[dict[str, Any]]:
    opening = {"name": response.reply.tool or "", "arguments": ""}
    head: dict[str, Any] = {"role": "assistant", "content": None}
    if envelope.function:
        yield head | {"function_call": opening}
    else:
        yield head | {"tool_calls": [{"index": 0, **_tool_call(opening, envelope)}]}
    for piece in _PIECE.findall(response.reply.arguments):
        call = {"arguments": piece}
        yield {"function_call": call} if envelope.function else {"tool_calls": [{"index": 0, "function": call}]}


def _tokens(response: ChatResponse, index: int) -> Sequence[TokenLogprobs]:
    if response.logprobs:
        return response.logprobs[index]
    return response.reply.logprobs if index == 0 else ()


def _logprobs(tokens: Sequence[TokenLogprobs], envelope: Envelope, offset: int = 0) -> dict[str, Any] | None:
    """`offset` is a character position in a plain completion."""
    if not tokens:
        return None
    if not envelope.plain:
        return {"content": chat_logprobs(tokens), "refusal": None}
    offsets = [offset + start for start in accumulate((len(token.token) for token in tokens[:-1]), initial=0)]
    return {
        "tokens": [token.token for token in tokens],
        "token_logprobs": [_finite(token.logprob) for token in tokens],
        "top_logprobs": [{text: _finite(logprob) for text, logprob in token.candidates} for token in tokens],
        "text_offset": offsets,
    }


def chat_logprobs(tokens: Sequence[TokenLogprobs]) -> list[dict[str, Any]]:
    """Return the log-probabilities of the tokens and their alternatives in the chat format."""
    return [
        _token(token.token, token.logprob) | {"top_logprobs": [_token(*candidate) for candidate in token.candidates]}
        for token in tokens
    ]


def _token(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": _finite(logprob), "bytes": list(text.encode())}


def _finite(logprob: float) -> float:
    return max(logprob, _MIN_LOGPROB)


def _event(row: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(row).encode() + b"\n\n"
