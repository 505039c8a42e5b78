"""The judges on a server, keyed by name: the base judge, and LoRA adapters for the same model."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from fastapi import APIRouter, Request
from starlette.responses import Response

from judgelm.engines.base import HoldsAdapters
from judgelm.errors import ConfigError, EngineError, InputError, ModelError, ShutdownError
from judgelm.modes.flow import RequestFlow
from judgelm.serving.access import EVERYONE
from judgelm.serving.handler import JudgeHandler
from judgelm.serving.http_errors import HttpError, json_response, read_json
from judgelm.serving.schemas import replies, request_body
from judgelm.serving.settings import ServerSettings

_IDLE_CHECK_S = 0.05
_MAX_LOADED = 64


class ServedJudges:
    """Looks up judges by name, and loads and unloads adapters while the server is running.

    An adapter belongs to the API key that loaded it; clients with other keys cannot list, use, or unload it. Call all
    methods from the server's event loop.
    """

    def __init__(
        self, base: JudgeHandler, settings: ServerSettings, adapters: Mapping[str, JudgeHandler] | None = None
    ) -> None:
        self.base = base
        self._settings = settings
        self._shared = dict(adapters or {})
        self._loaded: dict[str, dict[str, JudgeHandler]] = {}
        self._is_single = not self._shared and settings.adapters_folder is None
        self._serves_base = self._is_single or base.judge.format.source != "default"
        self._loading: set[tuple[str, str]] = set()

    def listed(self, owner: str = EVERYONE) -> tuple[str, ...]:
        """Return the names that `/v1/models` lists for a client, starting with the default judge."""
        return (*self._base_names(), *self._shared, *self._loaded.get(owner, ()))

    def find(self, name: str | None, owner: str = EVERYONE) -> tuple[str, JudgeHandler]:
        """Return a judge's name and handler, or raise a 404 error. If `name` is None, use the default judge."""
        listed = self.listed(owner)
        if name is None and listed:
            name = listed[0]
        adapter = self._shared.get(str(name)) or self._loaded.get(owner, {}).get(str(name))
        if adapter is not None:
            return str(name), adapter
        accepts_all = self._is_single and not self._settings.names
        if name is None or not (accepts_all or name in self._base_names()):
            message = f"model {str(name)[:100]!r} not found; available: {', '.join(listed) or 'none'}"
            message += "; a server started without --name accepts any name" if self._is_single else ""
            raise HttpError(404, "model_not_found", message, param="model")
        return self._settings.model, self.base

    def card(self, name: str, owner: str = EVERYONE) -> dict[str, Any]:
        """Return a judge's template, scale, and mode. For an adapter, also return the base judge's name."""
        _, handler = self.find(name, owner)
        judge = handler.judge
        form = judge.format
        card: dict[str, Any] = {"template": form.template, "reading": judge.template.reading, "scale": list(form.scale)}
        card |= {"step": form.step, "mode": "reasoned" if judge.reasons_first else "pair"}
        return card | {"base": self._settings.model} if handler is not self.base else card

    async def load(self, name: str, path: str, owner: str = EVERYONE) -> None:
        """Load an adapter from the server's adapters folder. Requests in flight wait while it loads."""
        folder = self._folder(path)
        if name in self.listed(owner) or (owner, name) in self._loading:
            raise HttpError(409, "model_exists", f"{name[:100]!r} already exists; unload it first", param="lora_name")
        adapters = self._loaded.setdefault(owner, {})
        if len(adapters) + sum(loading[0] == owner for loading in self._loading) >= _MAX_LOADED:
            raise HttpError(429, "too_many_adapters", f"{_MAX_LOADED} adapters are already loaded; unload one first")
        self._loading.add((owner, name))
        try:
            judge = await asyncio.to_thread(self.base.judge.with_adapter, str(folder))
            handler = JudgeHandler(judge, self.base.worker, self.base.options)
            engine = cast(HoldsAdapters, self.base.judge.engine)
            await self._in_engine_thread(lambda: engine.load_adapter(str(handler.adapter)))
        except ShutdownError:
            raise
        except (ModelError, EngineError) as error:
            raise HttpError(400, "adapter_not_loaded", str(error), param="lora_path") from error
        finally:
            self._loading.discard((owner, name))
        adapters[name] = handler

    async def unload(self, name: str, owner: str = EVERYONE) -> None:
        """Reject new requests for an adapter immediately, and unload it once its requests in flight finish."""
        self._check_allowed()
        adapters = self._loaded.get(owner, {})
        if name in self._shared:
            if len(self._settings.api_keys) > 1:
                message = f"model {name[:100]!r} is shared by all API keys; restart the server without it"
                raise HttpError(403, "shared_model", message, param="lora_name")
            adapters = self._shared
        if name not in adapters:
            others = ", ".join((*self._shared, *adapters))
            message = f"model {name[:100]!r} is not an adapter on this server; available: {others}"
            raise HttpError(404, "model_not_found", message, param="lora_name")
        handler = adapters.pop(name)
        if self._is_used(handler):
            return  # the adapter is also loaded under another name
        engine = cast(HoldsAdapters, self.base.judge.engine)
        is_freed = False
        while not is_freed:
            await asyncio.sleep(_IDLE_CHECK_S)
            if self._is_used(handler):
                return  # the adapter was loaded again
            if handler.in_flight == 0:
                is_freed = await self._in_engine_thread(lambda: engine.unload_adapter(str(handler.adapter)))

    def _is_used(self, handler: JudgeHandler) -> bool:
        holders = (self._shared, *self._loaded.values())
        return any(other.adapter == handler.adapter for adapters in holders for other in adapters.values())

    def _base_names(self) -> tuple[str, ...]:
        return self._settings.listed if self._serves_base else ()

    def _check_allowed(self) -> None:
        if self._settings.adapters_folder is None:
            raise HttpError(403, "loading_not_allowed", "start the server with --adapters-folder FOLDER to enable this")

    def _folder(self, path: str) -> Path:
        self._check_allowed()
        root = Path(str(self._settings.adapters_folder)).resolve()
        try:
            folder = (root / path).resolve()
            is_folder = folder.is_relative_to(root) and folder.is_dir()
        except (OSError, ValueError, RuntimeError):  # name too long, NUL character, symlink loop
            is_folder = False
        if not is_folder:
            message = f"{path[:200]}: no such folder in the server's --adapters-folder"
            raise HttpError(400, "adapter_not_loaded", message, param="lora_path")
        return folder

    async def _in_engine_thread(self, work: Callable[[], Any]) -> Any:

        def flow() -> RequestFlow[Any]:
            return work()
            yield []  # a flow without requests

        return await asyncio.wrap_future(self.base.worker.submit(flow))


