"""What a report takes from a run's manifest (`OUT.run.json`); nothing there is required, nothing missing is guessed."""

from collections.abc import Mapping, Sequence

from judgelm.reports.wording import number

_FACTS = ("model", "mode", "template", "engine")
_NAMES = ("id", "name", "engine", "path")
_SPEEDS = (
    ("Speed", (("samples_per_s", "samples/s"),)),
    ("Tokens", (("tokens_per_s", "tokens/s"), ("prompt_tokens_per_s", "prompt tokens/s"))),
    ("Time to judge", (("seconds", "s"), ("judge_s", "s"))),
    ("Time to load the model", (("load_s", "s"),)),
)


def facts(manifest: Mapping[str, object]) -> list[tuple[str, str]]:
    """Model, mode, template and engine by name, those that are recorded."""
    lasting = {key: value for key, value in manifest.items() if key != "sessions"}  # they count what an engine did
    found = ((key, _name(look_up(lasting, key))) for key in _FACTS)
    return [(key, name) for key, name in found if name is not None]


def throughput(manifest: Mapping[str, object]) -> list[tuple[str, str]]:
    """Speed as the run's last session recorded it; `not recorded` where it did not."""
    rows = []
    for name, keys in _SPEEDS:
        values = [number(look_up(manifest, key), unit) for key, unit in keys]
        rows.append((name, next((value for value in values if value != "not recorded"), "not recorded")))
    return rows


def sessions(manifest: Mapping[str, object]) -> int:
    """How many sessions wrote the run, 0 where it is not recorded."""
    found = manifest.get("sessions")
    return len(found) if isinstance(found, Sequence) and not isinstance(found, str) else 0


def look_up(part: object, key: str) -> object:
    """The value of a key at the top or, failing that, within; of several sessions the last. None if nowhere."""
    if isinstance(part, Mapping):
        if key in part:
            return part[key]
        inner: Sequence[object] = list(part.values())
    elif isinstance(part, Sequence) and not isinstance(part, str | bytes):
        inner = part[::-1]
    else:
        return None
    found = (look_up(child, key) for child in inner)
    return next((value for value in found if value is not None), None)


def _name(value: object) -> str | None:
    if isinstance(value, Mapping):
        value = next((value[key] for key in _NAMES if isinstance(value.get(key), str)), None)
    return value if isinstance(value, str) else None
