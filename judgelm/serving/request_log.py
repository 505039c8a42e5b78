"""Writes a JSON Lines log of requests."""

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
    """A finished request. Routes set `judge`, `dialect`, `error`, and `tokens` in the request state.

    Attributes:
        route: path template, which contains no client data.
        status: 0 if no response was sent.
        dialect: `none` if the prompt was not recognised.
        error: error code; empty on success.
        duration_s: time from receiving the headers to sending the end of the response.
        prompt_tokens: None if nothing was judged.
        failures: failure codes of the judgments without a verdict.
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
    """Appends one JSON line per request to a file, and reopens the file after log rotation.

    If a write fails, the error goes to stderr and the request still succeeds. Set `texts` to include the bodies.
    """

    def __init__(self, path: Path, *, texts: bool = False) -> None:
        self.texts = texts
        try:
            self._handler = _LogFile(path, encoding="utf-8")
        except OSError as error:
            raise RunError(f"{path}: cannot write the request log: {error.strerror}; choose another file") from error

    def write(self, record: RequestRecord, bodies: tuple[bytes, bytes] | None) -> None:
        """Log a request. `bodies` contains the request body and the response body."""
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
        """Close the log file."""
        try:
            self._handler.close()
        except OSError as error:
            log.error("cannot write the request log %s: %s", self._handler.baseFilename, error)
