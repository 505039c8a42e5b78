"""Replies in OpenAI's JSON: whole, or in pieces as server-sent events."""

import json
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from judgelm.dialects.contract import TokenLogprobs
from judgelm.serving.responses import ChatResponse

_PIECE = re.compile(r"\S+\s*|\s+")
_LEAST_LOGPROB = -9999.0  # what OpenAI sends for a probability of zero; JSON has no infinity
_DONE = b"data: [DONE]\n\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """Fields of OpenAI's JSON around a reply.

    Attributes:
        model: name of the judge, as used by the client.
        fingerprint: of the judge.
        plain: whether a plain completion was asked for.
        function: whether a call has the former format (`function_call`, before tools).
        usage: whether a stream ends with a chunk of token counts.
    """

    model: str
    fingerprint: str
    plain: bool = False
    function: bool = False
    usage: bool = False
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    def around(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        """A reply or a chunk with these choices."""
        return {
            "id": f"{'cmpl' if self.plain else 'chatcmpl'}-{self.id}",
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        }


def completion_body(response: ChatResponse, envelope: Envelope) -> bytes:
    """The whole reply."""
    if envelope.plain:
        choices = [
            _choice(index, response, envelope, {"text": text, "logprobs": _plain_logprobs(_logprobs(response, index))})
            for index, text in enumerate(response.reply.texts)
        ]
        row = envelope.around("text_completion", choices)
    else:
        choices = [
            _choice(
                index, response, envelope, {"message": message, "logprobs": _chat_logprobs(_logprobs(response, index))}
            )
            for index, message in enumerate(_messages(response, envelope))
        ]
        row = envelope.around("chat.completion", choices)
    return json.dumps(row | {"usage": usage(response)}).encode()


def stream_events(response: ChatResponse, envelope: Envelope) -> Iterator[bytes]:
    """The reply as events, `[DONE]` at the end; pieces are words, or tokens where their logprobs are known."""
    for choice in _choices_in_pieces(response, envelope):
        yield _chunk(choice, envelope)
    yield from _closing(response, envelope)


class StreamEncoder:
    """Encodes a reply as events while its first text is still being written; further texts follow whole, at the end.

    Args:
        envelope: fields around the reply.
    """

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._sent = ""

    def opening(self) -> Iterator[bytes]:
        """Events before the first text."""
        for choice in _opening(0, self._envelope):
            yield _chunk(choice, self._envelope)

    def more(self, text: str) -> bytes:
        """The event with the growth of the first text, which is now `text`."""
        assert text.startswith(self._sent), "a sent text never changes"
        piece, offset = text[len(self._sent) :], len(self._sent)
        self._sent = text
        return _chunk(_more(0, piece, (), self._envelope, offset), self._envelope)

    def ending(self, response: ChatResponse) -> Iterator[bytes]:
        """The remaining events."""
        first, *others = response.reply.texts
        for choice in _thinking_in_pieces(0, response, self._envelope):
            yield _chunk(choice, self._envelope)
        if first != self._sent:
            yield self.more(first)
        yield _chunk(_end(0, response, self._envelope), self._envelope)
        for index, text in enumerate(others, start=1):
            for choice in _text_in_pieces(index, text, response, self._envelope):
                yield _chunk(choice, self._envelope)
        yield from _closing(response, self._envelope)


def error_event(error: bytes) -> bytes:
    """The last event of a stream that failed, from the JSON of `{"error": ...}`; OpenAI's clients raise it."""
    return b"data: " + error + b"\n\n"


def usage(response: ChatResponse) -> dict[str, int]:
    """Token counts of the prompts and of the texts that the judge wrote."""
    prompt, completion = response.prompt_tokens, response.completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _choice(index: int, response: ChatResponse, envelope: Envelope, content: dict[str, Any]) -> dict[str, Any]:
    return {"index": index, **content, "finish_reason": _finish(index, response, envelope)}


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
    """Thinking beside the content, as in vLLM's server; never within, where a client's parser would read it."""
    thinking = response.thinking[index] if index < len(response.thinking) else ""
    return {"reasoning_content": thinking} if thinking else {}


def _thinking_in_pieces(index: int, response: ChatResponse, envelope: Envelope) -> Iterator[dict[str, Any]]:
    """Thinking as one piece; a plain completion has no field for it."""
    if (thinking := _thinking(index, response)) and not envelope.plain:
        yield _piece(index, {"delta": thinking, "logprobs": None})


def _tool_call(call: Mapping[str, str], envelope: Envelope) -> dict[str, Any]:
    return {"id": f"call_{envelope.id}", "type": "function", "function": call}


