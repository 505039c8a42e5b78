"""The files that make up a run.

    OUT.jsonl           one judgment or answer per line, append-only; the last line for an ID counts
    OUT.run.json        manifest with fingerprint, provenance, input, and one entry per session
    OUT.rejects.jsonl   rejected input lines with file, line, reason, and raw text

A rerun skips finished IDs, removes an incomplete last line, and retries engine failures. It raises an error if the
model, template, mode, or input has changed.
"""

import hashlib
import json
import platform
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel

from judgelm.bounds import read_text
from judgelm.data.judged_texts import difference, digest_of, text_hashes
from judgelm.data.readers.inputs import is_stream
from judgelm.errors import ConfigError, InputError, RunError
from judgelm.jsonl import Appender, check_no_input, parse_json, read_jsonl, renamed, repair_tail
from judgelm.modes import BatchMode
from judgelm.modes.readings import prompt_of
from judgelm.package import VERSION
from judgelm.records import Judgment, Sample, TextHashes
from judgelm.serialization import hashes_of_row, judgment_from_row, judgment_row

_SHA256 = re.compile(r"(?<=\")([0-9a-f]{12})[0-9a-f]{52}(?=\")")
_ENGINE_KEYS = ("engine", "dtype", "window", "quantization", "thinking")


def judging_fingerprint(mode: BatchMode, described: Mapping[str, Any], inputs: list[str]) -> dict[str, Any]:
    """Return the fingerprint of a judging run; `described` is the output of `Engine.describe()`."""
    return {
        "model": content_of_model(described["model"]),
        "engine": {key: described[key] for key in _ENGINE_KEYS if key in described},
        "input": input_identities(inputs),
        **mode_identity(mode),
    }


def provenance(mode: BatchMode, described: Mapping[str, Any]) -> dict[str, Any]:
    """Return the model, engine, mode, prompt file, versions, and machine of a run."""
    prompt = prompt_of(mode)
    return {
        "judgelm": VERSION,
        **described,
        **mode_identity(mode),
        **({} if prompt is None else {"prompt": {"file": prompt.file, "name": prompt.name, "text": prompt.source}}),
        "machine": {"system": platform.platform(), "python": platform.python_version()},
    }


def mode_identity(mode: BatchMode) -> dict[str, Any]:
    """Return the template and the mode options as JSON values."""
    fields = asdict(mode)
    fields |= fields.pop("mode", {})  # a voting mode wraps another mode
    fields.pop("prompt", None)
    options = {name: list(value) if isinstance(value, tuple) else value for name, value in fields.items()}
    return {"template": {"id": mode.template, "sha": mode.template_sha}, "mode": {"name": mode.name, **options}}


def content_of_model(model: Mapping[str, Any]) -> dict[str, Any]:
    """Return a model's description, leaving out paths whose content is hashed."""
    locations = {location for location, sha in (("path", "sha"), ("adapter", "adapter_sha")) if sha in model}
    return {key: value for key, value in model.items() if key not in locations}


def short_sha(value: object) -> str:
    """Return 12 hex digits of the SHA-256 hash of the value's canonical JSON."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:12]


def input_identities(paths: list[str]) -> list[dict[str, Any]]:
    """Return the name, size in bytes, and SHA-256 hash of each input file. Streams are named `-`."""
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
    """Raise RunError if two fingerprints differ, unless rows were only appended to the input."""
    changed = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]
    if not changed or (changed == ["input"] and _has_grown(before["input"], now["input"], inputs)):
        return
    changes = (f"  {key}: was {brief(old)}, now {brief(new)}" for key, old, new in differences("", before, now))
    sides = "\n".join(changes)
    raise RunError(f"{out}: contains judgments from another run:\n{sides}\nchoose another -o, or pass --overwrite")


def differences(key: str, before: object, now: object) -> Iterator[tuple[str, object, object]]:
    """Yield the key, old value, and new value of each difference between two fingerprints."""
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


def shown_id(sample_id: object) -> str:
    """Quote a sample's ID on a single line, for messages."""
    return json.dumps(sample_id, ensure_ascii=False)


