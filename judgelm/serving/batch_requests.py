"""Requests in the format of OpenAI's Batch API."""

import asyncio
import json
import secrets
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Any

from judgelm.dialects.contract import ChatRequest
from judgelm.dialects.request_body import read_chat, read_completion
from judgelm.errors import BusyError, InputError, JudgelmError
from judgelm.serving.chat_response import ChatResponse
from judgelm.serving.handler import JudgeHandler
from judgelm.serving.http_errors import HttpError, from_judgelm_error, strict_json
from judgelm.serving.openai_format import Envelope, completion_body
from judgelm.serving.openai_routes import CHAT, PLAIN, model_name
from judgelm.serving.responses_and_messages import (
    MESSAGES,
    RESPONSES,
    chat_of_message,
    chat_of_response,
    message_row,
    response_row,
)

AT_ONCE = 64
"""Requests in the engine's queue at the same time, of all batches of a key."""

_RETRY_S = 0.2
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
            row = strict_json(line)
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
    rows: Sequence[Row],
    find: Find,
    done: Callable[[Row], None],
    *,
    stopped: Callable[[], bool] = lambda: False,
    places: asyncio.Semaphore | None = None,
) -> None:
    """Answer requests, `AT_ONCE` at a time.

    Args:
        rows: as from `read_requests`.
        find: the judge of a model's name.
        done: is called with each line of the results as soon as it is there.
        stopped: True once no further request is to be begun.
        places: shared with other files that are answered at the same time.
    """
    places = places or asyncio.Semaphore(AT_ONCE)

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
