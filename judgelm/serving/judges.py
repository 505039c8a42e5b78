"""The judges of one server by name: the one that it was started with, and LoRA adapters on that one's model."""

import asyncio
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, cast

from fastapi import APIRouter, Request
from starlette.responses import Response

from judgelm.engines.base import HoldsAdapters
from judgelm.errors import ConfigError, EngineError, ModelError
from judgelm.judge import Judge
from judgelm.modes.flow import RequestFlow
from judgelm.serving.engine_worker import EngineWorker
from judgelm.serving.handler import JudgeHandler
from judgelm.serving.http_errors import HttpError, json_response, read_json
from judgelm.serving.schemas import replies, request_body
from judgelm.serving.settings import ServerSettings

_IDLE_CHECK_S = 0.05


class ServedJudges:
    """Finds the judge that a request names; loads and unloads adapters while the server runs.

    Its methods belong to the server's event loop. The engine is shared: requests of all judges are batched together.

    Args:
        base: the handler of the judge that the server was started with.
        settings: names of that judge, and the folder from which adapters may be loaded.
        adapters: handlers of judges on the same worker, by name.
    """

    def __init__(
        self, base: JudgeHandler, settings: ServerSettings, adapters: Mapping[str, JudgeHandler] | None = None
    ) -> None:
        self.base = base
        self._settings = settings
        self._adapters = dict(adapters or {})
        self._is_single = not self._adapters and settings.adapters_folder is None
        self._serves_base = self._is_single or base.judge.format.source != "default"
        self._loading: set[str] = set()

    @property
    def worker(self) -> EngineWorker:
        """Drives the engine of all of them."""
        return self.base.worker

    @property
    def listed(self) -> tuple[str, ...]:
        """Names at `/v1/models`, the one of requests that name none first."""
        return (*(self._settings.listed if self._serves_base else ()), *self._adapters)

    def find(self, name: str | None) -> tuple[str, JudgeHandler]:
        """A judge's own name and its handler.

        Args:
            name: a client's; None takes the first judge that is listed.

        Raises:
            HttpError: no judge of that name (404).
        """
        listed = self.listed
        if name is None and listed:
            name = listed[0]
        if name in self._adapters:
            return str(name), self._adapters[str(name)]
        if name is None or not (self._settings.accepts(name) if self._is_single else self._is_base(name)):
            message = f"model {str(name)[:100]!r} not found; available: {', '.join(listed) or 'none'}"
            message += "; a server started without --name takes every name" if self._is_single else ""
            raise HttpError(404, "model_not_found", message, param="model")
        return self._settings.model, self.base

    def card(self, name: str) -> dict[str, Any]:
        """The prompting of the judge of that name: its template, its scale and the mode that judges its pairs.

        An adapter's has the name of the judge whose model it shares as `base`.
        """
        _, handler = self.find(name)
        judge = handler.judge
        form = judge.format
        card: dict[str, Any] = {
            "template": form.template,
            "reading": judge.template.reading,
            "scale": list(form.scale),
            "step": form.step,
            "mode": "reasoned" if judge.reasons_first else "pair",
        }
        return card | {"base": self._settings.model} if handler is not self.base else card

    async def load(self, name: str, path: str) -> None:
        """Load an adapter as a judge of that name; requests in flight wait while it is read.

        Args:
            name: that clients will use.
            path: of its folder, relative to the settings' folder or within it.

        Raises:
            HttpError: loading is not allowed (403), the name is taken (409), or the adapter cannot be loaded (400).
        """
        folder = self._folder(path)
        if name in (*self.listed, *self._loading):
            raise HttpError(409, "model_exists", f"model {name[:100]!r} exists; unload it first", param="lora_name")
        self._loading.add(name)
        try:
            judge = await asyncio.to_thread(self.base.judge.with_adapter, str(folder))
            handler = JudgeHandler(judge, self.worker, self.base.options)
            engine = cast(HoldsAdapters, self.base.judge.engine)
            await self._in_engine_thread(lambda: engine.load_adapter(str(handler.adapter)))
        except (ModelError, EngineError) as error:
            raise HttpError(400, "adapter_not_loaded", str(error), param="lora_path") from error
        finally:
            self._loading.discard(name)
        self._adapters[name] = handler

    async def unload(self, name: str) -> None:
        """Refuse new requests for an adapter at once, and free it when those in flight are answered.

        Raises:
            HttpError: loading is not allowed (403), or it is no adapter (404).
        """
        self._check_allowed()
        if name not in self._adapters:
            message = f"model {name[:100]!r} is no adapter of this server; available: {', '.join(self._adapters)}"
            raise HttpError(404, "model_not_found", message, param="lora_name")
        handler = self._adapters.pop(name)
        if any(other.adapter == handler.adapter for other in self._adapters.values()):
            return  # the same adapter under another name
        engine = cast(HoldsAdapters, self.base.judge.engine)
        is_freed = False
        while not is_freed:
            await asyncio.sleep(_IDLE_CHECK_S)
            if any(other.adapter == handler.adapter for other in self._adapters.values()):
                return  # loaded again meanwhile
            if handler.in_flight == 0:
                is_freed = await self._in_engine_thread(lambda: engine.unload_adapter(str(handler.adapter)))

    def _is_base(self, name: str) -> bool:
        return self._serves_base and name in self._settings.listed

    def _check_allowed(self) -> None:
        if self._settings.adapters_folder is None:
            raise HttpError(403, "loading_not_allowed", "start the server with --adapters-folder FOLDER to allow this")

    def _folder(self, path: str) -> Path:
        """The adapter's folder, inside the one that the server's owner named."""
        self._check_allowed()
        root = Path(str(self._settings.adapters_folder)).resolve()
        try:
            folder = (root / path).resolve()
            is_folder = folder.is_relative_to(root) and folder.is_dir()
        except (OSError, ValueError, RuntimeError):  # too long a name, a NUL, a loop of links
            is_folder = False
        if not is_folder:
            message = f"{path[:200]}: no folder within the server's --adapters-folder"
            raise HttpError(400, "adapter_not_loaded", message, param="lora_path")
        return folder

    async def _in_engine_thread(self, work: Callable[[], Any]) -> Any:
        """The result of work on the engine, done between two of its passes."""

        def flow() -> RequestFlow[Any]:
            return work()
            yield []  # a flow without requests

        return await asyncio.wrap_future(self.worker.submit(flow))


