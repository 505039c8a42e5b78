"""Access, shutdown, metrics, the request log and traces of all requests."""

import asyncio
import json
import logging
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from logging.handlers import WatchedFileHandler
from pathlib import Path
from typing import Any
from uuid import uuid4

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from judgelm.errors import RunError
from judgelm.serving.access import ApiKeys, KnownHosts
from judgelm.serving.engine_worker import EngineWorker
from judgelm.serving.http_errors import CLOSE, HttpError, shutdown_error

log = logging.getLogger("judgelm.serving")

PROBES = ("/health", "/healthz", "/livez", "/readyz")
"""Routes that need no key, and answer during shutdown."""

_BUCKETS_S = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)


@dataclass(slots=True)
class Traffic:
    """Requests in a server.

    Attributes:
        in_flight: requests whose reply has not ended.
        batches: batches of requests that have not ended.
        closing: whether new requests are refused because the server is shutting down.
    """

    in_flight: int = 0
    batches: int = 0
    closing: bool = False


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


class Metrics:
    """The counters of one server in Prometheus' format, separate from those of others in this process."""

    def __init__(self, worker: EngineWorker) -> None:
        self._registry = registry = CollectorRegistry(auto_describe=True)
        registry.register(_WorkerCollector(worker))
        self._requests = Counter(
            "judgelm_requests", "Requests answered.", ("route", "status", "dialect", "judge"), registry=registry
        )
        self._seconds = Histogram(
            "judgelm_request_seconds", "From a request's headers to the end of its reply.", ("route",),
            buckets=_BUCKETS_S, registry=registry,
        )  # fmt: skip
        about_failures = "Judgments without a readable verdict, by failure code."
        self._failures = Counter("judgelm_failures", about_failures, ("code", "judge"), registry=registry)
        about_errors = "Requests refused or failed, by the code of the reply."
        self._errors = Counter("judgelm_errors", about_errors, ("code",), registry=registry)
        self._prompt_tokens = Counter(
            "judgelm_prompt_tokens", "Tokens that the judge read.", ("judge",), registry=registry
        )
        self._completion_tokens = Counter(
            "judgelm_completion_tokens", "Tokens that the judge wrote.", ("judge",), registry=registry
        )

    def count(self, record: RequestRecord) -> None:
        """Count a request whose reply has ended."""
        self._requests.labels(record.route, str(record.status), record.dialect, record.judge).inc()
        self._seconds.labels(record.route).observe(record.duration_s)
        if record.error:
            self._errors.labels(record.error).inc()
        for code in record.failures:
            self._failures.labels(code, record.judge).inc()
        if record.prompt_tokens is not None:
            self._prompt_tokens.labels(record.judge).inc(record.prompt_tokens)
            self._completion_tokens.labels(record.judge).inc(record.completion_tokens)

    def text(self) -> bytes:
        """All counters in Prometheus' text format."""
        return generate_latest(self._registry)


class _WorkerCollector:
    """The worker's own counts, read on demand."""

    def __init__(self, worker: EngineWorker) -> None:
        self._worker = worker

    def collect(self) -> Iterator[Metric]:
        counts = self._worker.counts
        yield GaugeMetricFamily(
            "judgelm_waiting", "Judgments in flight, those in the engine included.", self._worker.in_flight
        )
        for name, meaning, count in (
            ("asked", "Judgments requested.", counts.submitted),
            ("joined", "Of them, judgments that waited for an equal one in flight.", counts.joined),
            ("refused", "Judgments refused because the queue was full.", counts.refused),
            ("answered", "Judgments that ended with a result.", counts.answered),
            ("failed", "Judgments that ended with an error.", counts.failed),
            ("dropped", "Judgments dropped because no client waited for them.", counts.dropped),
        ):
            yield CounterMetricFamily(f"judgelm_{name}", meaning, count)


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


