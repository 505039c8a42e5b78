"""OpenAI's Batch API: files of requests that are answered one after another in the background.

A line of an input file is `{"custom_id": ..., "method": "POST", "url": "/v1/chat/completions", "body": {...}}`, and a
line of the results `{"id", "custom_id", "response": {"status_code", "request_id", "body"}, "error"}`. `judgelm-batch`
answers the same files without a server (`answer_rows`). A server keeps files and batches in memory until it ends.

Source: what openai 3.52 sends and reads (`files`, `batches`).
"""

import asyncio
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.datastructures import UploadFile
from starlette.responses import Response

from judgelm.dialects.contract import ChatRequest
from judgelm.dialects.request_body import read_chat, read_completion
from judgelm.errors import BusyError, InputError, JudgelmError
from judgelm.jsonl import parse_json
from judgelm.serving.handler import ChatResponse, JudgeHandler
from judgelm.serving.http_errors import HttpError, from_judgelm_error, json_response, read_json
from judgelm.serving.openai_routes import CHAT, PLAIN, Envelope, completion_body, model_name
from judgelm.serving.other_apis import MESSAGES, RESPONSES, chat_of_message, chat_of_response, message_row, response_row
from judgelm.serving.settings import ServerSettings

AT_ONCE = 64
"""Requests of a batch in the engine's queue at the same time."""
_RETRY_S = 0.2
_MOST_FILES = 1000
_MOST_BYTES = 200 << 20

Row = dict[str, Any]
Find = Callable[[str | None], tuple[str, JudgeHandler]]


def _completion_row(plain: bool, response: ChatResponse, body: Mapping[str, Any], model: str) -> Row:
    row: Row = json.loads(completion_body(response, Envelope(model=model, fingerprint="", plain=plain)))
    return row


ROUTES: dict[
    str,
    tuple[
        Callable[[Mapping[str, Any]], ChatRequest],
        Callable[[ChatResponse, Mapping[str, Any], str], Row],
    ],
] = {
    CHAT: (read_chat, partial(_completion_row, False)),
    PLAIN: (read_completion, partial(_completion_row, True)),
    RESPONSES: (lambda body: read_chat(chat_of_response(body)), response_row),
    MESSAGES: (lambda body: read_chat(chat_of_message(body)), message_row),
}
"""Route -> the reader of a request's body, and the writer of the reply."""


def read_requests(text: str) -> list[Row]:
    """The requests of a file.

    Raises:
        InputError: a line is none, or an id comes twice; the message names the line.
    """
    rows: list[Row] = []
    seen: set[str] = set()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = parse_json(line)
        except ValueError as error:
            raise InputError(f"line {number}: not JSON: {error}") from error
        if not isinstance(row, dict) or not isinstance(row.get("body"), dict):
            raise InputError(f'line {number}: expected an object with "custom_id", "url" and "body"')
        name = row.get("custom_id")
        if not isinstance(name, str) or name in seen:
            raise InputError(f'line {number}: "custom_id": expected a text of its own, got {str(name)[:60]!r}')
        if row.get("url") not in ROUTES:
            raise InputError(
                f'line {number}: "url": expected one of {", ".join(ROUTES)}, got {str(row.get("url"))[:60]!r}'
            )
        seen.add(name)
        rows.append(row)
    if not rows:
        raise InputError("no requests; the file is empty")
    return rows


async def answer_rows(
    rows: Sequence[Row], find: Find, done: Callable[[Row], None], *, stopped: Callable[[], bool] = lambda: False
) -> None:
    """Answer requests, `AT_ONCE` at a time.

    Args:
        rows: as from `read_requests`.
        find: the judge of a model's name.
        done: is called with each line of the results as soon as it is there.
        stopped: True once no further request is to be begun.
    """
    places = asyncio.Semaphore(AT_ONCE)

    async def answer(row: Row) -> None:
        async with places:
            if not stopped():
                done(await _result(row, find))

    async with asyncio.TaskGroup() as group:
        for row in rows:
            group.create_task(answer(row))


