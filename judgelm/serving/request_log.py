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
    """Facts on a request whose reply has ended. Routes set `judge`, `dialect`, `error` and `tokens` in its state.

    Attributes:
        id: the reply's `X-Request-Id`.
        method: of HTTP.
        route: its path's template, so that it contains no text of a client.
        status: of the reply; 0 where none began.
        judge: the judge's own name; empty where the route has none.
        dialect: empty where the route has none, `none` where no dialect knew the prompt.
        error: code of the error in the reply; empty without.
        duration_s: from the request's headers to the end of its reply.
        prompt_tokens: read by the judge; None where nothing was judged.
        completion_tokens: written by the judge.
        failures: codes of judgments without a readable verdict, as in `records.Unparsed`.
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
    """A file whose errors are one line on stderr."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802 - logging's own name
        """Report the error that is being handled."""
        log.error("the request log %s: %s", self.baseFilename, sys.exception())


class RequestLog:
    """Appends a line of JSON for each request to a file, which may be rotated: it is reopened after a rename.

    A line that cannot be written, as on a full disk, is reported on stderr and costs no request; what it held is tried
    again with the next line.

    Args:
        path: of the file.
        texts: whether bodies of requests and replies are written too.

    Raises:
        RunError: the file cannot be opened.
    """

    def __init__(self, path: Path, *, texts: bool = False) -> None:
        self.texts = texts
        try:
            self._handler = _LogFile(path, encoding="utf-8")
        except OSError as error:
            raise RunError(f"{path}: cannot write the request log: {error.strerror}; choose another file") from error

    def write(self, record: RequestRecord, bodies: tuple[bytes, bytes] | None) -> None:
        """Write a request's line; `bodies` are its body and the reply's, None leaves them out."""
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
            log.error("the request log %s: %s", self._handler.baseFilename, error)
