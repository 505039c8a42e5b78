"""A client's reply as the JSON that OpenAI's servers send: whole, or in pieces as server-sent events."""

import json
import re
import secrets
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from judgelm.dialects.contract import TokenLogprobs
from judgelm.serving.desk import Answered

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


def whole(answered: Answered, envelope: Envelope) -> bytes:
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


def streamed(answered: Answered, envelope: Envelope) -> Iterator[bytes]:
    """The reply as events, the last of them `[DONE]`; pieces are words, or tokens where their logprobs are known."""
    kind = "text_completion" if envelope.plain else "chat.completion.chunk"
    more = {"usage": None} if envelope.usage else {}
    for choice in _choices_in_pieces(answered, envelope):
        yield _event(envelope.around(kind, [choice]) | more)
    if envelope.usage:
        yield _event(envelope.around(kind, []) | {"usage": usage(answered)})
    yield _DONE


def usage(answered: Answered) -> dict[str, int]:
    """Tokens of the prompts that the judge read, and of all that it wrote."""
    prompt, completion = answered.prompt_tokens, answered.completion_tokens
    return {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": prompt + completion}


def _choice(place: int, answered: Answered, envelope: Envelope, content: dict[str, Any]) -> dict[str, Any]:
    return {"index": place, **content, "finish_reason": _finish(answered, envelope)}


def _finish(answered: Answered, envelope: Envelope) -> str:
    if answered.reply.tool is None:
        return answered.finish_reason
    return "function_call" if envelope.function else "tool_calls"


def _messages(answered: Answered, envelope: Envelope) -> list[dict[str, Any]]:
    reply = answered.reply
    if reply.tool is None:
        return [{"role": "assistant", "content": text, "refusal": None} for text in reply.texts]
    call = {"name": reply.tool, "arguments": reply.arguments}
    made = {"function_call": call} if envelope.function else {"tool_calls": [_tool_call(call, envelope)]}
    return [{"role": "assistant", "content": None, "refusal": None, **made}]


def _tool_call(call: Mapping[str, str], envelope: Envelope) -> dict[str, Any]:
    return {"id": f"call_{envelope.id}", "type": "function", "function": call}


def _choices_in_pieces(answered: Answered, envelope: Envelope) -> Iterator[dict[str, Any]]:
    """Every choice of every chunk: how a reply opens, its pieces, its end."""
    if envelope.plain:
        for place, text in enumerate(answered.reply.texts):
            offset = 0
            for piece, tokens in _pieces(text, _logprobs(answered, place)):
                yield _piece(place, {"text": piece, "logprobs": _plain_logprobs(tokens, offset)})
                offset += len(piece)
            yield _piece(place, {"text": "", "logprobs": None}, _finish(answered, envelope))
        return
    if answered.reply.tool is not None:
        for delta in _call_in_pieces(answered, envelope):
            yield _piece(0, {"delta": delta, "logprobs": None})
        yield _piece(0, {"delta": {}, "logprobs": None}, _finish(answered, envelope))
        return
    for place, text in enumerate(answered.reply.texts):
        yield _piece(place, {"delta": {"role": "assistant", "content": "", "refusal": None}, "logprobs": None})
        for piece, tokens in _pieces(text, _logprobs(answered, place)):
            yield _piece(place, {"delta": {"content": piece}, "logprobs": _chat_logprobs(tokens)})
        yield _piece(place, {"delta": {}, "logprobs": None}, _finish(answered, envelope))


def _piece(place: int, content: dict[str, Any], finish: str | None = None) -> dict[str, Any]:
    return {"index": place, **content, "finish_reason": finish}


def _call_in_pieces(answered: Answered, envelope: Envelope) -> Iterator[dict[str, Any]]:
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


def _logprobs(answered: Answered, place: int) -> Sequence[TokenLogprobs]:
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


def _event(row: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(row).encode() + b"\n\n"
