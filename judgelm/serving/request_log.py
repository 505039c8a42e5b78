"""The request log: one JSON line per request."""

import json
import logging
import sys
from dataclasses import dataclass
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any

from judgelm.errors import RunError

log = logging.getLogger("judgelm.serving")


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestRecord:
    """A finished request. Routes set `judge`, `dialect`, `error` and `tokens` in its state.

    Attributes:
        route: path template, without client data.
        status: 0 if no reply was sent.
        dialect: `none` for unrecognised prompts.
        error: error code; empty on success.
        duration_s: time from the request's headers to the end of the reply.
        prompt_tokens: None if nothing was judged.
        failures: failure codes of judgments without a verdict.
    """

    id: str
    method: str
    route: str
    status: int
    judge: str
    dialect: str
    error: str
    duration_s: float
    prompt_tokens: int | None
    completion_tokens: int
    failures: tuple[str, ...]


class _LogFile(WatchedFileHandler):
    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        log.error("cannot write the request log %s: %s", self.baseFilename, sys.exception())


class RequestLog:
    """Appends a JSON line per request to a file, and reopens the file after rotation.

    Failed writes are reported on stderr and retried later, and the request succeeds. `texts` also logs bodies.
    """

    def __init__(self, path: Path, *, texts: bool = False) -> None:
        self.texts = texts
        try:
            self._handler = _LogFile(path, encoding="utf-8")
        except OSError as error:
            raise RunError(f"{path}: cannot write the request log: {error.strerror}; choose another file") from error

    def write(self, record: RequestRecord, bodies: tuple[bytes, bytes] | None) -> None:
        """Write a line for a request. `bodies` are the bodies of the request and the reply."""
        row: dict[str, Any] = {"time": datetime.now(UTC).isoformat(timespec="milliseconds")}
        for name in ("id", "method", "route", "status", "judge", "dialect", "error"):
            row[name] = getattr(record, name)
        row["ms"] = round(record.duration_s * 1000, 1)
        row |= {"prompt_tokens": record.prompt_tokens or 0, "completion_tokens": record.completion_tokens}
        if bodies is not None:
            row |= {"request": bodies[0].decode(errors="replace"), "reply": bodies[1].decode(errors="replace")}
        line = json.dumps(row, ensure_ascii=False)
        self._handler.handle(logging.LogRecord("judgelm.requests", logging.INFO, "", 0, line, None, None))

    def close(self) -> None:
        """Close the file."""
        try:
            self._handler.close()
        except OSError as error:
            log.error("cannot write the request log %s: %s", self._handler.baseFilename, error)
