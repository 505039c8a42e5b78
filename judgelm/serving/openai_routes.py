"""The routes of OpenAI's API: completions of chats and of plain prompts, and the list of models."""

import asyncio
import hashlib
import json
import re
import secrets
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import accumulate
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.datastructures import State
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from judgelm.dialects.contract import ChatRequest, TokenLogprobs
from judgelm.dialects.request_body import ChatBody, CompletionBody, read_chat, read_completion
from judgelm.errors import JudgelmError
from judgelm.serving.handler import ChatResponse, JudgeHandler, UnjudgedError, chat_notes
from judgelm.serving.http_errors import (
    HttpError,
    from_judgelm_error,
    json_response,
    read_json,
    timeout_error,
    typed_field,
    wait_for_answer,
)
from judgelm.serving.judges import ServedJudges
from judgelm.serving.schemas import replies, request_body
from judgelm.serving.settings import ServerSettings

CHAT = "/v1/chat/completions"
PLAIN = "/v1/completions"
ENGINE_CHAT = "/v1/engines/{model:path}/chat/completions"
AZURE_CHAT = "/openai/v1/chat/completions"
DEPLOYMENT_CHAT = "/openai/deployments/{model:path}/chat/completions"
"""Azure's clients, given the server's root; behind `/v1` too, for clients that are given the address of the API."""

_LONGEST_NOTE = 2000
_EVENTS = "text/event-stream"

Updates = AsyncGenerator[str | ChatResponse, None]
"""As from `JudgeHandler.stream`."""


def openai_routes(completions: "CompletionHandler", judges: ServedJudges) -> APIRouter:
    """The routes, each request answered by the judge that it names."""
    router = APIRouter()

    async def chat(request: Request) -> Response:
        return await completions.complete(request, read_chat, plain=False)

    async def named_chat(request: Request, model: str) -> Response:
        return await completions.complete(request, read_chat, plain=False, model=model)

    async def plain(request: Request) -> Response:
        return await completions.complete(request, read_completion, plain=True)

    async def models(request: Request) -> Response:
        owner = request.state.owner
        rows = [completions.model(name, owner) for name in judges.listed(owner)]
        return json_response({"object": "list", "data": rows})

    async def one_model(request: Request, model: str) -> Response:
        return json_response(completions.model(model, request.state.owner))

    judging = "Judge what a chat asks to be judged"
    named = "As /v1/chat/completions, the model in the path"
    post: tuple[tuple[str, Callable[..., Any], str, type[BaseModel], str], ...] = (
        (CHAT, chat, judging, ChatBody, "ChatCompletion"),
        (ENGINE_CHAT, named_chat, named, ChatBody, "ChatCompletion"),
        (AZURE_CHAT, chat, judging, ChatBody, "ChatCompletion"),
        (DEPLOYMENT_CHAT, named_chat, named, ChatBody, "ChatCompletion"),
        (f"/v1{DEPLOYMENT_CHAT}", named_chat, named, ChatBody, "ChatCompletion"),
        (PLAIN, plain, "Judge what a plain prompt asks to be judged", CompletionBody, "TextCompletion"),
    )
    for path, endpoint, summary, body, reply in post:
        responses = replies(reply, events=True)
        router.post(path, summary=summary, responses=responses, openapi_extra=request_body(body))(endpoint)
    router.get("/v1/models", summary="List the models", responses=replies("Models"))(models)
    router.get("/v1/models/{model:path}", summary="One model", responses=replies("Model"))(one_model)
    return router


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


class StreamEncoder:
    """Encodes a reply as events, also while its first text is still being written.

    Pieces are words, or tokens where their log-probabilities are known.

    Args:
        envelope: fields around the reply.
    """

    def __init__(self, envelope: Envelope) -> None:
        self._envelope = envelope
        self._kind = "text_completion" if envelope.plain else "chat.completion.chunk"
        self._sent = ""

    def opening(self, index: int = 0) -> Iterator[bytes]:
        """Events before a text."""
        if not self._envelope.plain:
            yield self._delta(index, {"role": "assistant", "content": "", "refusal": None})

    def more(self, text: str) -> bytes:
        """The event with the growth of the first text, which is now `text`."""
        assert text.startswith(self._sent), "a sent text never changes"
        piece, offset = text[len(self._sent) :], len(self._sent)
        self._sent = text
        return self._piece(0, piece, (), offset)

    def ending(self, response: ChatResponse) -> Iterator[bytes]:
        """The remaining events, `[DONE]` at the end."""
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
        """A text from where it was sent to, and its end."""
        offset = 0 if index else len(self._sent)
        tokens = _tokens(response, index)
        yield from self._thinking(index, response)
        pieces: list[tuple[str, tuple[TokenLogprobs, ...]]] = [(token.token, (token,)) for token in tokens]
        for piece, logprobs in pieces or [(word, ()) for word in _PIECE.findall(text[offset:])]:
            yield self._piece(index, piece, logprobs, offset)
            offset += len(piece)
        yield self._end(index, response)

    def _end(self, index: int, response: ChatResponse) -> bytes:
        empty: dict[str, Any] = {"text": ""} if self._envelope.plain else {"delta": {}}
        return self._chunk(_choice(index, {**empty, "logprobs": None}, _finish(index, response, self._envelope)))

    def _thinking(self, index: int, response: ChatResponse) -> Iterator[bytes]:
        """Thinking as one piece; a plain completion has no field for it."""
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
    """A reply that is complete as events."""
    encoder = StreamEncoder(envelope)
    if response.reply.tool is None:
        yield from encoder.opening()
    yield from encoder.ending(response)