def _choices_in_pieces(response: ChatResponse, envelope: Envelope) -> Iterator[dict[str, Any]]:
    """The choice of each chunk: opening, pieces and end of each text."""
    if response.reply.tool is not None:
        for delta in _call_in_pieces(response, envelope):
            yield _piece(0, {"delta": delta, "logprobs": None})
        yield from _thinking_in_pieces(0, response, envelope)
        yield _end(0, response, envelope)
    for index, text in enumerate(response.reply.texts):
        yield from _text_in_pieces(index, text, response, envelope)


def _text_in_pieces(index: int, text: str, response: ChatResponse, envelope: Envelope) -> Iterator[dict[str, Any]]:
    yield from _opening(index, envelope)
    yield from _thinking_in_pieces(index, response, envelope)
    offset = 0
    for piece, tokens in _pieces(text, _logprobs(response, index)):
        yield _more(index, piece, tokens, envelope, offset)
        offset += len(piece)
    yield _end(index, response, envelope)


def _opening(index: int, envelope: Envelope) -> Iterator[dict[str, Any]]:
    if not envelope.plain:
        yield _piece(index, {"delta": {"role": "assistant", "content": "", "refusal": None}, "logprobs": None})


def _more(index: int, piece: str, tokens: Sequence[TokenLogprobs], envelope: Envelope, offset: int) -> dict[str, Any]:
    if envelope.plain:
        return _piece(index, {"text": piece, "logprobs": _plain_logprobs(tokens, offset)})
    return _piece(index, {"delta": {"content": piece}, "logprobs": _chat_logprobs(tokens)})


def _end(index: int, response: ChatResponse, envelope: Envelope) -> dict[str, Any]:
    empty: dict[str, Any] = {"text": ""} if envelope.plain else {"delta": {}}
    return _piece(index, {**empty, "logprobs": None}, _finish(index, response, envelope))


def _piece(index: int, content: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": index, **content, "finish_reason": finish}


def _call_in_pieces(response: ChatResponse, envelope: Envelope) -> Iterator[dict[str, Any]]:
    name, arguments = response.reply.tool or "", response.reply.arguments
    opening = {"name": name, "arguments": ""}
    head: dict[str, Any] = {"role": "assistant", "content": None}
    if envelope.function:
        yield head | {"function_call": opening}
    else:
        yield head | {"tool_calls": [{"index": 0, **_tool_call(opening, envelope)}]}
    for piece in _PIECE.findall(arguments):
        if envelope.function:
            yield {"function_call": {"arguments": piece}}
        else:
            yield {"tool_calls": [{"index": 0, "function": {"arguments": piece}}]}


def _pieces(text: str, tokens: Sequence[TokenLogprobs]) -> Iterator[tuple[str, Sequence[TokenLogprobs]]]:
    if tokens:
        for token in tokens:
            yield token.token, (token,)
    else:
        for piece in _PIECE.findall(text):
            yield piece, ()


def _logprobs(response: ChatResponse, index: int) -> Sequence[TokenLogprobs]:
    """Log-probabilities of a text; dialects give them for the first alone."""
    return response.reply.logprobs if index == 0 else ()


def _chat_logprobs(tokens: Sequence[TokenLogprobs]) -> dict[str, Any] | None:
    if not tokens:
        return None
    return {
        "content": [
            {
                **_token(token.token, token.logprob),
                "top_logprobs": [_token(text, logprob) for text, logprob in token.candidates],
            }
            for token in tokens
        ],
        "refusal": None,
    }


def _token(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": max(logprob, _LEAST_LOGPROB), "bytes": list(text.encode())}


def _plain_logprobs(tokens: Sequence[TokenLogprobs], offset: int = 0) -> dict[str, Any] | None:
    """Log-probabilities of plain completions; `text_offset` counts characters from the reply's beginning."""
    if not tokens:
        return None
    offsets = []
    for token in tokens:
        offsets.append(offset)
        offset += len(token.token)
    return {
        "tokens": [token.token for token in tokens],
        "token_logprobs": [max(token.logprob, _LEAST_LOGPROB) for token in tokens],
        "top_logprobs": [
            {text: max(logprob, _LEAST_LOGPROB) for text, logprob in token.candidates} for token in tokens
        ],
        "text_offset": offsets,
    }


def _chunk(choice: dict[str, Any], envelope: Envelope) -> bytes:
    more = {"usage": None} if envelope.usage else {}
    return _event(envelope.around(_chunk_kind(envelope), [choice]) | more)


def _closing(response: ChatResponse, envelope: Envelope) -> Iterator[bytes]:
    """Events after all texts."""
    if envelope.usage:
        yield _event(envelope.around(_chunk_kind(envelope), []) | {"usage": usage(response)})
    yield _DONE


def _chunk_kind(envelope: Envelope) -> str:
    return "text_completion" if envelope.plain else "chat.completion.chunk"


def _event(row: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(row).encode() + b"\n\n"
