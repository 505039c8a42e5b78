"""The names that version 0.1 gave to options; commands, YAML files, scripts and manifests may still use them."""

from collections.abc import Collection, Mapping
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
