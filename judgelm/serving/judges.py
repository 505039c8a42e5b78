"""The judges on a server, keyed by name: the base judge, and LoRA adapters for the same model."""

from collections.abc import Mapping
from typing import Any

from judgelm.errors import ConfigError
from judgelm.serving.handler import JudgeHandler
from judgelm.serving.http_errors import HttpError
from judgelm.serving.settings import ServerSettings


class ServedJudges:
    """Looks up judges by name."""

    def __init__(
        self, base: JudgeHandler, settings: ServerSettings, adapters: Mapping[str, JudgeHandler] | None = None
    ) -> None:
        self.base = base
        self._settings = settings
        self._adapters = dict(adapters or {})
        serves_base = not self._adapters or base.judge.format.source != "default"
        self._base_names = settings.listed if serves_base else ()

    @property
    def listed(self) -> tuple[str, ...]:
        """The names that `/v1/models` lists, starting with the default judge."""
        return (*self._base_names, *self._adapters)

    def find(self, name: str | None) -> tuple[str, JudgeHandler]:
        """Return a judge's name and handler, or raise a 404 error. If `name` is None, use the default judge."""
        if name is None:
            name = self.listed[0]
        if name in self._adapters:
            return name, self._adapters[name]
        accepts_all = not self._adapters and not self._settings.names
        if not (accepts_all or name in self._base_names):
            message = f"model {name[:100]!r} not found; available: {', '.join(self.listed)}"
            message += "" if self._adapters else "; a server started without --name accepts any name"
            raise HttpError(404, "model_not_found", message, param="model")
        return self._settings.model, self.base

    def card(self, name: str) -> dict[str, Any]:
        """Return a judge's template, scale, and mode. For an adapter, also return the base judge's name."""
        _, handler = self.find(name)
        judge = handler.judge
        form = judge.format
        card: dict[str, Any] = {"template": form.template, "reading": judge.template.reading, "scale": list(form.scale)}
        card |= {"step": form.step, "mode": "reasoned" if judge.reasons_first else "pair"}
        return card | {"base": self._settings.model} if handler is not self.base else card


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