def adapter_handlers(base: JudgeHandler, adapters: Mapping[str, str]) -> dict[str, JudgeHandler]:
    """Create handlers for adapters (folders or hub ids, keyed by name) that share the base judge's engine."""
    judges = {name: base.judge.with_adapter(adapter) for name, adapter in adapters.items()}
    return {name: JudgeHandler(judge, base.worker, base.options) for name, judge in judges.items()}


def read_adapters(options: list[str]) -> dict[str, str]:
    """Parse `--judge NAME=ADAPTER` options.

    Raises:
        ConfigError: an option is malformed, or a name is repeated.
    """
    adapters: dict[str, str] = {}
    for option in options:
        name, equals, adapter = option.partition("=")
        if not (name and equals and adapter):
            raise ConfigError(f"--judge {option}: expected NAME=ADAPTER, for example helpfulness=my-adapter")
        if name in adapters:
            raise ConfigError(f"--judge {option}: the name {name} is already in use; choose a different name")
        adapters[name] = adapter
    return adapters


_MAX_NAME = 256


def adapter_routes(judges: ServedJudges, settings: ServerSettings) -> APIRouter:
    """Return the routes for loading and unloading adapters."""
    router = APIRouter()

    async def load(request: Request) -> Response:
        name, path = await _texts(request, settings, "lora_name", "lora_path")
        if len(name) > _MAX_NAME or not name.isprintable():
            raise InputError(f'"lora_name": expected a printable string of at most {_MAX_NAME} characters')
        await judges.load(name, path, request.state.owner)
        return json_response({"id": name, "object": "model", "loaded": True})

    async def unload(request: Request) -> Response:
        [name] = await _texts(request, settings, "lora_name")
        await judges.unload(name, request.state.owner)
        return json_response({"id": name, "object": "model", "loaded": False})

    for path, endpoint, summary, body in (
        ("/v1/load_lora_adapter", load, "Load a LoRA adapter from the server's adapters folder as a judge", "LoadBody"),
        ("/v1/unload_lora_adapter", unload, "Unload a LoRA adapter once its requests in flight finish", "UnloadBody"),
    ):
        router.post(path, summary=summary, responses=replies("Loaded"), openapi_extra=request_body(body))(endpoint)
    return router


async def _texts(request: Request, settings: ServerSettings, *names: str) -> list[str]:
    body = await read_json(request, settings)
    texts = [body.get(name) for name in names]
    for name, text in zip(names, texts, strict=True):
        if not isinstance(text, str) or not text:
            raise InputError(f'"{name}": expected a non-empty string')
    return [str(text) for text in texts]
