"""Errors in OpenAI's format, request parsing, and time and size limits."""

import asyncio
import json
import logging
import math
import re
from collections.abc import Awaitable, Mapping
from typing import Any, NoReturn, TypeVar

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from judgelm.errors import BusyError, ConfigError, EngineError, InputError, JudgelmError, ShutdownError
from judgelm.serving.chat_response import UnjudgedError, UnrecognisedError
from judgelm.serving.settings import ServerSettings

log = logging.getLogger("judgelm.serving")

_FIELD = re.compile(r'(?:field )?"(\w+)"')
_MAX_MESSAGE = 1000
_TYPES = {401: "authentication_error", 429: "rate_limit_error"}
_CODES = {404: "not_found", 405: "method_not_allowed"}

CLOSE = {"Connection": "close"}
"""Closes the connection, so that the rest of an unread body is not parsed as the next request."""


class HttpError(Exception):
    """An error with an HTTP status and an error code."""

    def __init__(
        self,
        status: int,
        code: str,
        message: str,
        *,
        param: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.param = param
        self.headers = dict(headers or {})

    def response(self) -> Response:
        """Return the error as an HTTP response."""
        return Response(self.body(), self.status, self.headers, "application/json")

    def body(self) -> bytes:
        """Return the JSON body."""
        kind = _TYPES.get(self.status) or ("server_error" if self.status >= 500 else "invalid_request_error")
        error = {"message": str(self)[:_MAX_MESSAGE], "type": kind, "param": self.param, "code": self.code}
        return json.dumps({"error": error}).encode()


def from_judgelm_error(error: JudgelmError, retry_after_s: int) -> HttpError:
    """Convert a judgelm error to an HTTP error. `retry_after_s` applies if the server is busy."""
    match error:
        case UnrecognisedError():
            return HttpError(400, "unrecognised_prompt", str(error))
        case UnjudgedError() if error.failure.code == "too_long":
            return HttpError(400, "context_length_exceeded", str(error), param="messages")
        case UnjudgedError() if error.failure.code == "engine":
            log.error("the engine failed on a request: %s", error.failure.why or error.failure.text)
            return HttpError(502, "engine_failed", "the judge's engine failed on this request; see the server log")
        case UnjudgedError():
            return HttpError(422, "judge_failed", str(error))
        case BusyError():
            return HttpError(429, "server_busy", str(error), headers={"Retry-After": str(retry_after_s)})
        case ShutdownError():
            return shutdown_error()
        case EngineError():
            log.error("engine error: %s", error)
            return HttpError(503, "engine_unavailable", "the judge's engine is not available; try again later")
        case InputError():
            field = _FIELD.match(str(error))
            return HttpError(400, "invalid_value", str(error), param=field[1] if field else None)
        case ConfigError():
            return HttpError(400, "invalid_option", str(error))
    log.error("%s: %s", type(error).__name__, error)
    return HttpError(500, "internal_error", "internal error; see the server log")


def from_routing_error(status: int, path: str, headers: Mapping[str, str] | None) -> HttpError:
    """Convert an error from the router."""
    finding = "route not found" if status == 404 else "method not allowed"
    code, message = _CODES.get(status, "invalid_request"), f"{path[:200]}: {finding}; see /openapi.json"
    return HttpError(status, code, message, headers=headers)


Result = TypeVar("Result")
Field = TypeVar("Field")

_ESCAPED_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


class _JsonError(ValueError):
    """JSON that Python's parser accepts but `strict_json` rejects."""


async def read_json(request: Request, settings: ServerSettings) -> dict[str, Any]:
    """Read the request body and parse it as a JSON object."""
    return parse_json(await _read_body(request, settings))


def parse_json(raw: bytes) -> dict[str, Any]:
    """Parse a JSON object with `strict_json`."""
    try:
        body = strict_json(raw.decode("utf-8-sig"))
    except UnicodeDecodeError as error:
        raise HttpError(400, "invalid_json", "cannot parse the request body: expected JSON in UTF-8") from error
    except ValueError as error:
        raise HttpError(400, "invalid_json", f"cannot parse the request body: {error}") from error
    if not isinstance(body, dict):
        raise HttpError(400, "invalid_json", "expected a JSON object as the request body")
    return body


def strict_json(text: str) -> Any:
    """Parse JSON. Duplicate keys, infinite numbers, and lone surrogates are rejected."""
    try:
        value = _DECODER.decode(text)
        if _ESCAPED_SURROGATE.search(text):  # tokenizers reject lone surrogates
            json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise _JsonError("contains a lone surrogate, which is not valid in UTF-8") from error
    except RecursionError as error:
        raise _JsonError("nested too deeply") from error
    except ValueError as error:
        if isinstance(error, json.JSONDecodeError | _JsonError):
            raise
        raise _JsonError("contains a number with too many digits") from error
    return value


def typed_field(body: Mapping[str, Any], name: str, kind: type[Field], expected: str) -> Field | None:
    """Return a field, or None if it is missing or null. Raise InputError if the type is wrong."""
    value = body.get(name)
    if value is None or isinstance(value, kind):
        return value
    raise InputError(f'"{name}": expected {expected}')


def json_response(value: Mapping[str, Any] | float) -> Response:
    """Return a value as a JSON response."""
    return Response(json.dumps(value, allow_nan=False).encode(), media_type="application/json")


async def wait_for_answer(work: Awaitable[Result], request: Request, settings: ServerSettings) -> Result:
    """Wait for an answer until the client disconnects or the request times out. Read the body first."""
    working = asyncio.ensure_future(work)
    disconnect = asyncio.ensure_future(request.receive())
    try:
        first = asyncio.FIRST_COMPLETED
        await asyncio.wait((working, disconnect), timeout=settings.request_timeout_s, return_when=first)
        if working.done():
            return working.result()
        if disconnect.done():
            raise ClientDisconnect
        raise timeout_error(settings)
    finally:
        disconnect.cancel()
        if working.cancel():
            await asyncio.wait((working,))


def timeout_error(settings: ServerSettings) -> HttpError:
    """Return the error for a request that timed out."""
    return HttpError(504, "timeout", f"the request timed out after {settings.request_timeout_s:g} s; try again later")


def shutdown_error() -> HttpError:
    """Return the error for requests during shutdown."""
    headers = {"Retry-After": "5", **CLOSE}
    return HttpError(503, "shutting_down", "the server is shutting down; try again later", headers=headers)


async def _read_body(request: Request, settings: ServerSettings) -> bytes:
    if request.headers.get("content-encoding", "identity") != "identity":
        raise HttpError(415, "unsupported_encoding", "send the body uncompressed", headers=CLOSE)
    limit = settings.max_body_bytes
    too_large = HttpError(413, "body_too_large", f"the request body is larger than {limit} bytes", headers=CLOSE)
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(settings.body_timeout_s):
            async for part in request.stream():
                body += part
                if len(body) > limit:  # chunked, so there is no content-length
                    raise too_large
    except TimeoutError:
        late = f"the request body did not arrive within {settings.body_timeout_s:g} s"
        raise HttpError(408, "request_timeout", late, headers=CLOSE) from None
    return bytes(body)


def _finite(number: str) -> float:
    value = float(number)
    if math.isinf(value):
        raise _JsonError(f"number {number[:40]} is too large")
    return value


def _refuse_constant(name: str) -> NoReturn:
    raise _JsonError(f"{name} is not valid JSON")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        names = [name for name, _ in pairs]
        repeated = next(name for name in row if names.count(name) > 1)
        raise _JsonError(f"key {json.dumps(repeated[:100])} appears twice in the same object; keep only one")
    return row


_DECODER = json.JSONDecoder(object_pairs_hook=_unique, parse_constant=_refuse_constant, parse_float=_finite)
