"""The routes of OpenAI's API: completions of chats and of plain prompts, and the list of models."""

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from functools import cache
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from judgelm.dialects.contract import ChatRequest
from judgelm.dialects.request_body import read_chat, read_completion
from judgelm.errors import JudgelmError
from judgelm.serving import openapi
from judgelm.serving.chat import chat_notes
from judgelm.serving.handler import JudgeHandler
from judgelm.serving.http_errors import HttpError, from_judgelm_error
from judgelm.serving.judges import ServedJudges
from judgelm.serving.limits import read_json, timeout_error, wait_for_answer
from judgelm.serving.metrics import Metrics
from judgelm.serving.openai_encoder import Envelope, StreamEncoder, completion_body, error_event, stream_events
from judgelm.serving.responses import ChatResponse, UnjudgedError
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


def openai_routes(judges: ServedJudges, settings: ServerSettings, metrics: Metrics) -> APIRouter:
    """The routes, each request answered by the judge that it names."""
    router = APIRouter()
    completions = CompletionHandler(judges, settings, metrics)

    async def chat(request: Request) -> Response:
        return await completions.complete(request, read_chat, plain=False)

    async def plain(request: Request) -> Response:
        return await completions.complete(request, read_completion, plain=True)

    async def models() -> Response:
        return _json({"object": "list", "data": [completions.model(name) for name in judges.listed]})

    async def model(request: Request) -> Response:
        return _json(completions.model(request.path_params["model"]))

    post: list[tuple[str, Callable[[Request], Any], dict[str, Any]]] = [
        (CHAT, chat, openapi.CHAT),
        (ENGINE_CHAT, chat, openapi.NAMED_CHAT),
        (AZURE_CHAT, chat, openapi.CHAT),
        (DEPLOYMENT_CHAT, chat, openapi.NAMED_CHAT),
        (f"/v1{DEPLOYMENT_CHAT}", chat, openapi.NAMED_CHAT),
        (PLAIN, plain, openapi.PLAIN),
    ]
    for path, endpoint, words in post:
        router.add_api_route(path, endpoint, methods=["POST"], openapi_extra=words)
    router.add_api_route("/v1/models", models, methods=["GET"], openapi_extra=openapi.MODELS)
    router.add_api_route("/v1/models/{model:path}", model, methods=["GET"], openapi_extra=openapi.MODEL)
    return router


class CompletionHandler:
    """Completes requests of OpenAI's clients."""

    def __init__(self, judges: ServedJudges, settings: ServerSettings, metrics: Metrics) -> None:
        self._judges = judges
        self._settings = settings
        self._metrics = metrics
        self._fingerprint = cache(fingerprint)
        self._began = int(time.time())

    async def complete(
        self, request: Request, read: Callable[[Mapping[str, Any]], ChatRequest], *, plain: bool
    ) -> Response:
        """The reply to a request, whole or streamed.

        A stream begins with the verdict, or with the first words of an ordinary chat, so that an earlier failure has
        its own HTTP status.
        """
        body = await read_json(request, self._settings)
        streaming = bool_field(body, "stream")
        name = model_name(body, request.path_params.get("model"))
        request.scope["state"]["judge"], handler = self._judges.find(name)
        envelope = Envelope(
            model=self._judges.listed[0] if name is None else name,
            fingerprint=self._fingerprint(handler),
            plain=plain,
            function=bool(body.get("functions")) and not body.get("tools"),
            usage=bool_field(_object(body, "stream_options"), "include_usage"),
        )
        if plain and bool_field(body, "echo"):
            raise HttpError(400, "unsupported_value", '"echo": not supported; leave it out', param="echo")
        chat_request = read(body)
        if streaming:
            return await self._stream(request, handler, chat_request, envelope)
        response = await wait_for_answer(handler.respond(chat_request), request, self._settings)
        return Response(completion_body(response, envelope), 200, self._count(request, response), "application/json")

    async def _stream(
        self, request: Request, handler: JudgeHandler, chat_request: ChatRequest, envelope: Envelope
    ) -> Response:
        """Stream an ordinary chat while it is written; send a verdict, or a text written at once, in one response."""
        until = time.monotonic() + self._settings.request_timeout_s
        updates = handler.stream(chat_request)
        first = await wait_for_answer(anext(updates), request, self._settings)
        if isinstance(first, ChatResponse):
            return Response(b"".join(stream_events(first, envelope)), 200, self._count(request, first), _EVENTS)
        request.scope["state"]["dialect"] = "none"
        events = self._events(first, updates, StreamEncoder(envelope), until, request.scope["state"])
        return _EventStream(events, updates, note_headers(None, chat_notes(chat_request)))

    async def _events(
        self, first: str, updates: Updates, encoder: StreamEncoder, until: float, state: dict[str, Any]
    ) -> AsyncIterator[bytes]:
        """Events of a encoder reply; an error ends it, without `[DONE]`."""
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
        self._count_tokens(update, state)
        for event in encoder.ending(update):
            yield event

    def _stream_error(self, error: JudgelmError | TimeoutError, state: dict[str, Any]) -> HttpError:
        """Count the error that ended a reply that had begun; return it for the client."""
        if isinstance(error, UnjudgedError):
            self._metrics.failure(state["judge"], error.failure.code)
        if isinstance(error, JudgelmError):
            http_error = from_judgelm_error(error, self._judges.worker.retry_after_s())
        else:
            http_error = timeout_error(self._settings)
        state["error"] = http_error.code
        self._metrics.error(http_error.code)
        return http_error

    def _count(self, request: Request, response: ChatResponse) -> dict[str, str]:
        """Count a response; return its headers."""
        self._count_tokens(response, request.scope["state"])
        request.scope["state"]["dialect"] = response.dialect or "none"
        return note_headers(response.dialect, response.notes)

    def _count_tokens(self, response: ChatResponse, state: dict[str, Any]) -> None:
        state["tokens"] = (response.prompt_tokens, response.completion_tokens)
        self._metrics.tokens(state["judge"], *state["tokens"])

    def model(self, name: str) -> dict[str, Any]:
        """A model in OpenAI's format, its card beside it."""
        card = self._judges.card(name)
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
    """The model named by a client, in the path or in the body.

    Raises:
        HttpError: the value is not a text (400).
    """
    name = in_path if in_path is not None else body.get("model")
    if name is not None and not isinstance(name, str):
        raise HttpError(400, "invalid_value", '"model": expected a text', param="model")
    return name


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
    """A boolean field; null and a missing field are false.

    Raises:
        HttpError: it has another type (400).
    """
    value = body.get(name)
    if value is None or isinstance(value, bool):
        return bool(value)
    raise HttpError(400, "invalid_value", f'"{name}": expected true or false', param=name)


def _object(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = body.get(name)
    if value is None or isinstance(value, Mapping):
        return value or {}
    raise HttpError(400, "invalid_value", f'"{name}": expected an object', param=name)


def _json(row: Mapping[str, Any]) -> Response:
    return Response(json.dumps(row).encode(), media_type="application/json")