def brief(value: object) -> str:
    """Return the value as JSON, with SHA-256 hashes shortened."""
    return _SHA256.sub(r"\1", json.dumps(value, ensure_ascii=False, default=str))


Retry = Literal["engine", "failed"]


class _Input(BaseModel):
    file: str
    bytes: int
    sha: str | None


class _Fingerprint(BaseModel):
    input: list[_Input] = []


class _Manifest(BaseModel):
    fingerprint: _Fingerprint
    provenance: dict[str, dict[str, Any]]
    sessions: list[dict[str, Any]]


def iter_judgments(path: str | Path) -> Iterator[Judgment]:
    """Yield judgments in file order, including superseded ones."""
    for line, row in read_jsonl(path):
        yield judgment_of_line(path, line, row)


def read_judgments(path: str | Path) -> dict[str, Judgment]:
    """Return the latest judgment of each sample, keyed by ID."""
    judgments: dict[str, Judgment] = {}
    for judgment in iter_judgments(path):
        if judgment.sample_id in judgments:
            check_texts_of_id(path, judgments[judgment.sample_id], judgment)
        judgments[judgment.sample_id] = judgment
    return judgments


def check_texts_of_id(path: str | Path, before: Judgment, judgment: Judgment) -> None:
    """Raise InputError if two judgments with the same ID are for different texts."""
    if before.hashes != judgment.hashes and None not in (before.hashes, judgment.hashes):
        raise InputError(f"{path}: id {shown_id(before.sample_id)} has judgments of different texts; use a new file")


def latest_judgments(path: str | Path) -> Iterator[Judgment]:
    """Yield the latest judgment of each ID in file order, without keeping all judgments in memory."""
    last = {hash(_id_of(path, line, row)): line for line, row in read_jsonl(path)}
    for line, row in read_jsonl(path):
        if last[hash(row["id"])] == line:
            yield judgment_of_line(path, line, row)


def judgment_of_line(path: str | Path, line: int, row: Mapping[str, Any]) -> Judgment:
    """Parse the judgment on a line."""
    try:
        return judgment_from_row(row)
    except ValueError as error:
        raise InputError(f"{path}:{line}: not a valid judgment from judgelm-batch ({error})") from error


def _id_of(path: str | Path, line: int, row: Mapping[str, Any]) -> str:
    name = row.get("id")
    if not isinstance(name, str) or "failure" not in row:
        raise InputError(f"{path}:{line}: id (a string) or failure is missing; remove this line")
    return name


def run_paths(out: Path) -> tuple[Path, Path, Path]:
    """Return the paths of a run's judgments, manifest, and rejects."""
    stem = out.name.removesuffix(".jsonl")
    return out, out.with_name(f"{stem}.run.json"), out.with_name(f"{stem}.rejects.jsonl")


def check_output_is_no_input(out: str | Path, inputs: Iterable[str | Path]) -> None:
    """Raise ConfigError if a run would overwrite its input."""
    for path in inputs:
        if Path(path).is_dir() and Path(path).resolve() == Path(out).resolve().parent:
            raise ConfigError(f"-o {out} is in the input folder {path}; choose another -o")
    check_no_input([out] if str(out) == "-" else run_paths(Path(out)), inputs)


def read_manifest(out: Path) -> dict[str, Any] | None:
    """Return a run's manifest, or None if there is no run."""
    path = run_paths(out)[1]
    if not path.exists():
        if out.exists() and out.stat().st_size > 0:
            raise RunError(f"{out} exists, but {path.name} is missing; choose another -o, or pass --overwrite")
        return None
    try:
        manifest: dict[str, Any] = parse_json(read_text(path))
        _Manifest.model_validate(manifest)
    except (OSError, ValueError) as error:
        finding = " ".join(str(error).split())
        raise RunError(f"{path}: not a valid judgelm manifest ({finding}); restore it, or pass --overwrite") from error
    return manifest


