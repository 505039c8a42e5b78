"""The fingerprint of a run: model, template, mode and input, which must be the same in all of its sessions."""

import hashlib
import json
import platform
import re
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

from judgelm.data.readers.streams import is_stream
from judgelm.errors import RunError
from judgelm.modes import BatchMode
from judgelm.package import VERSION

_SHA256 = re.compile(r"(?<=\")([0-9a-f]{12})[0-9a-f]{52}(?=\")")
_ENGINE_KEYS = ("engine", "dtype", "window", "quantization", "thinking")


def judging_fingerprint(mode: BatchMode, described: Mapping[str, Any], inputs: list[str]) -> dict[str, Any]:
    """The fingerprint of a run that judges: its mode and files, and the engine as `Engine.describe` states it."""
    return {
        "model": content_of_model(described["model"]),
        "engine": {key: described[key] for key in _ENGINE_KEYS if key in described},
        "input": input_identities(inputs),
        **mode_identity(mode),
    }


def provenance(mode: BatchMode, described: Mapping[str, Any]) -> dict[str, Any]:
    """Model, engine, mode, versions and machine of judgments; `described` is `Engine.describe`."""
    return {
        "judgelm": VERSION,
        **described,
        **mode_identity(mode),
        "machine": {"system": platform.platform(), "python": platform.python_version()},
    }


def mode_identity(mode: BatchMode) -> dict[str, Any]:
    """Template and mode with its options, as JSON values; of a released judge's prompt the template's sha is enough."""
    options = {
        name: list(value) if isinstance(value, tuple) else value
        for name, value in asdict(mode).items()
        if name != "prompt"
    }
    return {"template": {"id": mode.template, "sha": mode.template_sha}, "mode": {"name": mode.name, **options}}


def content_of_model(model: Mapping[str, Any]) -> dict[str, Any]:
    """The description of a model without its location, where a hash identifies the files."""
    locations = {location for location, sha in (("path", "sha"), ("adapter", "adapter_sha")) if sha in model}
    return {key: value for key, value in model.items() if key not in locations}


def short_sha(value: object) -> str:
    """12 hex digits over the canonical JSON of a value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:12]


def input_identities(paths: list[str]) -> list[dict[str, Any]]:
    """Name, size in bytes and sha256 of each input file; a stream has only the name of standard input."""
    identities = []
    for path in paths:
        if is_stream(path):
            identities.append({"file": "-", "bytes": 0, "sha": None})
            continue
        size = Path(path).stat().st_size
        identities.append({"file": Path(path).name, "bytes": size, "sha": _sha_of_beginning(path, size)})
    return identities


def _sha_of_beginning(path: str, size: int) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while size > 0 and (block := file.read(min(1 << 20, size))):
            digest.update(block)
            size -= len(block)
    return digest.hexdigest()


def check_same_run(out: Path, before: dict[str, Any], now: dict[str, Any], inputs: list[str]) -> None:
    """Refuse to mix two runs in one file; an input that has only grown at its end is the same input.

    Raises:
        RunError: the fingerprints differ; the message shows both sides.
    """
    changed = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]
    if not changed or (changed == ["input"] and _has_grown(before["input"], now["input"], inputs)):
        return
    sides = "\n".join(
        f"  {key}: there {brief(old)}, now {brief(new)}" for key, old, new in differences("", before, now)
    )
    raise RunError(
        f"{out}: holds judgments of another run:\n{sides}\nchoose another -o, or pass --overwrite to start over"
    )


def differences(key: str, before: object, now: object) -> Iterator[tuple[str, object, object]]:
    """The leaves in which two fingerprints differ."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in sorted({*before, *now}):
            yield from differences(f"{key}.{name}".strip("."), before.get(name), now.get(name))
    elif before != now:
        yield key, before, now


def _has_grown(before: list[dict[str, Any]], now: list[dict[str, Any]], inputs: list[str]) -> bool:
    if [file["file"] for file in before] != [file["file"] for file in now]:
        return False
    return all(
        old["bytes"] <= new["bytes"]
        and (old["sha"] == new["sha"] or _sha_of_beginning(path, old["bytes"]) == old["sha"])
        for old, new, path in zip(before, now, inputs, strict=True)
    )


def brief(value: object) -> str:
    """The value as JSON, with the first 12 digits of each sha256."""
    return _SHA256.sub(r"\1", json.dumps(value, ensure_ascii=False, default=str))
