"""The routes of OpenAI's API: completions of chats and of plain prompts, and the models there are."""

import asyncio
import hashlib
import json
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from typing import Any

from fastapi import APIRouter, Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from judgelm.dialects.contract import ChatRequest
from judgelm.dialects.request_body import read_chat, read_completion
from judgelm.errors import JudgelmError
from judgelm.serving import openapi as documenting
from judgelm.serving.chat import chat_notes
from judgelm.serving.handler import JudgeHandler
from judgelm.serving.http_errors import HttpError, from_judgelm_error
from judgelm.serving.limits import read_json, timeout_error, wait_for_answer
from judgelm.serving.metrics import Metrics
from judgelm.serving.openai_responses import Envelope, StreamEncoder, completion_body, error_event, stream_events
from judgelm.serving.responses import ChatResponse, UnjudgedError
from judgelm.serving.settings import ServerSettings

CHAT = "/v1/chat/completions"
PLAIN = "/v1/completions"
ENGINE_CHAT = "/v1/engines/{model:path}/chat/completions"
DEPLOYMENT_CHAT = "/v1/openai/deployments/{model:path}/chat/completions"

_LONGEST_NOTE = 2000
_EVENTS = "text/event-stream"

Written = AsyncGenerator[str | ChatResponse, None]
"""As `JudgeHandler.write` gives it."""


def openai_routes(desk: JudgeHandler, settings: ServerSettings, metrics: Metrics) -> APIRouter:
    """The routes, which answer from this desk."""
    router = APIRouter()
    counter = CompletionHandler(desk, settings, metrics)

    async def chat(request: Request) -> Response:
        return await counter.complete(request, read_chat, plain=False)

    async def plain(request: Request) -> Response:
        return await counter.complete(request, read_completion, plain=True)

    async def models() -> Response:
        return _json({"object": "list", "data": [counter.model(name) for name in settings.listed]})

    async def model(request: Request) -> Response:
        return _json(counter.model(counter.called({}, request.path_params["model"])))

    post: list[tuple[str, Callable[[Request], Any], dict[str, Any]]] = [
        (CHAT, chat, documenting.CHAT),
        (ENGINE_CHAT, chat, documenting.NAMED_CHAT),
        (DEPLOYMENT_CHAT, chat, documenting.NAMED_CHAT),
        (PLAIN, plain, documenting.PLAIN),
    ]
    for path, endpoint, words in post:
        router.add_api_route(path, endpoint, methods=["POST"], openapi_extra=words)
    router.add_api_route("/v1/models", models, methods=["GET"], openapi_extra=documenting.MODELS)
    router.add_api_route("/v1/models/{model:path}", model, methods=["GET"], openapi_extra=documenting.MODEL)
    return router


