"""A client's reply as the JSON that OpenAI's servers send: whole, or in pieces as server-sent events."""

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
    """What stands around a reply.

    Attributes:
        model: as the client called the judge.
        fingerprint: of the judge.
        plain: whether a plain completion was asked for.
        function: whether a call has the form before tools (`function_call`).
        usage: whether a stream ends with a chunk that tells the tokens.
    """

    model: str
    fingerprint: str
    plain: bool = False
    function: bool = False
    usage: bool = False
    id: str = field(default_factory=lambda: secrets.token_hex(12))
    created: int = field(default_factory=lambda: int(time.time()))

    def around(self, kind: str, choices: list[dict[str, Any]]) -> dict[str, Any]:
        """A reply or a chunk of these choices."""
        return {
            "id": f"{'cmpl' if self.plain else 'chatcmpl'}-{self.id}",
            "object": kind,
            "created": self.created,
            "model": self.model,
            "system_fingerprint": self.fingerprint,
            "choices": choices,
        }


def completion_body(answered: ChatResponse, envelope: Envelope) -> bytes:
    """The reply at once."""
    if envelope.plain:
        choices = [
            _choice(place, answered, envelope, {"text": text, "logprobs": _plain_logprobs(_logprobs(answered, place))})
            for place, text in enumerate(answered.reply.texts)
        ]
        row = envelope.around("text_completion", choices)
    else:
        choices = [
            _choice(
                place, answered, envelope, {"message": message, "logprobs": _chat_logprobs(_logprobs(answered, place))}
            )
            for place, message in enumerate(_messages(answered, envelope))
        ]
        row = envelope.around("chat.completion", choices)
    return json.dumps(row | {"usage": usage(answered)}).encode()


def stream_events(answered: ChatResponse, envelope: Envelope) -> Iterator[bytes]:
    """The reply as events, the last of them `[DONE]`; pieces are words, or tokens where their logprobs are known."""
    for choice in _choices_in_pieces(answered, envelope):
        yield _chunk(choice, envelope)
    yield from _closing(answered, envelope)


class StreamEncoder:
    """A reply as events while its first text is still being written; more texts come whole, at the end.

    Args:
        envelope: what stands around it.
    """

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._sent = ""

    def opening(self) -> Iterator[bytes]:
        """Before the first text."""
        for choice in _opening(0, self._envelope):
            yield _chunk(choice, self._envelope)

    def more(self, text: str) -> bytes:
        """What has come to the first text, which is now this."""
        assert text.startswith(self._sent), "what was sent stays as it is"
        piece, offset = text[len(self._sent) :], len(self._sent)
        self._sent = text
        return _chunk(_more(0, piece, (), self._envelope, offset), self._envelope)

    def ending(self, answered: ChatResponse) -> Iterator[bytes]:
        """All that is left."""
        first, *others = answered.reply.texts
        for choice in _thinking_in_pieces(0, answered, self._envelope):
            yield _chunk(choice, self._envelope)
        if first != self._sent:
            yield self.more(first)
        yield _chunk(_end(0, answered, self._envelope), self._envelope)
        for place, text in enumerate(others, start=1):
            for choice in _text_in_pieces(place, text, answered, self._envelope):
                yield _chunk(choice, self._envelope)
        yield from _closing(answered, self._envelope)


def error_event(error: bytes) -> bytes:
    """The last event of a stream that cannot go on: OpenAI's clients raise what it says.

    Args:
        error: JSON of `{"error": ...}`.
    """
    return b"data: " + error + b"\n\n"


def usage(answered: ChatResponse) -> dict[str, int]:
    """Tokens of the prompts that the judge read, and of all that it wrote."""
    prompt, completion = answered.prompt_tokens, answered.completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _choice(place: int, answered: ChatResponse, envelope: Envelope, content: dict[str, Any]) -> dict[str, Any]:
    return {"index": place, **content, "finish_reason": _finish(place, answered, envelope)}


def _finish(place: int, answered: ChatResponse, envelope: Envelope) -> str:
    if answered.reply.tool is None:
        return answered.finish_reasons[place] if answered.finish_reasons else "stop"
    return "function_call" if envelope.function else "tool_calls"


def _messages(answered: ChatResponse, envelope: Envelope) -> list[dict[str, Any]]:
    reply = answered.reply
    if reply.tool is None:
        return [
            {"role": "assistant", "content": text, "refusal": None} | _thinking(place, answered)
            for place, text in enumerate(reply.texts)
        ]
    call = {"name": reply.tool, "arguments": reply.arguments}
    made = {"function_call": call} if envelope.function else {"tool_calls": [_tool_call(call, envelope)]}
    return [{"role": "assistant", "content": None, "refusal": None, **made} | _thinking(0, answered)]