def required_manifest(out: Path, way_out: str) -> dict[str, Any]:
    """Load a run's manifest. Raise RunError if there is no run."""
    if (manifest := read_manifest(out)) is None:
        raise RunError(f"{out}: run not found; {way_out}")
    return manifest


def recorded_input(out: Path, name: str | None = None) -> Path | None:
    """Return the path of an input (by default, the first) if it is unchanged and next to the output."""
    try:
        manifest = read_manifest(out)
    except RunError:
        return None
    inputs = (manifest or {}).get("fingerprint", {}).get("input", [])
    for identity in inputs[:1] if name is None else [each for each in inputs if each["file"] == name]:
        path = out.parent / Path(str(identity["file"])).name
        if path.is_file() and input_identities([str(path)]) == [identity]:
            return path
    return None


def recorded(out: Path, field: Literal["engine", "dtype"]) -> str | None:
    """Return the engine or dtype of an existing run, or None if there is no run.

    A run keeps its engine and dtype on every machine, so `auto` is resolved only once.
    """
    manifest = read_manifest(out)
    if manifest is None:
        return None
    described = [manifest["fingerprint"].get("engine") or {}, *reversed(manifest["provenance"].values())]
    values = (engine.get(field) for engine in described)
    return next((value for value in values if isinstance(value, str) and value != "auto"), None)


class FinishedIds:
    """The IDs of a run's finished samples and digests of their texts, using 16 bytes per ID.

    Attributes:
        failures: number of failures that are not retried, by code.
    """

    def __init__(self, out: Path | None = None, retry: Retry = "engine") -> None:
        self._out = out
        ids, digests, outcomes = array("q"), array("Q"), array("H")
        codes = [""]  # outcomes are indices in this list; 0 means success
        rows = read_jsonl(out) if out is not None and out.is_file() else ()  # a pipe cannot be read twice
        for line, row in rows:
            ids.append(hash(_id_of(str(out), line, row)))
            digests.append(_digest_of(str(out), line, row))
            failure = row.get("failure")
            code = str(failure.get("code")) if isinstance(failure, dict) else ""
            if code not in codes:
                codes.append(code)
            outcomes.append(codes.index(code))
        redone = {index for index, code in enumerate(codes) if code and (retry == "failed" or code == "engine")}
        kept = _last_of_each(np.array(ids, dtype=np.int64))
        outcome = np.array(outcomes, dtype=np.uint16)[kept]
        stands = ~np.isin(outcome, list(redone))
        self._ids = np.array(ids, dtype=np.int64)[kept][stands]
        self._digests = np.array(digests, dtype=np.uint64)[kept][stands]
        counts = Counter(outcome[stands].tolist())
        self.failures = Counter({codes[index]: count for index, count in counts.items() if codes[index]})

    def __contains__(self, item_id: str) -> bool:
        return self._index(item_id) is not None

    def __len__(self) -> int:
        return len(self._ids)

    def _index(self, item_id: str) -> int | None:
        key = hash(item_id)
        index = int(np.searchsorted(self._ids, key))
        return index if index < len(self._ids) and self._ids[index] == key else None

    def holds(self, sample: Sample) -> bool:
        """Return True if the sample was judged. Raise RunError if its ID was judged with different texts."""
        index = self._index(sample.id)
        if index is None:
            return False
        hashes = text_hashes(sample)
        if self._digests[index] != digest_of(hashes):
            changed = f"{self._changed_part(sample.id, hashes)} for id {shown_id(sample.id)}"
            raise RunError(f"{self._out}: {changed} has changed; choose another -o, or pass --overwrite")
        return True

    def _changed_part(self, item_id: str, hashes: TextHashes) -> str:
        assert self._out is not None, "holds() found the id in this file"
        *_, row = (row for _, row in read_jsonl(self._out) if row["id"] == item_id)
        judged = hashes_of_row(row)
        part = "the text" if judged is None else difference(judged, hashes)
        return part or "the reference, an image, or other context"