class CompletionHandler:
    """Where OpenAI's clients are served."""

    def __init__(self, desk: JudgeHandler, settings: ServerSettings, metrics: Metrics) -> None:
        self._desk = desk
        self._settings = settings
        self._metrics = metrics
        self._fingerprint = fingerprint(desk)
        self._began = int(time.time())

    async def complete(
        self, request: Request, read: Callable[[Mapping[str, Any]], ChatRequest], *, plain: bool
    ) -> Response:
        """The reply to a body, whole or streamed.

        A stream begins when the verdict is there, or of an ordinary chat the first words, so that a failure before
        that has its own status.
        """
        body = await read_json(request, self._settings)
        streaming = bool_field(body, "stream")
        envelope = Envelope(
            model=self.called(body, request.path_params.get("model")),
            fingerprint=self._fingerprint,
            plain=plain,
            function=bool(body.get("functions")) and not body.get("tools"),
            usage=bool_field(_object(body, "stream_options"), "include_usage"),
        )
        if plain and bool_field(body, "echo"):
            raise HttpError(400, "unsupported_value", '"echo": the prompt is not repeated here', param="echo")
        asked = read(body)
        if streaming:
            return await self._stream(request, asked, envelope)
        answered = await wait_for_answer(self._desk.answer(asked), request, self._settings)
        return Response(completion_body(answered, envelope), 200, self._note(request, answered), "application/json")

    async def _stream(self, request: Request, asked: ChatRequest, envelope: Envelope) -> Response:
        """An ordinary chat as it is written; a verdict, or what is written at once, in one go."""
        until = time.monotonic() + self._settings.request_timeout_s
        written = self._desk.write(asked)
        first = await wait_for_answer(anext(written), request, self._settings)
        if isinstance(first, ChatResponse):
            return Response(b"".join(stream_events(first, envelope)), 200, self._note(request, first), _EVENTS)
        request.scope["state"]["dialect"] = "none"
        events = self._events(first, written, StreamEncoder(envelope), until)
        return _EventStream(events, written, note_headers(None, chat_notes(asked)))

    async def _events(self, first: str, written: Written, growing: StreamEncoder, until: float) -> AsyncIterator[bytes]:
        """A reply that grows; an error ends it, without `[DONE]`."""
        try:
            for event in growing.opening():
                yield event
            found: str | ChatResponse = first
            while not isinstance(found, ChatResponse):
                yield growing.more(found)
                found = await asyncio.wait_for(anext(written), until - time.monotonic())
        except (JudgelmError, TimeoutError) as error:
            yield error_event(self._broken_off(error).body())
            return
        self._metrics.tokens(found.prompt_tokens, found.completion_tokens)
        for event in growing.ending(found):
            yield event

    def _broken_off(self, error: JudgelmError | TimeoutError) -> HttpError:
        """Count what ended a reply that had begun; what the client is told."""
        if isinstance(error, UnjudgedError):
            self._metrics.failure(error.failure.code)
        if isinstance(error, JudgelmError):
            told = from_judgelm_error(error, self._desk.service.retry_after_s())
        else:
            told = timeout_error(self._settings)
        self._metrics.error(told.code)
        return told

    def _note(self, request: Request, answered: ChatResponse) -> dict[str, str]:
        """Count an answer; what its headers say."""
        self._metrics.tokens(answered.prompt_tokens, answered.completion_tokens)
        request.scope["state"]["dialect"] = answered.dialect or "none"
        return note_headers(answered.dialect, answered.notes)

    def called(self, body: Mapping[str, Any], in_path: str | None) -> str:
        """The model that a client names, in the path or in the body.

        Raises:
            HttpError: it is no name (400), or none of this server's (404).
        """
        name = in_path if in_path is not None else body.get("model")
        if name is None:
            return self._settings.listed[0]
        if not isinstance(name, str):
            raise HttpError(400, "invalid_value", '"model": expected a text', param="model")
        if not self._settings.takes(name):
            there_are = ", ".join(self._settings.listed)
            message = f"the model {name[:100]!r} does not exist here; there are: {there_are}"
            raise HttpError(404, "model_not_found", message, param="model")
        return name

    def model(self, name: str) -> dict[str, Any]:
        """A model as OpenAI lists it."""
        return {"id": name, "object": "model", "created": self._began, "owned_by": "judgelm"}


class _EventStream(StreamingResponse):
    """Events of what is being written, which is given up when the connection ends, however early."""

    def __init__(self, events: AsyncIterator[bytes], written: Written, headers: Mapping[str, str]) -> None:
        super().__init__(events, 200, headers, _EVENTS)
        self._written = written

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._written.aclose()


def fingerprint(desk: JudgeHandler) -> str:
    """Equal where the same judge with the same template answers."""
    rests_on = [desk.loaded.engine.describe(), desk.loaded.format.template]
    return "fp_" + hashlib.sha256(json.dumps(rests_on, sort_keys=True, default=str).encode()).hexdigest()[:12]


def note_headers(dialect: str | None, notes: Sequence[str]) -> dict[str, str]:
    """Which dialect the prompt is of, and what must be known of the reply."""
    headers = {"X-Judgelm-Dialect": dialect or "none"}
    if notes:
        headers["X-Judgelm-Note"] = header_text("; ".join(notes))
    return headers


def header_text(text: str) -> str:
    """A text in printable ASCII and one line."""
    shown = " ".join(text.split()).encode("ascii", "backslashreplace").decode()
    return "".join(letter if letter.isprintable() else "?" for letter in shown)[:_LONGEST_NOTE]


def bool_field(body: Mapping[str, Any], name: str) -> bool:
    """A field that is true or false; null and nothing are false.

    Raises:
        HttpError: it is something else (400).
    """
    found = body.get(name)
    if found is None or isinstance(found, bool):
        return bool(found)
    raise HttpError(400, "invalid_value", f'"{name}": expected true or false', param=name)


def _object(body: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = body.get(name)
    if found is None or isinstance(found, Mapping):
        return found or {}
    raise HttpError(400, "invalid_value", f'"{name}": expected an object', param=name)


def _json(row: Mapping[str, Any]) -> Response:
    return Response(json.dumps(row).encode(), media_type="application/json")
