"""OpenAI's Batch API: clients upload a file of requests, which the server processes in the background.

Files and batches are kept in memory and belong to an API key. All keys have the same storage limit. `judgelm-batch`
accepts the same files without a server.

Source: requests and parsers in openai 3.52 (`files`, `batches`).
"""

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from fastapi import APIRouter, Request
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.responses import Response

from judgelm.errors import InputError
from judgelm.serving.batch_requests import MAX_CONCURRENT, ROUTES, Find, Row, answer_rows, read_requests
from judgelm.serving.http_errors import CLOSE, HttpError, json_response, limited_body, read_json, typed_field
from judgelm.serving.judges import ServedJudges
from judgelm.serving.middleware import Traffic
from judgelm.serving.settings import ServerSettings

_MAX_FILES = _MAX_BATCHES = 1000
_MAX_FILE_BYTES = 200 << 20
_MAX_FORM_BYTES = 64 << 10  # size of an upload, excluding the file
_MAX_FIELDS, _MAX_FIELD_BYTES = 16, 1 << 10
_MAX_METADATA, _MAX_METADATA_KEY, _MAX_METADATA_VALUE = 16, 64, 512  # OpenAI's limits

_MAX_NAME = 255

log = logging.getLogger("judgelm.serving")


@dataclass(slots=True, kw_only=True)
class _File:
    name: str
    purpose: str
    content: bytes
    id: str = field(default_factory=lambda: f"file-{secrets.token_hex(12)}")
    created: int = field(default_factory=lambda: int(time.time()))

    def row(self) -> Row:
        return {
            "id": self.id, "object": "file", "bytes": len(self.content), "created_at": self.created,
            "filename": self.name, "purpose": self.purpose, "status": "processed", "expires_at": None,
        }  # fmt: skip


@dataclass(slots=True, kw_only=True)
class _Store:
    """Files and batches of one API key.

    Attributes:
        bytes: total size of files, uploads in progress, and the inputs and results of running batches.
        running: number of running batches; each can create up to two files.
    """

    max_bytes: int
    bytes: int = 0
    running: int = 0
    files: dict[str, _File] = field(default_factory=dict)
    batches: dict[str, Row] = field(default_factory=dict)
    slots: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(MAX_CONCURRENT))

    def take(self, size: int) -> None:
        if self.bytes + size > self.max_bytes:
            finding = f"the files and results of this API key may use at most {self.max_bytes:,} bytes"
            raise HttpError(429, "storage_full", f"{finding}; delete some files", headers=CLOSE)
        self.bytes += size

    def check_count(self, new: int) -> None:
        if len(self.files) + 2 * self.running + new > _MAX_FILES:
            finding = f"{len(self.files)} files and {self.running} running batches exceed the limit of {_MAX_FILES}"
            raise HttpError(429, "too_many_files", f"{finding}; delete some files", headers=CLOSE)

    def file(self, file_id: str) -> _File:
        if file_id not in self.files:
            message = f"file {file_id[:60]!r} not found; files are deleted when the server stops"
            raise HttpError(404, "file_not_found", message)
        return self.files[file_id]

    def batch(self, batch_id: str) -> Row:
        if batch_id not in self.batches:
            message = f"batch {batch_id[:60]!r} not found; only the last {_MAX_BATCHES} batches are kept in memory"
            raise HttpError(404, "batch_not_found", message)
        return self.batches[batch_id]

    def add_batch(self, batch: Row) -> None:

        self.batches[batch["id"]] = batch
        ended = (name for name, each in self.batches.items() if each["status"] not in ("in_progress", "cancelling"))
        if len(self.batches) > _MAX_BATCHES and (oldest := next(ended, None)):
            del self.batches[oldest]


