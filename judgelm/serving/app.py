"""The server: OpenAI's API in front, one judge behind.

app = create_app(Desk(judge, Service(judge.engine)), ServerSettings(model="my-judge"))
uvicorn.run(app)
"""

import json
import logging
import time
from dataclasses import dataclass

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from judgelm.errors import JudgelmError
from judgelm.serving import openapi as documenting
from judgelm.serving.auth import ApiKeys
from judgelm.serving.handler import JudgeHandler
from judgelm.serving.http_errors import HttpError, from_judgelm_error, from_routing_error
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
_ABOUT = "An LLM judge behind OpenAI's API. Prompts of known judging clients are answered as those clients expect."


@dataclass(slots=True)
class Traffic:
    """What is on its way through a server.

    Attributes:
        in_hand: requests whose reply has not ended.
        closing: whether new requests are refused since the server is about to end.
    """

    in_hand: int = 0
    closing: bool = False


def create_app(desk: JudgeHandler, settings: ServerSettings) -> FastAPI:
    """The app; its `state.traffic` is a `Traffic`. Whoever runs it closes the desk's service and the judge.

    `/docs` is left out, since it would load its page from elsewhere; `/openapi.json` is there.
    """
    metrics = Metrics(desk.service)
    traffic = Traffic()
    app = FastAPI(
        title="judgelm", version=VERSION, description=_ABOUT, docs_url=None, redoc_url=None, redirect_slashes=False
    )
    app.state.traffic = traffic
    app.include_router(openai_routes(desk, settings, metrics))
    app.include_router(native_routes(desk, settings, metrics))
    _add_upkeep(app, desk, metrics)
    _add_errors(app, desk, metrics)
    app.add_middleware(_RequestMiddleware, keys=ApiKeys(settings.api_keys), metrics=metrics, traffic=traffic)
    return app


class _RequestMiddleware:
    """What every request passes first and last.

    It is counted, and refused where the server is closing or the key is wrong; what nobody foresaw ends here.
    """

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
        self._traffic.in_hand += 1
        try:
            refusal = self._refusal(scope)
            await (self._app(scope, receive, note) if refusal is None else refuse(refusal))
        except Exception:
            log.exception("a fault of the server")
            if status:  # the reply has begun: the connection is all that can tell
                raise
            await refuse(HttpError(500, "internal_error", "the server has a fault, which its log names"))
        finally:
            self._traffic.in_hand -= 1
            route = getattr(scope.get("route"), "path_format", "other")
            self._metrics.request(route, status, scope["state"].get("dialect", ""), time.perf_counter() - began)

    def _refusal(self, scope: Scope) -> HttpError | None:
        if scope["path"] == _HEALTH:
            return None
        if not self._keys.admit(scope["headers"]):
            headers = {"WWW-Authenticate": "Bearer", "Connection": "close"}
            return HttpError(401, "invalid_api_key", "no API key of this server came with the request", headers=headers)
        if self._traffic.closing:
            headers = {"Retry-After": "5", "Connection": "close"}
            return HttpError(503, "shutting_down", "the server is shutting down; ask again later", headers=headers)
        return None


def _add_upkeep(app: FastAPI, desk: JudgeHandler, metrics: Metrics) -> None:
    """The routes for those who run the server."""

    async def health() -> Response:
        if desk.service.broken is not None:
            log.error("not healthy: %s", desk.service.broken)
            raise HttpError(503, "engine_unavailable", "the judge's engine broke; the server's log says how")
        if app.state.traffic.closing:
            raise HttpError(503, "shutting_down", "the server is shutting down")
        found = {"status": "ok", "waiting": desk.service.waiting}
        return Response(json.dumps(found), media_type="application/json")

    async def measured() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    app.add_api_route(_HEALTH, health, methods=["GET"], openapi_extra=documenting.HEALTH)
    app.add_api_route("/metrics", measured, methods=["GET"], openapi_extra=documenting.METRICS)


def _add_errors(app: FastAPI, desk: JudgeHandler, metrics: Metrics) -> None:
    """Every error in OpenAI's form."""

    def told(error: HttpError) -> Response:
        metrics.error(error.code)
        return error.response()

    async def http(request: Request, error: HttpError) -> Response:
        return told(error)

    async def judgelm(request: Request, error: JudgelmError) -> Response:
        if isinstance(error, UnjudgedError):
            metrics.failure(error.failure.code)
        return told(from_judgelm_error(error, desk.service.retry_after_s()))

    async def several(request: Request, error: ExceptionGroup[Exception]) -> Response:
        """Of the samples of one request; the first tells enough."""
        first = error.exceptions[0]
        if isinstance(first, JudgelmError):
            return await judgelm(request, first)
        raise error

    async def routing(request: Request, error: HTTPException) -> Response:
        return told(from_routing_error(error.status_code, request.url.path, error.headers))

    async def too_deep(request: Request, error: RecursionError) -> Response:
        return told(HttpError(400, "invalid_json", "the body is nested too deeply"))

    async def gone(request: Request, error: ClientGoneError) -> Response:
        return Response(status_code=_GONE)  # nobody reads it; the metrics count it

    for kind, handler in (
        (HttpError, http), (JudgelmError, judgelm), (ExceptionGroup, several), (HTTPException, routing),
        (RecursionError, too_deep), (ClientGoneError, gone),
    ):  # fmt: skip
        app.add_exception_handler(kind, handler)  # type: ignore[arg-type]
