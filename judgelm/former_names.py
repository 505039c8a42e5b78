"""The names that version 0.1 gave to options, modules and classes; files, commands and scripts may still use them."""

import sys
import warnings
from collections.abc import Callable, Collection, Mapping
from importlib import import_module
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_loader
from types import ModuleType
from typing import Any

from judgelm.errors import ConfigError

FORMER_NAMES = {
    "batch_tokens": "max_num_batched_tokens",
    "max_sequences": "max_num_seqs",
    "window_tokens": "max_model_len",
    "solves": "self_answers",
    "tie_band": "tie_threshold",
    "close_band": "close_threshold",
    "repair": "retry_unparseable",
    "most_waiting": "max_queue",
}
"""Former name -> name."""

FORMER_MODULES = {
    "judgelm.runner": "judgelm.runs.runner",
    "judgelm.runfile": "judgelm.runs.run_files",
    "judgelm.engines.openai_options": "judgelm.engines.openai.options",
    "judgelm.metrics.ordered_logit": "judgelm.metrics.self_bias.ordered_logit",
    "judgelm.metrics.qa_match": "judgelm.metrics.qa.match",
    "judgelm.metrics.self_preference": "judgelm.metrics.qa.self_preference",
    "judgelm.dialects.anchors": "judgelm.dialects.splits",
    "judgelm.dialects.reading": "judgelm.dialects.request_body",
    "judgelm.prompts.neutralise": "judgelm.prompts.sanitization",
}
"""Former module -> module, of those that the documentation of version 0.1 named."""

FORMER_SYMBOLS = {
    "judgelm.metrics.self_bias.BiasFit": "judgelm.metrics.self_bias.regression.BiasFit",
    "judgelm.metrics.self_bias.Term": "judgelm.metrics.self_bias.regression.Term",
    "judgelm.metrics.self_bias.TooFewRatings": "judgelm.metrics.self_bias.regression.TooFewRatings",
    "judgelm.metrics.self_bias.fit_self_bias": "judgelm.metrics.self_bias.regression.fit_self_bias",
    "judgelm.metrics.self_bias.wald_terms": "judgelm.metrics.self_bias.regression.wald_terms",
    "judgelm.prompts.neutralise.Neutraliser": "judgelm.prompts.sanitization.Sanitizer",
    "judgelm.records.Cut": "judgelm.records.Truncation",
    "judgelm.records.Solve": "judgelm.records.SelfAnswer",
    "judgelm.studies.evaluation.FailureTreatment": "judgelm.studies.evaluation.FailureHandling",
}
"""Former symbol -> symbol, of the same documentation."""


def current_names(options: Mapping[str, Any], known: Collection[str]) -> dict[str, Any]:
    """Rename options given under a former name.

    Args:
        options: by name.
        known: names that are valid here; a former name among them is not renamed.

    Raises:
        ConfigError: an option is given under both names.
    """
    renamed = {name: current_name(name, known) for name in options}
    for former, name in renamed.items():
        if former != name and name in options:
            raise ConfigError(f"{former} is the former name of {name}; give only {name}")
    return {renamed[name]: value for name, value in options.items()}


def current_name(name: str, known: Collection[str]) -> str:
    """The name of an option today, where it is valid here; else the name as it is."""
    current = FORMER_NAMES.get(name, name)
    return current if current in known and name not in known else name


def former_attributes(module: str) -> Callable[[str], Any]:
    """The `__getattr__` of a module, which finds its former symbols and warns that they have new names."""

    def find(name: str) -> Any:
        former = f"{module}.{name}"
        current = FORMER_SYMBOLS.get(former)
        if current is None and (moved := FORMER_MODULES.get(module)) is not None and not name.startswith("__"):
            current = f"{moved}.{name}"
        if current is None:
            raise AttributeError(f"module {module!r} has no attribute {name!r}")
        container, _, symbol = current.rpartition(".")
        value = getattr(import_module(container), symbol)
        warnings.warn(f"{former} is now {current}", DeprecationWarning, stacklevel=2)
        return value

    return find


class _FormerModules(MetaPathFinder, Loader):
    """Imports former modules as empty ones whose attributes are those of today's module."""

    def find_spec(self, fullname: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return spec_from_loader(fullname, self) if fullname in FORMER_MODULES else None

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: ModuleType) -> None:
        vars(module)["__getattr__"] = former_attributes(module.__name__)


def find_former_modules() -> None:
    """Let former modules be imported."""
    if not any(isinstance(finder, _FormerModules) for finder in sys.meta_path):
        sys.meta_path.append(_FormerModules())