def _thinking(place: int, answered: ChatResponse) -> dict[str, str]:
    """Beside the content, as vLLM's server has it; never within, where a client's parser would read it."""
    thinking = answered.thinking[place] if place < len(answered.thinking) else ""
    return {"reasoning_content": thinking} if thinking else {}


def _thinking_in_pieces(place: int, answered: ChatResponse, envelope: Envelope) -> Iterator[dict[str, Any]]:
    """One piece; a plain completion has no field for it."""
    if (thinking := _thinking(place, answered)) and not envelope.plain:
        yield _piece(place, {"delta": thinking, "logprobs": None})


def _tool_call(call: Mapping[str, str], envelope: Envelope) -> dict[str, Any]:
    return {"id": f"call_{envelope.id}", "type": "function", "function": call}


def _choices_in_pieces(answered: ChatResponse, envelope: Envelope) -> Iterator[dict[str, Any]]:
    """Every choice of every chunk: how a reply opens, its pieces, its end."""
    if answered.reply.tool is not None:
        for delta in _call_in_pieces(answered, envelope):
            yield _piece(0, {"delta": delta, "logprobs": None})
        yield from _thinking_in_pieces(0, answered, envelope)
        yield _end(0, answered, envelope)
    for place, text in enumerate(answered.reply.texts):
        yield from _text_in_pieces(place, text, answered, envelope)


def _text_in_pieces(place: int, text: str, answered: ChatResponse, envelope: Envelope) -> Iterator[dict[str, Any]]:
    yield from _opening(place, envelope)
    yield from _thinking_in_pieces(place, answered, envelope)
    offset = 0
    for piece, tokens in _pieces(text, _logprobs(answered, place)):
        yield _more(place, piece, tokens, envelope, offset)
        offset += len(piece)
    yield _end(place, answered, envelope)


def _opening(place: int, envelope: Envelope) -> Iterator[dict[str, Any]]:
    if not envelope.plain:
        yield _piece(place, {"delta": {"role": "assistant", "content": "", "refusal": None}, "logprobs": None})


def _more(place: int, piece: str, tokens: Sequence[TokenLogprobs], envelope: Envelope, offset: int) -> dict[str, Any]:
    if envelope.plain:
        return _piece(place, {"text": piece, "logprobs": _plain_logprobs(tokens, offset)})
    return _piece(place, {"delta": {"content": piece}, "logprobs": _chat_logprobs(tokens)})


def _end(place: int, answered: ChatResponse, envelope: Envelope) -> dict[str, Any]:
    said: dict[str, Any] = {"text": ""} if envelope.plain else {"delta": {}}
    return _piece(place, {**said, "logprobs": None}, _finish(place, answered, envelope))


def _piece(place: int, content: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": place, **content, "finish_reason": finish}


def _call_in_pieces(answered: ChatResponse, envelope: Envelope) -> Iterator[dict[str, Any]]:
    name, arguments = answered.reply.tool or "", answered.reply.arguments
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


def _logprobs(answered: ChatResponse, place: int) -> Sequence[TokenLogprobs]:
    """Those of one text; a dialect knows them of the first."""
    return answered.reply.logprobs if place == 0 else ()


def _chat_logprobs(tokens: Sequence[TokenLogprobs]) -> dict[str, Any] | None:
    if not tokens:
        return None
    return {
        "content": [
            {
                **_token(one.token, one.logprob),
                "top_logprobs": [_token(text, logprob) for text, logprob in one.candidates],
            }
            for one in tokens
        ],
        "refusal": None,
    }


def _token(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": max(logprob, _LEAST_LOGPROB), "bytes": list(text.encode())}


def _plain_logprobs(tokens: Sequence[TokenLogprobs], offset: int = 0) -> dict[str, Any] | None:
    """In the form of plain completions; `text_offset` counts characters of the reply from its beginning."""
    if not tokens:
        return None
    offsets = []
    for one in tokens:
        offsets.append(offset)
        offset += len(one.token)
    return {
        "tokens": [one.token for one in tokens],
        "token_logprobs": [max(one.logprob, _LEAST_LOGPROB) for one in tokens],
        "top_logprobs": [{text: max(logprob, _LEAST_LOGPROB) for text, logprob in one.candidates} for one in tokens],
        "text_offset": offsets,
    }


def _chunk(choice: dict[str, Any], envelope: Envelope) -> bytes:
    more = {"usage": None} if envelope.usage else {}
    return _event(envelope.around(_chunk_kind(envelope), [choice]) | more)


def _closing(answered: ChatResponse, envelope: Envelope) -> Iterator[bytes]:
    """What comes behind all texts."""
    if envelope.usage:
        yield _event(envelope.around(_chunk_kind(envelope), []) | {"usage": usage(answered)})
    yield _DONE


def _chunk_kind(envelope: Envelope) -> str:
    return "text_completion" if envelope.plain else "chat.completion.chunk"


def _event(row: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(row).encode() + b"\n\n"
