"""OpenAI API routes: chat completions, plain completions, and models."""

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from functools import cache
from typing import Any

from fastapi import APIRouter, Request
from pydantic import BaseModel
from starlette.datastructures import State
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from judgelm.dialects.contract import ChatRequest
from judgelm.dialects.request_body import ChatBody, CompletionBody, read_chat, read_completion
from judgelm.errors import JudgelmError
from judgelm.serving.chat import chat_notes
from judgelm.serving.chat_response import ChatResponse, UnjudgedError, abstained_header
from judgelm.serving.handler import JudgeHandler
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
from judgelm.serving.openai_format import Envelope, StreamEncoder, completion_body, stream_events
from judgelm.serving.schemas import replies, request_body
from judgelm.serving.settings import ServerSettings

CHAT = "/v1/chat/completions"
PLAIN = "/v1/completions"
ENGINE_CHAT = "/v1/engines/{model:path}/chat/completions"
AZURE_CHAT = "/openai/v1/chat/completions"
DEPLOYMENT_CHAT = "/openai/deployments/{model:path}/chat/completions"
"""For Azure clients. Clients that are configured with the `/v1` base URL call this route under `/v1`."""

_MAX_NOTE = 2000
_EVENTS = "text/event-stream"

Updates = AsyncGenerator[str | ChatResponse, None]

Reader = Callable[[Mapping[str, Any]], ChatRequest]
Writer = Callable[[ChatResponse, Mapping[str, Any], str], dict[str, Any]]
"""Builds the response body from a `ChatResponse`, the request body, and the judge's name."""


def openai_routes(completions: "CompletionHandler", judges: ServedJudges) -> APIRouter:
    """Return the routes. The request's model name selects the judge."""
    router = APIRouter()

    async def chat(request: Request) -> Response:
        return await completions.complete(request, read_chat, plain=False)

    async def named_chat(request: Request, model: str) -> Response:
        return await completions.complete(request, read_chat, plain=False, model=model)

    async def plain(request: Request) -> Response:
        return await completions.complete(request, read_completion, plain=True)

    async def models(request: Request) -> Response:
        rows = [completions.model(name) for name in judges.listed]
        return json_response({"object": "list", "data": rows})

    async def one_model(request: Request, model: str) -> Response:
        return json_response(completions.model(model))

    judging = "Judge a chat prompt"
    named = "Same as /v1/chat/completions, but with the model name in the path"
    post: tuple[tuple[str, Callable[..., Any], str, type[BaseModel], str], ...] = (
        (CHAT, chat, judging, ChatBody, "ChatCompletion"),
        (ENGINE_CHAT, named_chat, named, ChatBody, "ChatCompletion"),
        (AZURE_CHAT, chat, judging, ChatBody, "ChatCompletion"),
        (DEPLOYMENT_CHAT, named_chat, named, ChatBody, "ChatCompletion"),
        (f"/v1{DEPLOYMENT_CHAT}", named_chat, named, ChatBody, "ChatCompletion"),
        (PLAIN, plain, "Judge a plain prompt", CompletionBody, "TextCompletion"),
    )
    for path, endpoint, summary, body, reply in post:
        responses = replies(reply, events=True)
        router.post(path, summary=summary, responses=responses, openapi_extra=request_body(body))(endpoint)
    router.get("/v1/models", summary="List the models", responses=replies("Models"))(models)
    router.get("/v1/models/{model:path}", summary="Show a model", responses=replies("Model"))(one_model)
    return router


