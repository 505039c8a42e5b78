"""The ASGI application: OpenAI's API and judgelm's own routes, before one judge.

app = create_app(JudgeHandler(judge, EngineWorker(judge.engine)), ServerSettings(model="my-judge"))
uvicorn.run(app)
"""

import hashlib
import hmac
import json
import logging
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from judgelm.errors import JudgelmError
from judgelm.serving import openapi
from judgelm.serving.adapter_routes import adapter_routes
from judgelm.serving.handler import JudgeHandler
from judgelm.serving.http_errors import HttpError, from_judgelm_error, from_routing_error
from judgelm.serving.judges import ServedJudges
from judgelm.serving.limits import ClientGoneError
from judgelm.serving.metrics import Metrics
from judgelm.serving.native_routes import native_routes
from judgelm.serving.openai_routes import openai_routes
from judgelm.serving.responses import UnjudgedError
from judgelm.serving.settings import ServerSettings
from judgelm.version import VERSION

log = logging.getLogger("judgelm.serving")

_HEALTH = "/healthz"
_GONE = 499
_BEARER = b"bearer "
_ABOUT = "An LLM judge behind OpenAI's API. Prompts of known judging clients are answered as those clients expect."


@dataclass(slots=True)
class Traffic:
    """Requests in a server.

    Attributes:
        in_flight: requests whose reply has not ended.
        closing: whether new requests are refused because the server is shutting down.
    """

    in_flight: int = 0
    closing: bool = False


