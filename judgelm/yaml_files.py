"""Parse YAML written by users: configuration files, and the values of `KEY=` options."""

from pathlib import Path
from typing import Any

from judgelm.bounds import read_text
from judgelm.errors import ConfigError

MAX_YAML_BYTES = 8_000_000
"""Parsing uses about a hundred times as much memory as the text."""
_NO_VALUE = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)
"""Errors raised by PyYAML for month 13, an empty `!!int`, or ten thousand brackets."""


def parse_yaml(text: str, *, as_strings: bool = False) -> Any:
    """Parse YAML. With `as_strings`, all scalars are strings, so that the words Yes and No stay words."""
    import yaml  # imported here to keep --help fast

    try:
        name = "BaseLoader" if as_strings else "SafeLoader"
        loader = getattr(yaml, f"C{name}", getattr(yaml, name))(text)
        try:
            if (document := loader.get_single_node()) is None:
                return None
            _refuse_repeated_keys(document, set())
            return loader.construct_document(document)
        finally:
            loader.dispose()
    except (yaml.YAMLError, *_NO_VALUE) as error:
        raise ConfigError(_finding(error)) from None  # the original message contains the value


def _refuse_repeated_keys(node: Any, seen: set[int]) -> None:
    """PyYAML would keep only the last value."""
    if node.id == "scalar" or id(node) in seen:
        return
    seen.add(id(node))  # aliases can contain themselves
    keys: set[str] = set()
    for part in node.value:
        key, value = part if node.id == "mapping" else (None, part)
        if key is not None and key.id == "scalar":
            if key.value in keys:
                place = f"line {key.start_mark.line + 1}, column {key.start_mark.column + 1}"
                raise ConfigError(f"the key {key.value!r} is repeated, at {place}")
            keys.add(key.value)
        _refuse_repeated_keys(value, seen)


def read_yaml(path: str | Path) -> Any:
    """Read a YAML file."""
    try:
        return parse_yaml(read_text(path, MAX_YAML_BYTES))
    except OSError as error:
        raise ConfigError(f"{path}: cannot read: {error.strerror or error}; check the path") from error
    except (UnicodeDecodeError, ConfigError) as error:
        raise ConfigError(f"{path} is not valid YAML in UTF-8: {error}; fix the file") from error


def _finding(error: Exception) -> str:
    mark = getattr(error, "problem_mark", None)
    if mark is None:
        return " ".join(str(error).split()) or type(error).__name__
    problem = getattr(error, "problem", None) or "could not be parsed"
    return f"{problem}, at line {mark.line + 1}, column {mark.column + 1}"
