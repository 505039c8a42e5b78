"""Errors as OpenAI's clients read them: `{"error": {"message", "type", "param", "code"}}` and a status.

A message is about the request that it answers, and about nothing else of the server: what an engine says, which may
name files or hold other texts, goes to the log.
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
    """An error with the status and the code that a client gets."""

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
        """What the client gets."""
        return Response(self.body(), self.status, self.headers, "application/json")

    def body(self) -> bytes:
        """Its JSON."""
        kind = _TYPES.get(self.status) or ("server_error" if self.status >= 500 else "invalid_request_error")
        error = {"message": str(self)[:_LONGEST], "type": kind, "param": self.param, "code": self.code}
        return json.dumps({"error": error}).encode()


def from_judgelm_error(error: JudgelmError, retry_after_s: int) -> HttpError:
    """The error that a client gets where the judge's side raised one.

    Args:
        error: what was raised.
        retry_after_s: when a busy server should be asked again.
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
            return HttpError(503, "engine_unavailable", "the judge's engine is not available; ask again later")
        case InputError():
            return HttpError(400, "invalid_value", str(error), param=_field(str(error)))
        case ConfigError():
            return HttpError(400, "invalid_option", str(error))
    log.error("%s: %s", type(error).__name__, error)
    return HttpError(500, "internal_error", "the server has a fault, which its log names")


def _of_unjudged(error: UnjudgedError) -> HttpError:
    if error.failure.code == "too_long":
        return HttpError(400, "context_length_exceeded", str(error), param="messages")
    if error.failure.code == "engine":
        log.error("the engine failed on a request: %s", error.failure.text)
        return HttpError(502, "engine_failed", "the judge's engine failed on this request; the server's log says how")
    return HttpError(422, "judge_failed", str(error))


def from_routing_error(status: int, path: str, headers: Mapping[str, str] | None) -> HttpError:
    """For a path or a method that the server does not have."""
    found = "this server has no such route" if status == 404 else "this route has no such method"
    return HttpError(
        status,
        _CODES.get(status, "invalid_request"),
        f"{path[:200]}: {found}; /openapi.json lists all",
        headers=headers,
    )


def _field(message: str) -> str | None:
    """The field of the body that a message begins with."""
    found = _FIELD.match(message)
    return found[1] if found else None
