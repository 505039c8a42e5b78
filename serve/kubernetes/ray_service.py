"""Replicas of one judge behind Ray Serve, by the parts of `judgelm serve`: for KubeRay's RayService or any cluster.

    cd serve/kubernetes && serve run ray_service.py:build model=/shared/my-judge both_orders=true
    kubectl -n judgelm apply -f serve/kubernetes/ray_service.yaml

Each replica loads the judge once and answers OpenAI's API as `judgelm serve` does; Ray Serve spreads the requests and
replaces replicas that fail. Needs `pip install '.[ray,serve]' 'ray[serve]'` in a clone. Keys are read from
JUDGELM_API_KEYS (none: everybody who reaches the port may ask). Sizes of bodies are limited here, times of headers by
Ray's proxy.
"""

from typing import Any

from fastapi import FastAPI
from pydantic import BaseModel, ConfigDict, Field
from ray import serve
from ray.serve import Application

from judgelm import Judge
from judgelm.serving.app import create_app
from judgelm.serving.engine_worker import EngineWorker
from judgelm.serving.handler import HandlerOptions, JudgeHandler
from judgelm.serving.settings import ServerSettings, public_name, read_keys


class ServiceOptions(BaseModel):
    """Arguments of the application, from the command line or `args` in `serveConfigV2`.

    Attributes:
        model: folder that all nodes see, or hub id; of the scripted engine the reply.
        engine: as for `judgelm serve`.
        names: model names that clients may use; empty accepts all.
        both_orders: judge each pair in both orders.
        reasons: give the judge's own reason where a reply has room for one.
        options: further arguments of `judgelm.Judge`, such as `dtype` and `adapter`.
        replicas: number of replicas.
        gpus: GPUs of each replica.
        max_requests: requests that a replica has at once, which its engine batches.
    """

    model_config = ConfigDict(extra="forbid")
    model: str
    engine: str = "auto"
    names: tuple[str, ...] = ()
    both_orders: bool = False
    reasons: bool = False
    options: dict[str, Any] = Field(default_factory=dict)
    replicas: int = Field(default=1, ge=1)
    gpus: float = Field(default=0, ge=0)
    max_requests: int = Field(default=256, ge=1)


@serve.deployment(health_check_period_s=10, graceful_shutdown_timeout_s=90)
@serve.ingress()
class JudgeReplica:
    """One copy of the judge and its server."""

    def __init__(self, options: ServiceOptions) -> None:
        self._judge = Judge(options.model, engine=options.engine, **options.options)
        self._worker = EngineWorker(self._judge.engine)
        handler_options = HandlerOptions(both_orders=options.both_orders, reasons=options.reasons)
        settings = ServerSettings(
            model=public_name(options.model, options.engine), names=options.names, api_keys=read_keys([], None)
        )
        self._app = create_app(JudgeHandler(self._judge, self._worker, handler_options), settings)

    def __serve_build_asgi_app__(self) -> FastAPI:
        """The app of this replica, which Ray Serve asks for once the judge is loaded."""
        return self._app

    def check_health(self) -> None:
        """Have Ray Serve replace this replica once its engine has failed.

        Raises:
            RuntimeError: the engine failed.
        """
        if self._worker.broken is not None:
            raise RuntimeError(f"the judge's engine failed: {self._worker.broken}")

    def __del__(self) -> None:
        """End the engine after the requests in flight, for which Ray Serve waits first."""
        self._worker.close()
        self._judge.close()


def build(options: ServiceOptions) -> Application:
    """The application that `serve run` and RayService deploy."""
    deployment = JudgeReplica.options(
        num_replicas=options.replicas,
        max_ongoing_requests=options.max_requests,
        ray_actor_options={"num_gpus": options.gpus},
    )
    return deployment.bind(options)