class BatchFiles:
    """A server's files and batches, stored separately for each API key."""

    def __init__(self, judges: ServedJudges, settings: ServerSettings, traffic: Traffic) -> None:
        self._judges, self._settings, self._traffic = judges, settings, traffic
        self._stores: dict[str, _Store] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def routes(self) -> APIRouter:
        """Return the routes for files and batches."""
        router = APIRouter()
        for method, path, summary, endpoint in (
            ("POST", "/v1/files", "Upload a batch input file", self._upload),
            ("GET", "/v1/files", "List the files of this API key", self._list_files),
            ("GET", "/v1/files/{file_id}", "Show a file", self._show_file),
            ("DELETE", "/v1/files/{file_id}", "Delete a file", self._delete_file),
            ("GET", "/v1/files/{file_id}/content", "Download a file", self._content),
            ("POST", "/v1/batches", "Create a batch from an uploaded file", self._create),
            ("GET", "/v1/batches", "List the batches of this API key", self._list_batches),
            ("GET", "/v1/batches/{batch_id}", "Show a batch", self._show_batch),
            ("POST", "/v1/batches/{batch_id}/cancel", "Cancel a batch; requests in flight still finish", self._cancel),
        ):
            router.add_api_route(path, endpoint, methods=[method], summary=summary, response_model=None)
        return router

    def _store(self, request: Request) -> _Store:
        share = self._settings.max_files_bytes // max(1, len(self._settings.api_keys))
        return self._stores.setdefault(request.state.owner, _Store(max_bytes=share))

    async def _upload(self, request: Request) -> Response:
        store = self._store(request)
        store.check_count(1)
        arrived = 0

        def take(size: int) -> None:
            nonlocal arrived
            store.take(size)
            arrived += size

        try:
            file = await self._read_form(request, take)
        finally:
            store.bytes -= arrived
        store.check_count(1)  # other uploads may have finished in the meantime
        store.take(len(file.content))
        store.files[file.id] = file
        return json_response(file.row())

    async def _read_form(self, request: Request, take: Callable[[int], None]) -> _File:
        limits = {"max_files": 1, "max_fields": _MAX_FIELDS, "max_part_size": _MAX_FIELD_BYTES}
        try:
            async with (
                limited_body(request, self._settings, _MAX_FILE_BYTES + _MAX_FORM_BYTES, take) as limited,
                limited.form(**limits) as form,
            ):
                sent, purpose = form.get("file"), form.getlist("purpose")
                if not isinstance(sent, UploadFile) or purpose != ["batch"]:
                    raise HttpError(400, "invalid_value", 'expected a "file" with "purpose": "batch"', param="file")
                content = await sent.read()
        except HTTPException as error:
            raise HttpError(400, "invalid_form", f"cannot parse the form: {error.detail}", headers=CLOSE) from error
        except UnicodeError as error:  # from the charset of a form field
            raise HttpError(400, "invalid_form", "cannot parse the form: expected UTF-8", headers=CLOSE) from error
        except OSError as error:  # from the temporary file
            log.error("upload failed: %s", error)
            raise HttpError(507, "storage_full", "the disk is full; see the server log", headers=CLOSE) from error
        if len(content) > _MAX_FILE_BYTES:
            raise HttpError(413, "body_too_large", f'"file": larger than {_MAX_FILE_BYTES} bytes', param="file")
        return _File(name=(sent.filename or "requests.jsonl")[:_MAX_NAME], purpose="batch", content=content)

    async def _list_files(self, request: Request) -> Response:
        return _listed([file.row() for file in self._store(request).files.values()])

    async def _show_file(self, request: Request, file_id: str) -> Response:
        return json_response(self._store(request).file(file_id).row())

    async def _delete_file(self, request: Request, file_id: str) -> Response:
        store = self._store(request)
        store.bytes -= len(store.file(file_id).content)
        del store.files[file_id]
        return json_response({"id": file_id, "object": "file", "deleted": True})

    async def _content(self, request: Request, file_id: str) -> Response:
        return Response(self._store(request).file(file_id).content, 200, media_type="application/jsonl")

    async def _create(self, request: Request) -> Response:
        store = self._store(request)
        batch, file = _new_batch(await read_json(request, self._settings), store)
        store.check_count(2)
        store.take(len(file.content))  # until the batch ends
        store.running += 1
        store.add_batch(batch)
        try:
            rows = await asyncio.to_thread(_rows_of_batch, file, batch["endpoint"])
        except InputError as error:
            store.bytes -= len(file.content)
            store.running -= 1
            _fail(batch, "invalid_file", str(error))
            return json_response(batch)
        batch["request_counts"]["total"] = len(rows)
        find = partial(self._judges.find, owner=request.state.owner)
        task = asyncio.create_task(self._run(store, batch, rows, find, len(file.content)))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return json_response(batch)

    async def _run(self, store: _Store, batch: Row, rows: list[Row], find: Find, input_bytes: int) -> None:
        results: dict[bool, list[bytes]] = {True: [], False: []}
        counts = batch["request_counts"]

        def done(result: Row) -> None:
            is_good = result["response"]["status_code"] == 200
            results[is_good].append(json.dumps(result).encode() + b"\n")
            store.bytes += len(results[is_good][-1])
            counts["completed" if is_good else "failed"] += 1

        def stopped() -> bool:
            return batch["status"] == "cancelling" or store.bytes > store.max_bytes

        self._traffic.batches += 1
        ended = "failed"
        try:
            await answer_rows(rows, find, done, stopped=stopped, slots=store.slots)
            ended = "cancelled" if batch["status"] == "cancelling" else "completed"
        finally:
            self._traffic.batches -= 1
            store.running -= 1
            store.bytes -= input_bytes
            _keep_results(store, batch, results)
            if ended == "completed" and counts["completed"] + counts["failed"] < counts["total"]:
                _fail(batch, "storage_full", "storage limit reached; delete files and resubmit the other requests")
            else:
                batch |= {"status": ended, f"{ended}_at": int(time.time())}

    async def _list_batches(self, request: Request) -> Response:
        return _listed(list(self._store(request).batches.values()))

    async def _show_batch(self, request: Request, batch_id: str) -> Response:
        return json_response(self._store(request).batch(batch_id))

    async def _cancel(self, request: Request, batch_id: str) -> Response:
        batch = self._store(request).batch(batch_id)
        if batch["status"] == "in_progress":
            batch |= {"status": "cancelling", "cancelling_at": int(time.time())}
        return json_response(batch)


