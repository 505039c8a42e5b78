"""The ASGI app, with the OpenAI API and judgelm's own routes.

app = create_app(JudgeHandler(judge, EngineWorker(judge.engine)), ServerSettings(model="my-judge"))
uvicorn.run(app)
"""

import logging
from collections.abc import Mapping

from fastapi import FastAPI, Request
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.responses import Response

from judgelm.errors import JudgelmError
from judgelm.package import VERSION
from judgelm.serving.access import ApiKeys, KnownHosts
from judgelm.serving.chat_response import UnjudgedError
from judgelm.serving.handler import JudgeHandler
from judgelm.serving.http_errors import HttpError, from_judgelm_error, from_routing_error, json_response, shutdown_error
from judgelm.serving.judges import ServedJudges
from judgelm.serving.metrics import Metrics
from judgelm.serving.middleware import RequestMiddleware, Traffic
from judgelm.serving.native_routes import native_routes
from judgelm.serving.openai_routes import CompletionHandler, openai_routes
from judgelm.serving.request_log import RequestLog
from judgelm.serving.responses_and_messages import other_routes
from judgelm.serving.schemas import ERRORS, replies
from judgelm.serving.settings import ServerSettings

log = logging.getLogger("judgelm.serving")

_GONE = 499
_ABOUT = """\
An LLM judge behind the OpenAI API. Prompts from supported clients are answered in the format that the client expects.

A server without keys returns 421 for unknown host names and 403 for cross-site requests. JSON bodies with duplicate
keys get a 400."""


def create_app(
    handler: JudgeHandler,
    settings: ServerSettings,
    adapters: Mapping[str, JudgeHandler] | None = None,
    *,
    request_log: RequestLog | None = None,
) -> FastAPI:
    """Create the app. The app's `state` has the attributes `traffic` and `judges`.

    The caller must close the worker, the judge, and the request log. `adapters` are additional judges that share the
    worker, keyed by name. `/docs` is disabled because it would load third-party scripts.
    """
    metrics = Metrics(handler.worker, handler.options.unknown_prompts)
    judges = ServedJudges(handler, settings, adapters)
    traffic = Traffic()
    app = FastAPI(
        title="judgelm", version=VERSION, description=_ABOUT, docs_url=None, redoc_url=None, redirect_slashes=False,
        responses=ERRORS,
    )  # fmt: skip
    app.state.traffic = traffic
    app.state.judges = judges
    completions = CompletionHandler(judges, settings)
    app.include_router(openai_routes(completions, judges))
    app.include_router(other_routes(completions))
    app.include_router(native_routes(judges, settings))
    _add_operations(app, handler, metrics)
    _add_errors(app, handler)
    keys, hosts = ApiKeys(settings.api_keys), KnownHosts(settings.host, settings.allowed_hosts)
    app.add_middleware(
        RequestMiddleware, keys=keys, hosts=hosts, metrics=metrics, traffic=traffic, request_log=request_log
    )
    return app


def _add_operations(app: FastAPI, handler: JudgeHandler, metrics: Metrics) -> None:
    async def live() -> Response:
        if handler.worker.broken is not None:
            log.error("health check failed: %s", handler.worker.broken)
            raise HttpError(503, "engine_unavailable", "the judge's engine failed; see the server log")
        return json_response({"status": "ok"})

    async def ready() -> Response:
        await live()
        if app.state.traffic.closing:
            raise shutdown_error()
        return json_response({"status": "ok", "waiting": handler.worker.in_flight})

    async def prometheus() -> Response:
        return Response(metrics.text(), media_type="text/plain; version=0.0.4; charset=utf-8")

    plain_text = {"description": "The counters.", "content": {"text/plain": {"schema": {"type": "string"}}}}
    app.get("/livez", summary="Liveness check; still returns 200 during shutdown", responses=replies("Status"))(live)
    for path in ("/readyz", "/healthz", "/health"):
        app.get(path, summary="Readiness check", responses=replies("Status"))(ready)
    app.get("/metrics", summary="Metrics in the Prometheus text format", responses={200: plain_text})(prometheus)


def _add_errors(app: FastAPI, handler: JudgeHandler) -> None:
    async def respond(request: Request, error: HttpError) -> Response:
        request.state.error = error.code
        return error.response()

    async def judgelm(request: Request, error: JudgelmError) -> Response:
        if isinstance(error, UnjudgedError):
            request.state.failures = (error.failure.code,)
        return await respond(request, from_judgelm_error(error, handler.worker.retry_after_s()))

    async def several(request: Request, error: ExceptionGroup[Exception]) -> Response:
        first = error.exceptions[0]
        if isinstance(first, JudgelmError):
            return await judgelm(request, first)
        raise error

    async def routing(request: Request, error: HTTPException) -> Response:
        return await respond(request, from_routing_error(error.status_code, request.url.path, error.headers))

    async def too_deep(request: Request, error: RecursionError) -> Response:
        return await respond(request, HttpError(400, "invalid_json", "the request body is nested too deeply"))

    async def gone(request: Request, error: ClientDisconnect) -> Response:
        return Response(status_code=_GONE)  # the client is gone, but the metrics count the response

    for kind, on_error in (
        (HttpError, respond), (JudgelmError, judgelm), (ExceptionGroup, several), (HTTPException, routing),
        (RecursionError, too_deep), (ClientDisconnect, gone),
    ):  # fmt: skip
        app.add_exception_handler(kind, on_error)  # type: ignore[arg-type]