def completion_body(response: ChatResponse, envelope: Envelope) -> bytes:
    """The whole reply."""
    contents: list[dict[str, Any]]
    if envelope.plain:
        kind, contents = "text_completion", [{"text": text} for text in response.reply.texts]
    else:
        kind, contents = "chat.completion", [{"message": message} for message in _messages(response, envelope)]
    choices = [
        _choice(
            index,
            {**content, "logprobs": _logprobs(_tokens(response, index), envelope)},
            _finish(index, response, envelope),
        )
        for index, content in enumerate(contents)
    ]
    return json.dumps(envelope.around(kind, choices) | {"usage": usage(response)}).encode()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """A request of another API and its answer.

    Attributes:
        model: name of the judge, as used by the client.
        headers: of the HTTP response.
    """

    response: ChatResponse
    body: Mapping[str, Any]
    model: str
    headers: dict[str, str]


class CompletionHandler:
    """Completes requests of OpenAI's clients."""

    def __init__(self, judges: ServedJudges, settings: ServerSettings) -> None:
        self._judges = judges
        self._settings = settings
        self._fingerprint = cache(fingerprint)
        self._began = int(time.time())

    async def complete(
        self,
        request: Request,
        read: Callable[[Mapping[str, Any]], ChatRequest],
        *,
        plain: bool,
        model: str | None = None,
    ) -> Response:
        """The reply to a request, whole or streamed.

        A stream begins with the verdict, or with the first words of an ordinary chat, so that an earlier failure has
        its own HTTP status.
        """
        body = await read_json(request, self._settings)
        streaming = bool_field(body, "stream")
        name = model_name(body, model)
        request.state.judge, handler = self._judges.find(name, request.state.owner)
        envelope = Envelope(
            model=self._judges.listed(request.state.owner)[0] if name is None else name,
            fingerprint=self._fingerprint(handler),
            plain=plain,
            function=bool(body.get("functions")) and not body.get("tools"),
            usage=bool_field(typed_field(body, "stream_options", dict, "an object") or {}, "include_usage"),
        )
        if plain and bool_field(body, "echo"):
            raise HttpError(400, "unsupported_value", '"echo": not supported; leave it out', param="echo")
        chat_request = read(body)
        if streaming:
            return await self._stream(request, handler, chat_request, envelope)
        response = await wait_for_answer(handler.respond(chat_request), request, self._settings)
        return Response(completion_body(response, envelope), 200, self._count(request, response), "application/json")

    async def answer(self, request: Request, read: Callable[[Mapping[str, Any]], ChatRequest]) -> "Answered":
        """The answer to a request of another API, whole, for the API to put into its own form."""
        body = await read_json(request, self._settings)
        bool_field(body, "stream")
        name = model_name(body, None)
        request.state.judge, handler = self._judges.find(name, request.state.owner)
        response = await wait_for_answer(handler.respond(read(body)), request, self._settings)
        model = self._judges.listed(request.state.owner)[0] if name is None else name
        return Answered(response=response, body=body, model=model, headers=self._count(request, response))

    async def _stream(
        self, request: Request, handler: JudgeHandler, chat_request: ChatRequest, envelope: Envelope
    ) -> Response:
        """Stream an ordinary chat while it is written; send a verdict, or a text written at once, in one response."""
        until = time.monotonic() + self._settings.request_timeout_s
        updates = handler.stream(chat_request)
        first = await wait_for_answer(anext(updates), request, self._settings)
        if isinstance(first, ChatResponse):
            return Response(b"".join(stream_events(first, envelope)), 200, self._count(request, first), _EVENTS)
        request.state.dialect = "none"
        events = self._events(first, updates, StreamEncoder(envelope), until, request.state)
        return _EventStream(events, updates, note_headers(None, chat_notes(chat_request)))

    async def _events(
        self, first: str, updates: Updates, encoder: StreamEncoder, until: float, state: State
    ) -> AsyncIterator[bytes]:
        """Events of a reply that grows; an error ends it, without `[DONE]`."""
        try:
            for event in encoder.opening():
                yield event
            update: str | ChatResponse = first
            while not isinstance(update, ChatResponse):
                yield encoder.more(update)
                update = await asyncio.wait_for(anext(updates), until - time.monotonic())
        except (JudgelmError, TimeoutError) as error:
            yield error_event(self._stream_error(error, state).body())
            return
        state.tokens = (update.prompt_tokens, update.completion_tokens)
        for event in encoder.ending(update):
            yield event

    def _stream_error(self, error: JudgelmError | TimeoutError, state: State) -> HttpError:
        """Note the error that ended a reply that had begun; return it for the client."""
        if isinstance(error, UnjudgedError):
            state.failures = (error.failure.code,)
        if isinstance(error, JudgelmError):
            http_error = from_judgelm_error(error, self._judges.worker.retry_after_s())
        else:
            http_error = timeout_error(self._settings)
        state.error = http_error.code
        return http_error

    def _count(self, request: Request, response: ChatResponse) -> dict[str, str]:
        """Note a response for the metrics; return its headers."""
        request.state.tokens = (response.prompt_tokens, response.completion_tokens)
        request.state.dialect = response.dialect or "none"
        return note_headers(response.dialect, response.notes)

    def model(self, name: str, owner: str) -> dict[str, Any]:
        """A model in OpenAI's format, its card beside it."""
        card = self._judges.card(name, owner)
        return {"id": name, "object": "model", "created": self._began, "owned_by": "judgelm", "judge": card}


