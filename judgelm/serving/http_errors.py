"""Errors in the format of OpenAI's clients: `{"error": {"message", "type", "param", "code"}}` and a status.

A message concerns its request alone. Messages of an engine may contain file names or other texts and go to the log.
"""

import json
import logging
import re
from collections.abc import Mapping

from starlette.responses import Response

from judgelm.errors import BusyError, ConfigError, EngineError, InputError, JudgelmError
from judgelm.serving.responses import UnjudgedError, UnrecognisedError

log = logging.getLogger("judgelm.serving")

_FIELD = re.compile(r'(?:field )?"(\w+)"')
_LONGEST = 1000
_TYPES = {401: "authentication_error", 429: "rate_limit_error"}
_CODES = {404: "not_found", 405: "method_not_allowed"}


class HttpError(Exception):
    """An error with its HTTP status and code."""

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
        """The HTTP response."""
        return Response(self.body(), self.status, self.headers, "application/json")

    def body(self) -> bytes:
        """Its JSON."""
        kind = _TYPES.get(self.status) or ("server_error" if self.status >= 500 else "invalid_request_error")
        error = {"message": str(self)[:_LONGEST], "type": kind, "param": self.param, "code": self.code}
        return json.dumps({"error": error}).encode()


def from_judgelm_error(error: JudgelmError, retry_after_s: int) -> HttpError:
    """The HTTP error for an error of judgelm.

    Args:
        error: raised while handling a request.
        retry_after_s: when to try a busy server again.
    """
    match error:
        case UnrecognisedError():
            return HttpError(400, "unrecognised_prompt", str(error))
        case UnjudgedError():
            return _of_unjudged(error)
        case BusyError():
            return HttpError(429, "server_busy", str(error), headers={"Retry-After": str(retry_after_s)})
        case EngineError():
            log.error("the engine: %s", error)
            return HttpError(503, "engine_unavailable", "the judge's engine is not available; try again later")
        case InputError():
            return HttpError(400, "invalid_value", str(error), param=_field(str(error)))
        case ConfigError():
            return HttpError(400, "invalid_option", str(error))
    log.error("%s: %s", type(error).__name__, error)
    return HttpError(500, "internal_error", "internal error; see the server log")


def _of_unjudged(error: UnjudgedError) -> HttpError:
    if error.failure.code == "too_long":
        return HttpError(400, "context_length_exceeded", str(error), param="messages")
    if error.failure.code == "engine":
        log.error("the engine failed on a request: %s", error.failure.why or error.failure.text)
        return HttpError(502, "engine_failed", "the judge's engine failed on this request; see the server log")
    return HttpError(422, "judge_failed", str(error))


def from_routing_error(status: int, path: str, headers: Mapping[str, str] | None) -> HttpError:
    """The HTTP error for an unknown path or method."""
    finding = "no such route" if status == 404 else "no such method on this route"
    return HttpError(
        status,
        _CODES.get(status, "invalid_request"),
        f"{path[:200]}: {finding}; /openapi.json lists all",
        headers=headers,
    )


def _field(message: str) -> str | None:
    """The field of the body that a message begins with."""
    match = _FIELD.match(message)
    return match[1] if match else None