async def _result(row: Row, find: Find) -> Row:
    """A line of the results; an error is that of the request alone."""
    read, write = ROUTES[row["url"]]
    body = row["body"]
    try:
        name, handler = find(model_name(body, None))
        response = await _when_free(lambda: handler.respond(read(body)))
        status, answer = 200, write(response, body, str(body.get("model") or name))
    except HttpError as error:
        status, answer = error.status, json.loads(error.body())
    except JudgelmError as error:
        http = from_judgelm_error(error, retry_after_s=1)
        status, answer = http.status, json.loads(http.body())
    name = secrets.token_hex(12)
    reply = {"status_code": status, "request_id": f"req_{name}", "body": answer}
    return {"id": f"batch_req_{name}", "custom_id": row["custom_id"], "response": reply, "error": None}


async def _when_free(ask: Callable[[], Awaitable[ChatResponse]]) -> ChatResponse:
    while True:
        try:
            return await ask()
        except BusyError:
            await asyncio.sleep(_RETRY_S)


@dataclass(slots=True, kw_only=True)
class _File:
    """A file of a client's, or of a batch's results."""

    name: str
    purpose: str
    content: bytes
    id: str = field(default_factory=lambda: f"file-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def row(self) -> Row:
        """As clients see it."""
        return {
            "id": self.id, "object": "file", "bytes": len(self.content), "created_at": self.created,
            "filename": self.name, "purpose": self.purpose, "status": "processed", "expires_at": None,
        }  # fmt: skip


class BatchFiles:
    """The files and batches of a server."""

    def __init__(self, find: Find, settings: ServerSettings) -> None:
        self._find, self._settings = find, settings
        self._files: dict[str, _File] = {}
        self._batches: dict[str, Row] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def routes(self) -> APIRouter:
        """Those of files and batches."""
        router = APIRouter()
        for method, path, summary, endpoint in (
            ("POST", "/v1/files", "Upload a file of requests", self._upload),
            ("GET", "/v1/files", "List the files", self._list_files),
            ("GET", "/v1/files/{file_id}", "One file", self._show_file),
            ("DELETE", "/v1/files/{file_id}", "Delete a file", self._delete_file),
            ("GET", "/v1/files/{file_id}/content", "The content of a file", self._content),
            ("POST", "/v1/batches", "Answer the requests of a file", self._create),
            ("GET", "/v1/batches", "List the batches", self._list_batches),
            ("GET", "/v1/batches/{batch_id}", "One batch", self._show_batch),
            ("POST", "/v1/batches/{batch_id}/cancel", "Begin no further request of a batch", self._cancel),
        ):
            router.add_api_route(path, endpoint, methods=[method], summary=summary, response_model=None)
        return router

    async def _upload(self, request: Request) -> Response:
        if len(self._files) >= _MOST_FILES:
            raise HttpError(429, "too_many_files", f"{_MOST_FILES} files are here; delete some")
        async with request.form(max_files=1) as form:
            sent, purpose = form.get("file"), form.get("purpose")
            if not isinstance(sent, UploadFile) or purpose != "batch":
                raise HttpError(400, "invalid_value", 'expected "file", and "purpose" batch', param="file")
            content = await sent.read(_MOST_BYTES + 1)
            if len(content) > _MOST_BYTES:
                raise HttpError(413, "file_too_large", f'"file": larger than {_MOST_BYTES >> 20} MB', param="file")
            file = _File(name=sent.filename or "requests.jsonl", purpose="batch", content=content)
        self._files[file.id] = file
        return json_response(file.row())

    async def _list_files(self) -> Response:
        return _listed([file.row() for file in self._files.values()])

    async def _show_file(self, file_id: str) -> Response:
        return json_response(self._file(file_id).row())

    async def _delete_file(self, file_id: str) -> Response:
        del self._files[self._file(file_id).id]
        return json_response({"id": file_id, "object": "file", "deleted": True})

    async def _content(self, file_id: str) -> Response:
        return Response(self._file(file_id).content, 200, media_type="application/jsonl")

    async def _create(self, request: Request) -> Response:
        body = await read_json(request, self._settings)
        file, endpoint = self._file(str(body.get("input_file_id"))), body.get("endpoint")
        if endpoint not in ROUTES:
            raise HttpError(400, "invalid_value", f'"endpoint": expected one of {", ".join(ROUTES)}', param="endpoint")
        now = int(time.time())
        batch: Row = {
            "id": f"batch_{secrets.token_hex(12)}", "object": "batch", "endpoint": endpoint, "errors": None,
            "input_file_id": file.id, "completion_window": body.get("completion_window") or "24h",
            "status": "in_progress", "output_file_id": None, "error_file_id": None, "created_at": now,
            "in_progress_at": now, "completed_at": None, "metadata": body.get("metadata"),
            "request_counts": {"total": 0, "completed": 0, "failed": 0},
        }  # fmt: skip
        self._batches[batch["id"]] = batch
        try:
            rows = read_requests(file.content.decode())
            if others := [row for row in rows if row["url"] != endpoint]:
                raise InputError(f'custom_id {others[0]["custom_id"]!r}: its "url" is not {endpoint}')
        except (InputError, UnicodeDecodeError) as error:
            problem = {"code": "invalid_file", "message": str(error), "line": None, "param": None}
            batch |= {"status": "failed", "errors": {"object": "list", "data": [problem]}, "failed_at": now}
            return json_response(batch)
        batch["request_counts"]["total"] = len(rows)
        task = asyncio.create_task(self._run(batch, rows))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return json_response(batch)

    async def _run(self, batch: Row, rows: list[Row]) -> None:
        """Answer the requests; successes and errors go to a file each, as OpenAI's do."""
        results: dict[bool, list[str]] = {True: [], False: []}
        ended = "cancelled"
        counts = batch["request_counts"]

        def done(result: Row) -> None:
            is_good = result["response"]["status_code"] == 200
            results[is_good].append(json.dumps(result) + "\n")
            counts["completed" if is_good else "failed"] += 1

        try:
            await answer_rows(rows, self._find, done, stopped=lambda: batch["status"] == "cancelling")
            ended = "cancelled" if batch["status"] == "cancelling" else "completed"
        except BaseExceptionGroup:
            ended = "failed"
            raise
        finally:
            self._finish(batch, ended, results)

    def _finish(self, batch: Row, ended: str, results: Mapping[bool, Sequence[str]]) -> None:
        for is_good, kind in ((True, "output"), (False, "error")):
            if results[is_good]:
                content = "".join(results[is_good]).encode()
                file = _File(name=f"{batch['id']}_{kind}.jsonl", purpose="batch_output", content=content)
                self._files[file.id] = file
                batch[f"{kind}_file_id"] = file.id
        batch |= {"status": ended, f"{ended}_at": int(time.time())}

    async def _list_batches(self) -> Response:
        return _listed(list(self._batches.values()))

    async def _show_batch(self, batch_id: str) -> Response:
        return json_response(self._batch(batch_id))

    async def _cancel(self, batch_id: str) -> Response:
        batch = self._batch(batch_id)
        if batch["status"] == "in_progress":
            batch |= {"status": "cancelling", "cancelling_at": int(time.time())}
        return json_response(batch)

    def _file(self, file_id: str) -> _File:
        if file_id not in self._files:
            raise HttpError(404, "file_not_found", f"no file {file_id[:60]!r}; a server forgets files when it ends")
        return self._files[file_id]

    def _batch(self, batch_id: str) -> Row:
        if batch_id not in self._batches:
            raise HttpError(
                404, "batch_not_found", f"no batch {batch_id[:60]!r}; a server forgets batches when it ends"
            )
        return self._batches[batch_id]


def _listed(rows: list[Row]) -> Response:
    ids = {"first_id": rows[0]["id"], "last_id": rows[-1]["id"]} if rows else {"first_id": None, "last_id": None}
    return json_response({"object": "list", "data": rows, "has_more": False, **ids})