def adapter_handlers(base: JudgeHandler, adapters: Mapping[str, str]) -> dict[str, JudgeHandler]:
    """The handlers of adapters that the base's engine holds from its start, by name.

    Args:
        base: handler of the judge whose model they share.
        adapters: folders or hub ids by name.

    Raises:
        ModelError, ConfigError: as `Judge.with_adapter`.
    """
    judges: dict[str, Judge] = {name: base.judge.with_adapter(adapter) for name, adapter in adapters.items()}
    return {name: JudgeHandler(judge, base.worker, base.options) for name, judge in judges.items()}


def read_adapters(options: list[str]) -> dict[str, str]:
    """Adapters by name, of options `NAME=ADAPTER`.

    Raises:
        ConfigError: an option has another form, or a name comes twice.
    """
    adapters: dict[str, str] = {}
    for option in options:
        name, equals, adapter = option.partition("=")
        if not (name and equals and adapter):
            raise ConfigError(f"--judge {option}: expected NAME=ADAPTER, such as helpfulness=my-adapter")
        if name in adapters:
            raise ConfigError(f"--judge {option}: the name {name} comes twice; choose another one")
        adapters[name] = adapter
    return adapters


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
        return json_response({"id": name, "object": "model", "loaded": True})

    async def unload(request: Request) -> Response:
        [name] = await _texts(request, settings, "lora_name")
        await judges.unload(name)
        return json_response({"id": name, "object": "model", "loaded": False})

    router.post(
        "/v1/load_lora_adapter",
        summary="Load a LoRA adapter as a judge, from the server's folder of adapters",
        responses=replies("Loaded"),
        openapi_extra=request_body("LoadBody"),
    )(load)
    router.post(
        "/v1/unload_lora_adapter",
        summary="Unload a judge that is an adapter, when its requests in flight are answered",
        responses=replies("Loaded"),
        openapi_extra=request_body("UnloadBody"),
    )(unload)
    return router


async def _texts(request: Request, settings: ServerSettings, *names: str) -> list[str]:
    body = await read_json(request, settings)
    texts = [body.get(name) for name in names]
    for name, text in zip(names, texts, strict=True):
        if not isinstance(text, str) or not text:
            raise HttpError(400, "invalid_value", f'"{name}": expected a text', param=name)
    return [str(text) for text in texts]