class RequestMiddleware:
    """Counts and records every request, refuses those of others or during shutdown, and answers unexpected errors.

    It sets `owner` in a request's state.

    Args:
        app: the next in ASGI's chain.
        keys: of clients.
        hosts: by which clients may use a server without keys.
        metrics: the server's counters.
        traffic: the server's requests.
        request_log: gets a line for each request; None writes none.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        keys: ApiKeys,
        hosts: KnownHosts,
        metrics: Metrics,
        traffic: Traffic,
        request_log: RequestLog | None,
    ) -> None:
        self._app = app
        self._keys = keys
        self._hosts = hosts
        self._metrics = metrics
        self._traffic = traffic
        self._log = request_log

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        scope.setdefault("state", {})

        def count() -> None:
            self._metrics.count(exchange.record(scope, time.perf_counter() - began))

        exchange = _Exchange(receive, send, count, keep=self._log is not None and self._log.texts)
        self._traffic.in_flight += 1
        try:
            await self._answer(scope, exchange)
        finally:
            self._traffic.in_flight -= 1
            exchange.end()
            if self._log is not None and scope["path"] not in PROBES:
                self._log.write(exchange.record(scope, time.perf_counter() - began), exchange.bodies)

    async def _answer(self, scope: Scope, exchange: "_Exchange") -> None:
        try:
            error = self._refusal(scope)
            if error is None:
                await self._app(scope, exchange.receive, exchange.send)
                return
        except asyncio.CancelledError:  # uvicorn ends at once; an error would be a traceback in the log
            if not self._traffic.closing:
                raise
            if exchange.status:
                return  # uvicorn closes the connection
            error = shutdown_error()
        except Exception:
            log.exception("internal error")
            if exchange.status:  # the reply has begun: only closing the connection can signal the error
                raise
            error = HttpError(500, "internal_error", "internal error; see the server log")
        scope["state"]["error"] = error.code
        await error.response()(scope, exchange.receive, exchange.send)

    def _refusal(self, scope: Scope) -> HttpError | None:
        if scope["path"] in PROBES:
            return None
        owner = self._keys.owner(scope["headers"])
        if owner is None:
            headers = {"WWW-Authenticate": "Bearer", **CLOSE}
            return HttpError(401, "invalid_api_key", "missing or invalid API key", headers=headers)
        scope["state"]["owner"] = owner
        if not self._keys and (refusal := self._hosts.refusal(scope["headers"])) is not None:
            return refusal
        return shutdown_error() if self._traffic.closing else None


class _Exchange:
    """A request and its reply as they pass: the reply gets its id, and bodies are kept where they are to be logged.

    `count` is called once, before the reply's last piece is sent: a client that has read it finds it in `/metrics`.
    """

    def __init__(self, receive: Receive, send: Send, count: Callable[[], None], *, keep: bool) -> None:
        self.status = 0
        self._id = uuid4().hex
        self._receive = receive
        self._send = send
        self._count = count
        self._ended = False
        self._kept = (bytearray(), bytearray()) if keep else None

    async def receive(self) -> Message:
        message = await self._receive()
        if self._kept is not None:
            self._kept[0].extend(message.get("body", b""))
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", self._id.encode())]}
        else:
            if self._kept is not None:
                self._kept[1].extend(message.get("body", b""))
            if not message.get("more_body", False):
                self.end()
        await self._send(message)

    def end(self) -> None:
        if not self._ended:
            self._ended = True
            self._count()

    @property
    def bodies(self) -> tuple[bytes, bytes] | None:
        """Of request and reply, where they are kept."""
        return None if self._kept is None else (bytes(self._kept[0]), bytes(self._kept[1]))

    def record(self, scope: Scope, duration_s: float) -> RequestRecord:
        """The request's record, at its end."""
        state = scope["state"]
        prompt_tokens, completion_tokens = state.get("tokens", (None, 0))
        return RequestRecord(
            id=self._id,
            method=scope["method"],
            route=getattr(scope.get("route"), "path_format", "other"),
            status=self.status,
            judge=state.get("judge", ""),
            dialect=state.get("dialect", ""),
            error=state.get("error", ""),
            duration_s=duration_s,
            prompt_tokens=prompt_tokens,
            completion_tokens=completion_tokens,
            failures=state.get("failures", ()),
        )
