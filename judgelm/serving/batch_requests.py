"""Requests in the format of OpenAI's Batch API."""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from judgelm.dialects.request_body import read_chat, read_completion
from judgelm.errors import BusyError, InputError, JudgelmError
from judgelm.serving.chat_response import ChatResponse
from judgelm.serving.handler import JudgeHandler
from judgelm.serving.http_errors import HttpError, from_judgelm_error, strict_json
from judgelm.serving.openai_format import Envelope, completion_body
from judgelm.serving.openai_routes import CHAT, PLAIN, Reader, Writer, model_name
from judgelm.serving.responses_and_messages import OTHER_APIS

_MAX_CONCURRENT = 64

_RETRY_S = 0.2
Row = dict[str, Any]
Find = Callable[[str | None], tuple[str, JudgeHandler]]


def _completion_row(plain: bool, response: ChatResponse, body: Mapping[str, Any], model: str) -> Row:
    row: Row = json.loads(completion_body(response, Envelope(model=model, fingerprint="", plain=plain)))
    return row


ROUTES: dict[str, tuple[Reader, Writer]] = {
    CHAT: (read_chat, partial(_completion_row, False)),
    PLAIN: (read_completion, partial(_completion_row, True)),
    **OTHER_APIS,
}


def read_requests(text: str) -> list[Row]:
    """Parse the requests in a batch input file.

    Raises:
        InputError: a line is invalid, or an id is not unique.
    """
    rows: list[Row] = []
    seen: set[str] = set()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip():
            continue
        try:
            row = strict_json(line)
        except ValueError as error:
            raise InputError(f"line {number}: invalid JSON: {error}") from error
        if not isinstance(row, dict) or not isinstance(row.get("body"), dict):
            raise InputError(f'line {number}: expected an object with "custom_id", "url" and "body"')
        name = row.get("custom_id")
        if not isinstance(name, str) or name in seen:
            raise InputError(f'line {number}: "custom_id": expected a unique string, got {str(name)[:60]!r}')
        if row.get("url") not in ROUTES:
            url = str(row.get("url"))[:60]
            raise InputError(f'line {number}: "url": expected one of {", ".join(ROUTES)}, got {url!r}')
        seen.add(name)
        rows.append(row)
    if not rows:
        raise InputError("the file is empty; expected one request per line")
    return rows


async def answer_rows(rows: Sequence[Row], find: Find, done: Callable[[Row], None]) -> None:
    """Process requests concurrently.

    Args:
        rows: requests from `read_requests`.
        find: returns the judge for a model name.
        done: called with each result as it completes.
    """
    slots = asyncio.Semaphore(_MAX_CONCURRENT)

    async def answer(row: Row) -> None:
        async with slots:
            done(await _result(row, find))

    async with asyncio.TaskGroup() as group:
        for row in rows:
            group.create_task(answer(row))


async def _result(row: Row, find: Find) -> Row:
    read, write = ROUTES[row["url"]]
    body = row["body"]
    try:
        name, handler = find(model_name(body, None))
        response = await _retry_while_busy(lambda: handler.respond(read(body)))
        status, answer = 200, write(response, body, str(body.get("model") or name))
    except (HttpError, JudgelmError) as error:
        http = error if isinstance(error, HttpError) else from_judgelm_error(error, retry_after_s=1)
        status, answer = http.status, json.loads(http.body())
    name = secrets.token_hex(12)
    reply = {"status_code": status, "request_id": f"req_{name}", "body": answer}
    return {"id": f"batch_req_{name}", "custom_id": row["custom_id"], "response": reply, "error": None}


async def _retry_while_busy(ask: Callable[[], Awaitable[ChatResponse]]) -> ChatResponse:
    while True:
        try:
            return await ask()
        except BusyError:
            await asyncio.sleep(_RETRY_S)