def _new_batch(body: Mapping[str, Any], store: _Store) -> tuple[Row, _File]:
    file, endpoint = store.file(str(body.get("input_file_id"))), body.get("endpoint")
    if endpoint not in ROUTES:
        raise InputError(f'"endpoint": expected one of {", ".join(ROUTES)}')
    if body.get("completion_window") not in (None, "24h"):
        raise InputError('"completion_window": expected 24h')
    metadata = typed_field(body, "metadata", dict, "an object") or {}
    if len(metadata) > _MAX_METADATA or not all(
        isinstance(value, str) and len(name) <= _MAX_METADATA_KEY and len(value) <= _MAX_METADATA_VALUE
        for name, value in metadata.items()
    ):
        limits = f"at most {_MAX_METADATA} strings of up to {_MAX_METADATA_VALUE} characters"
        raise InputError(f'"metadata": expected {limits}')
    now = int(time.time())
    batch: Row = {
        "id": f"batch_{secrets.token_hex(12)}", "object": "batch", "endpoint": endpoint, "errors": None,
        "input_file_id": file.id, "completion_window": "24h", "status": "in_progress",
        "output_file_id": None, "error_file_id": None, "created_at": now, "in_progress_at": now,
        "completed_at": None, "metadata": body.get("metadata"),
        "request_counts": {"total": 0, "completed": 0, "failed": 0},
    }  # fmt: skip
    return batch, file


def _rows_of_batch(file: _File, endpoint: str) -> list[Row]:
    try:
        rows = read_requests(file.content.decode())
    except UnicodeDecodeError as error:
        raise InputError(f"invalid UTF-8 at byte {error.start + 1}") from error
    if others := [row for row in rows if row["url"] != endpoint]:
        raise InputError(f'custom_id {others[0]["custom_id"]!r}: "url" does not match the batch endpoint {endpoint}')
    return rows


def _fail(batch: Row, code: str, message: str) -> None:
    problem = {"code": code, "message": message, "line": None, "param": None}
    batch |= {"status": "failed", "errors": {"object": "list", "data": [problem]}, "failed_at": int(time.time())}


def _keep_results(store: _Store, batch: Row, results: Mapping[bool, Sequence[bytes]]) -> None:
    for is_good, kind in ((True, "output"), (False, "error")):
        if results[is_good]:
            content = b"".join(results[is_good])
            file = _File(name=f"{batch['id']}_{kind}.jsonl", purpose="batch_output", content=content)
            store.files[file.id] = file
            batch[f"{kind}_file_id"] = file.id


def _listed(rows: list[Row]) -> Response:
    ids = {"first_id": rows[0]["id"], "last_id": rows[-1]["id"]} if rows else {"first_id": None, "last_id": None}
    return json_response({"object": "list", "data": rows, "has_more": False, **ids})