class CompletionHandler:
    """Handles requests from OpenAI clients."""

    def __init__(self, judges: ServedJudges, settings: ServerSettings) -> None:
        self._judges = judges
        self._settings = settings
        self._fingerprint = cache(fingerprint)
        self._began = int(time.time())

    async def complete(self, request: Request, read: Reader, *, plain: bool, model: str | None = None) -> Response:
        """Respond to a request with a complete body or a stream.

        A stream starts only once the first text is available, so that earlier failures can return an HTTP error.
        """
        body, handler, name = await self._read(request, model)
        streaming = bool_field(body, "stream")
        envelope = Envelope(
            model=name,
            fingerprint=self._fingerprint(handler),
            plain=plain,
            function=bool(body.get("functions")) and not body.get("tools"),
            usage=bool_field(typed_field(body, "stream_options", dict, "an object") or {}, "include_usage"),
        )
        if plain and bool_field(body, "echo"):
            raise HttpError(400, "unsupported_value", '"echo": not supported; omit it', param="echo")
        chat_request = read(body)
        if streaming:
            return await self._stream(request, handler, chat_request, envelope)
        response = await wait_for_answer(handler.respond(chat_request), request, self._settings)
        return Response(completion_body(response, envelope), 200, self._count(request, response), "application/json")

    async def answer(self, request: Request, read: Reader, write: Writer) -> Response:
        """Respond to a Responses API or Messages API request. Streaming is not supported."""
        body, handler, name = await self._read(request, None)
        bool_field(body, "stream")
        response = await wait_for_answer(handler.respond(read(body)), request, self._settings)
        content = json.dumps(write(response, body, name)).encode()
        return Response(content, 200, self._count(request, response), "application/json")

    async def _read(self, request: Request, model: str | None) -> tuple[dict[str, Any], JudgeHandler, str]:
        body = await read_json(request, self._settings)
        name = model_name(body, model)
        request.state.judge, handler = self._judges.find(name)
        return body, handler, self._judges.listed[0] if name is None else name

    async def _stream(
        self, request: Request, handler: JudgeHandler, chat_request: ChatRequest, envelope: Envelope
    ) -> Response:

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
        """After an error, end the stream without `[DONE]`."""
        try:
            for event in encoder.opening():
                yield event
            update: str | ChatResponse = first
            while not isinstance(update, ChatResponse):
                yield encoder.more(update)
                update = await asyncio.wait_for(anext(updates), until - time.monotonic())
        except (JudgelmError, TimeoutError) as error:
            yield b"data: " + self._stream_error(error, state).body() + b"\n\n"
            return
        state.tokens = (update.prompt_tokens, update.completion_tokens)
        for event in encoder.ending(update):
            yield event

    def _stream_error(self, error: JudgelmError | TimeoutError, state: State) -> HttpError:
        if isinstance(error, UnjudgedError):
            state.failures = (error.failure.code,)
        if isinstance(error, JudgelmError):
            http_error = from_judgelm_error(error, self._judges.base.worker.retry_after_s())
        else:
            http_error = timeout_error(self._settings)
        state.error = http_error.code
        return http_error

    def _count(self, request: Request, response: ChatResponse) -> dict[str, str]:
        request.state.tokens = (response.prompt_tokens, response.completion_tokens)
        request.state.dialect = response.dialect or "none"
        return note_headers(response.dialect, response.notes, response.abstained)

    def model(self, name: str) -> dict[str, Any]:
        """Return a model in OpenAI's format, including the judge's card."""
        card = self._judges.card(name)
        return {"id": name, "object": "model", "created": self._began, "owned_by": "judgelm", "judge": card}


class _EventStream(StreamingResponse):
    def __init__(self, events: AsyncIterator[bytes], updates: Updates, headers: Mapping[str, str]) -> None:
        super().__init__(events, 200, headers, _EVENTS)
        self._updates = updates

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._updates.aclose()


def model_name(body: Mapping[str, Any], in_path: str | None) -> str | None:
    """Return the model name from the path or the body."""
    return in_path if in_path is not None else typed_field(body, "model", str, "a text")


def fingerprint(handler: JudgeHandler) -> str:
    """Return the system fingerprint, a hash of the engine and the template."""
    identity = [handler.judge.engine.describe(), handler.judge.format.template]
    return "fp_" + hashlib.sha256(json.dumps(identity, sort_keys=True, default=str).encode()).hexdigest()[:12]


def note_headers(dialect: str | None, notes: Sequence[str], abstained: int = 0) -> dict[str, str]:
    """Return response headers with the dialect, any notes, and the number of abstentions."""
    headers = {"X-Judgelm-Dialect": dialect or "none"} | abstained_header(abstained)
    if notes:
        headers["X-Judgelm-Note"] = header_text("; ".join(notes))
    return headers


def header_text(text: str) -> str:
    """Convert a string to a single line of printable ASCII."""
    shown = " ".join(text.split()).encode("ascii", "backslashreplace").decode()
    return "".join(letter if letter.isprintable() else "?" for letter in shown)[:_MAX_NOTE]


def bool_field(body: Mapping[str, Any], name: str) -> bool:
    """Return a boolean field, or False if it is missing or null."""
    return bool(typed_field(body, name, bool, "true or false"))
