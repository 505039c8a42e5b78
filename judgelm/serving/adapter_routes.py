"""Routes that load and unload adapters while the server runs, by the names that vLLM's server gave them."""

import json

from fastapi import APIRouter, Request
from starlette.responses import Response

from judgelm.serving import openapi
from judgelm.serving.http_errors import HttpError
from judgelm.serving.judges import ServedJudges
from judgelm.serving.limits import read_json
from judgelm.serving.settings import ServerSettings

_LONGEST_NAME = 256


def adapter_routes(judges: ServedJudges, settings: ServerSettings) -> APIRouter:
    """The routes; each answers when its work is done."""
    router = APIRouter()

    async def load(request: Request) -> Response:
        name, path = await _texts(request, settings, "lora_name", "lora_path")
        if len(name) > _LONGEST_NAME or not name.isprintable():
            message = f'"lora_name": expected a printable text of at most {_LONGEST_NAME} characters'
            raise HttpError(400, "invalid_value", message, param="lora_name")
        await judges.load(name, path)
        return _json({"id": name, "object": "model", "loaded": True})

    async def unload(request: Request) -> Response:
        [name] = await _texts(request, settings, "lora_name")
        await judges.unload(name)
        return _json({"id": name, "object": "model", "loaded": False})

    router.add_api_route("/v1/load_lora_adapter", load, methods=["POST"], openapi_extra=openapi.LOAD_ADAPTER)
    router.add_api_route("/v1/unload_lora_adapter", unload, methods=["POST"], openapi_extra=openapi.UNLOAD_ADAPTER)
    return router


async def _texts(request: Request, settings: ServerSettings, *names: str) -> list[str]:
    body = await read_json(request, settings)
    texts = [body.get(name) for name in names]
    for name, text in zip(names, texts, strict=True):
        if not isinstance(text, str) or not text:
            raise HttpError(400, "invalid_value", f'"{name}": expected a text', param=name)
    return [str(text) for text in texts]


def _json(row: dict[str, object]) -> Response:
    return Response(json.dumps(row).encode(), media_type="application/json")