def _digest_of(path: str, line: int, row: Mapping[str, Any]) -> int:
    try:
        hashes = hashes_of_row(row)
        return 0 if hashes is None else digest_of(hashes)
    except (LookupError, TypeError) as error:
        raise InputError(f"{path}:{line}: the hashes are damaged; remove this line") from error


def _last_of_each(ids: NDArray[np.int64]) -> NDArray[np.intp]:
    """Return the index of each ID's last occurrence, ordered by ID."""
    order = np.argsort(ids, kind="stable")
    following = ids[order]
    return order[np.append(following[1:] != following[:-1], True)] if len(ids) else order


class RunFiles:
    """The three files of a run, open for appending.

    Args:
        fingerprint: must be the same in all sessions of a run; its `input` comes from `input_identities`.
    """

    def __init__(
        self,
        out: Path,
        *,
        fingerprint: dict[str, Any],
        provenance: dict[str, Any],
        inputs: list[str],
        retry: Retry = "engine",
        overwrite: bool = False,
    ) -> None:
        self.out, self.manifest_path, self.rejects_path = run_paths(out)
        self.provenance_sha = short_sha(provenance)
        earlier = None if overwrite else read_manifest(self.out)
        if earlier is not None:
            check_same_run(self.out, earlier["fingerprint"], fingerprint, inputs)
        self._judgments = Appender(self.out, overwrite=overwrite)
        self._rejects: Appender | None = None
        self.manifest: dict[str, Any] = (earlier or {"sessions": [], "provenance": {}}) | {"fingerprint": fingerprint}
        self.manifest["provenance"][self.provenance_sha] = provenance
        self.repaired_bytes = self._judgments.repaired
        try:
            if overwrite:
                self.manifest_path.unlink(missing_ok=True)
                self.rejects_path.unlink(missing_ok=True)
            self.finished = FinishedIds(self.out, retry)
            self._known_rejects = self._read_rejects()
        except BaseException:
            self._judgments.close()  # unlocks the file
            raise

    def _read_rejects(self) -> set[int]:
        if not self.rejects_path.is_file():
            return set()
        repair_tail(self.rejects_path)
        return {_reject_key(row) for _, row in read_jsonl(self.rejects_path)}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def start_session(self, session: dict[str, Any]) -> None:
        """Add a session to the manifest and save it."""
        self.manifest["sessions"].append(session)
        self.save()

    def save(self) -> None:
        """Write the manifest atomically."""
        with renamed(self.manifest_path, "; choose another -o") as draft:
            draft.write_text(json.dumps(self.manifest, indent=1, default=str), encoding="utf-8")

    def write(self, judgment: Judgment) -> None:
        """Append a judgment."""
        self.write_row(judgment_row(judgment))

    def write_row(self, row: Mapping[str, object]) -> None:
        """Append a row with an `id` and a `failure` (null or a dict with a `code`)."""
        self._judgments.write({**row, "provenance": self.provenance_sha})

    def reject(self, row: Mapping[str, object]) -> None:
        """Append a rejected input line, unless it is already recorded."""
        key = _reject_key(row)
        if key in self._known_rejects:
            return
        self._known_rejects.add(key)
        if self._rejects is None:
            self._rejects = Appender(self.rejects_path)
        self._rejects.write(row)

    def close(self) -> None:
        """Close the files."""
        self._judgments.close()
        if self._rejects is not None:
            self._rejects.close()


def _reject_key(row: Mapping[str, object]) -> int:
    return hash(json.dumps([row.get("file"), row.get("line"), row.get("raw")], default=str))