def create_app(
    handler: JudgeHandler, settings: ServerSettings, adapters: Mapping[str, JudgeHandler] | None = None
) -> FastAPI:
    """The app; its `state` has `traffic`, a `Traffic`, and `judges`, the `ServedJudges`.

    The caller closes the handler's worker and the judge.

    Args:
        handler: of the judge.
        settings: of the server.
        adapters: handlers of further judges on the same worker, by name: see `judgelm.serving.judges`.

    `/docs` is left out, since it would load scripts from other servers; `/openapi.json` is served.
    """
    metrics = Metrics(handler.worker)
    judges = ServedJudges(handler, settings, adapters)
    traffic = Traffic()
    app = FastAPI(
        title="judgelm", version=VERSION, description=_ABOUT, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    app.state.traffic = traffic
    app.state.judges = judges
    app.include_router(openai_routes(judges, settings, metrics))
    app.include_router(native_routes(judges, settings, metrics))
    app.include_router(adapter_routes(judges, settings))
    _add_upkeep(app, handler, metrics)
    _add_errors(app, handler, metrics)
    app.add_middleware(_RequestMiddleware, keys=ApiKeys(settings.api_keys), metrics=metrics, traffic=traffic)
    return app


class ApiKeys:
    """API keys of clients.

    All digests are compared, each in constant time, so that the time reveals nothing about a key, not even its length.
    """

    def __init__(self, keys: Iterable[str]) -> None:
        self._digests = [_digest(key.encode()) for key in keys]

    def accept(self, headers: Iterable[tuple[bytes, bytes]]) -> bool:
        """True where the headers have a key: `Authorization: Bearer KEY`, or `api-key: KEY` as sent by Azure's clients.

        Args:
            headers: names in lower case, as in ASGI.
        """
        if not self._digests:
            return True
        accepted = False
        for name, value in headers:
            if name == b"authorization" and value[: len(_BEARER)].lower() == _BEARER:
                sent = _digest(value[len(_BEARER) :].strip())
            elif name == b"api-key":
                sent = _digest(value.strip())
            else:
                continue
            for known in self._digests:
                accepted |= hmac.compare_digest(sent, known)
        return accepted


def _digest(key: bytes) -> bytes:
    return hashlib.sha256(key).digest()


class _RequestMiddleware:
    """Counts every request, refuses it on a wrong key or during shutdown, and turns unexpected errors into a reply."""

    def __init__(self, app: ASGIApp, *, keys: ApiKeys, metrics: Metrics, traffic: Traffic) -> None:
        self._app = app
        self._keys = keys
        self._metrics = metrics
        self._traffic = traffic

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        status = 0

        async def note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        async def refuse(error: HttpError) -> None:
            self._metrics.error(error.code)
            await error.response()(scope, receive, note)

        scope.setdefault("state", {})
        self._traffic.in_flight += 1
        try:
            refusal = self._refusal(scope)
            await (self._app(scope, receive, note) if refusal is None else refuse(refusal))
        except Exception:
            log.exception("internal error")
            if status:  # the reply has begun: only closing the connection can signal the error
                raise
            await refuse(HttpError(500, "internal_error", "internal error; see the server log"))
        finally:
            self._traffic.in_flight -= 1
            route, state = getattr(scope.get("route"), "path_format", "other"), scope["state"]
            duration_s = time.perf_counter() - began
            self._metrics.request(route, status, state.get("dialect", ""), state.get("judge", ""), duration_s)

    def _refusal(self, scope: Scope) -> HttpError | None:
        if scope["path"] == _HEALTH:
            return None
        if not self._keys.accept(scope["headers"]):
            headers = {"WWW-Authenticate": "Bearer", "Connection": "close"}
            return HttpError(401, "invalid_api_key", "missing or invalid API key", headers=headers)
        if self._traffic.closing:
            headers = {"Retry-After": "5", "Connection": "close"}
            return HttpError(503, "shutting_down", "the server is shutting down; try again later", headers=headers)
        return None


def _add_upkeep(app: FastAPI, handler: JudgeHandler, metrics: Metrics) -> None:
    """The routes for operators of the server."""

    async def health() -> Response:
        if handler.worker.broken is not None:
            log.error("not healthy: %s", handler.worker.broken)
            raise HttpError(503, "engine_unavailable", "the judge's engine failed; see the server log")
        if app.state.traffic.closing:
            raise HttpError(503, "shutting_down", "the server is shutting down")
        state = {"status": "ok", "waiting": handler.worker.in_flight}
        return Response(json.dumps(state), media_type="application/json")

    async def prometheus() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    app.add_api_route(_HEALTH, health, methods=["GET"], openapi_extra=openapi.HEALTH)
    app.add_api_route("/metrics", prometheus, methods=["GET"], openapi_extra=openapi.METRICS)


def _add_errors(app: FastAPI, handler: JudgeHandler, metrics: Metrics) -> None:
    """Every error in OpenAI's form."""

    def respond(error: HttpError) -> Response:
        metrics.error(error.code)
        return error.response()

    async def http(request: Request, error: HttpError) -> Response:
        return respond(error)

    async def judgelm(request: Request, error: JudgelmError) -> Response:
        if isinstance(error, UnjudgedError):
            metrics.failure(request.scope["state"].get("judge", ""), error.failure.code)
        return respond(from_judgelm_error(error, handler.worker.retry_after_s()))

    async def several(request: Request, error: ExceptionGroup[Exception]) -> Response:
        """Errors of several samples of one request; the first is reported."""
        first = error.exceptions[0]
        if isinstance(first, JudgelmError):
            return await judgelm(request, first)
        raise error

    async def routing(request: Request, error: HTTPException) -> Response:
        return respond(from_routing_error(error.status_code, request.url.path, error.headers))

    async def too_deep(request: Request, error: RecursionError) -> Response:
        return respond(HttpError(400, "invalid_json", "the body is nested too deeply"))

    async def gone(request: Request, error: ClientGoneError) -> Response:
        return Response(status_code=_GONE)  # not read by anybody; the metrics count it

    for kind, on_error in (
        (HttpError, http), (JudgelmError, judgelm), (ExceptionGroup, several), (HTTPException, routing),
        (RecursionError, too_deep), (ClientGoneError, gone),
    ):  # fmt: skip
        app.add_exception_handler(kind, on_error)  # type: ignore[arg-type]
