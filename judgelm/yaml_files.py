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
        return yaml.load(text, Loader=getattr(yaml, f"C{name}", getattr(yaml, name)))
    except (yaml.YAMLError, *_NO_VALUE) as error:
        raise ConfigError(_finding(error)) from None  # the original message contains the value


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