class _EventStream(StreamingResponse):
    """Events of a growing reply, whose flow is dropped when the connection ends."""

    def __init__(self, events: AsyncIterator[bytes], updates: Updates, headers: Mapping[str, str]) -> None:
        super().__init__(events, 200, headers, _EVENTS)
        self._updates = updates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._updates.aclose()


def model_name(body: Mapping[str, Any], in_path: str | None) -> str | None:
    """The model named by a client, in the path or in the body."""
    return in_path if in_path is not None else typed_field(body, "model", str, "a text")


def fingerprint(handler: JudgeHandler) -> str:
    """Equal for the same judge with the same template."""
    identity = [handler.judge.engine.describe(), handler.judge.format.template]
    return "fp_" + hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()[:12]


def note_headers(dialect: str | None, notes: Sequence[str]) -> dict[str, str]:
    """Headers with the dialect of the prompt and the notes on the reply."""
    headers = {"X-Judgelm-Dialect": dialect or "none"}
    if notes:
        headers["X-Judgelm-Note"] = header_text("; ".join(notes))
    return headers


def header_text(text: str) -> str:
    """A text in printable ASCII and one line."""
    shown = " ".join(text.split()).encode("ascii", "backslashreplace").decode()
    return "".join(letter if letter.isprintable() else "?" for letter in shown)[:_LONGEST_NOTE]


def bool_field(body: Mapping[str, Any], name: str) -> bool:
    """A boolean field; null and a missing field are false."""
    return bool(typed_field(body, name, bool, "true or false"))


_PIECE = re.compile(r"\S+\s*|\s+")
_LEAST_LOGPROB = -9999.0  # what OpenAI sends for a probability of zero; JSON has no infinity
_DONE = b"data: [DONE]\n\n"


def error_event(error: bytes) -> bytes:
    """The last event of a stream that failed, from the JSON of `{"error": ...}`; OpenAI's clients raise it."""
    return b"data: " + error + b"\n\n"


def usage(response: ChatResponse) -> dict[str, int]:
    """Token counts of the prompts and of the texts that the judge wrote."""
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
    """Thinking beside the content, as in vLLM's server; never within, where a client's parser would read it."""
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
    """Log-probabilities of a text; dialects give them for the first alone."""
    return response.reply.logprobs if index == 0 else ()


def _logprobs(tokens: Sequence[TokenLogprobs], envelope: Envelope, offset: int = 0) -> dict[str, Any] | None:
    """Log-probabilities in the form of chats or of plain prompts, whose offsets count characters of the reply."""
    if not tokens:
        return None
    if not envelope.plain:
        return {"content": chat_logprobs(tokens), "refusal": None}
    offsets = [offset + start for start in accumulate((len(token.token) for token in tokens[:-1]), initial=0)]
    return {
        "tokens": [token.token for token in tokens],
        "token_logprobs": [_least(token.logprob) for token in tokens],
        "top_logprobs": [{text: _least(logprob) for text, logprob in token.candidates} for token in tokens],
        "text_offset": offsets,
    }


def chat_logprobs(tokens: Sequence[TokenLogprobs]) -> list[dict[str, Any]]:
    """Tokens of a chat with their log-probabilities and those of other candidates."""
    return [
        _token(token.token, token.logprob) | {"top_logprobs": [_token(*candidate) for candidate in token.candidates]}
        for token in tokens
    ]


def _token(text: str, logprob: float) -> dict[str, Any]:
    return {"token": text, "logprob": _least(logprob), "bytes": list(text.encode())}


def _least(logprob: float) -> float:
    return max(logprob, _LEAST_LOGPROB)


def _event(row: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(row).encode() + b"\n\n"
