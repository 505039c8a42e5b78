"""Modes made of their names and options, which come from a command line, a file or a call."""

from collections.abc import Mapping
from dataclasses import fields
from typing import Any, cast

from pydantic import TypeAdapter, ValidationError

from judgelm.errors import ConfigError, not_found
from judgelm.modes import MODES
from judgelm.modes.flow import BatchMode
from judgelm.modes.options import check_finite

CARD_FIELDS = ("template", "scale", "step", "prompt")
"""Fields that a mode takes from the judge's card, and that are no options."""


def mode_type(name: str) -> type[BatchMode]:
    """The mode of that name.

    Raises:
        ConfigError: not found; the message lists the available ones.
    """
    if name not in MODES:
        raise not_found("mode", name, MODES)
    return MODES[name]


def make_mode(name: str, options: Mapping[str, Any], own: Mapping[str, Any] | None = None) -> BatchMode:
    """A mode with its options checked for name, type and range.

    Args:
        name: key of `MODES`.
        options: fields of the mode.
        own: those of `CARD_FIELDS`, as far as the mode has them; its defaults without.

    Raises:
        ConfigError: no such mode or option, or a value that it cannot have.
    """
    return build_mode(mode_type(name), name, options, own or {})


def build_mode(kind: type[BatchMode], name: str, options: Mapping[str, Any], own: Mapping[str, Any]) -> BatchMode:
    """A mode of this type, as `make_mode` makes those of `MODES`.

    Raises:
        ConfigError: no such option, or a value that it cannot have.
    """
    has = {field.name for field in fields(cast(Any, kind))}
    known = sorted(has - set(CARD_FIELDS))
    if unknown := sorted(options.keys() - set(known)):
        there_are = f"it has: {', '.join(known)}" if known else "it has none"
        raise ConfigError(f"mode {name}: unknown option {', '.join(unknown)}; {there_are}")
    fixed = {key: value for key, value in own.items() if key in has}
    try:
        made: BatchMode = TypeAdapter(kind).validate_python({**options, **fixed})
    except ValidationError as error:
        findings = "; ".join(
            f"{'.'.join(map(str, finding['loc']))}: {finding['msg']}, got {finding['input']!r:.200}"
            for finding in error.errors()
        )
        raise ConfigError(f"mode {name}: {findings}") from error
    check_finite(made, options)
    return made
