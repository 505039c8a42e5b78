"""A run's files: judgments appended as they are finished, a manifest that says what they were made with, rejects.

    OUT.jsonl           one judgment (or answer) a line, append-only; of two lines with one id the later one stands
    OUT.run.json        fingerprint, provenance, input, and one entry per session
    OUT.rejects.jsonl   input lines that could not be used: file, line, reason, raw text

A rerun of the same command resumes: ids that are finished are skipped, a torn last line is mended, failures of the
engine are tried again. Another model, template, mode or input is refused, both sides shown.
"""

import hashlib
import json
import os
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel

from judgelm.errors import InputError, RunError
from judgelm.jsonl import Appender, parse_json, read_jsonl, repair_tail
from judgelm.records import Judgment
from judgelm.runs.serialization import judgment_from_row, judgment_row

Retry = Literal["engine", "failed"]

_SHA256 = re.compile(r"(?<=\")([0-9a-f]{12})[0-9a-f]{52}(?=\")")


class _Input(BaseModel):
    file: str
    bytes: int
    sha: str | None


class _Fingerprint(BaseModel):
    input: list[_Input] = []


class _Manifest(BaseModel):
    """What of a manifest must be there for a run to go on."""

    fingerprint: _Fingerprint
    provenance: dict[str, dict[str, Any]]
    sessions: list[dict[str, Any]]


def iter_judgments(path: str | Path) -> Iterator[Judgment]:
    """Judgments in the order written; an id can come twice after a retry, and then the later one stands.

    Raises:
        InputError: a line is no judgment.
    """
    for number, row in read_jsonl(path):
        yield _judgment(path, number, row)


def read_judgments(path: str | Path) -> dict[str, Judgment]:
    """All judgments by sample id, the latest of each."""
    return {judgment.sample_id: judgment for judgment in iter_judgments(path)}


def standing_judgments(path: str | Path) -> Iterator[Judgment]:
    """The judgments that stand, in the order written: of two with one id only the later, in little memory.

    Raises:
        InputError: a line is no judgment.
    """
    last = {hash(_id_of(path, number, row)): number for number, row in read_jsonl(path)}
    for number, row in read_jsonl(path):
        if last[hash(row["id"])] == number:
            yield _judgment(path, number, row)


def _judgment(path: str | Path, number: int, row: Mapping[str, Any]) -> Judgment:
    try:
        return judgment_from_row(row)
    except ValueError as error:
        raise InputError(f"{path}:{number}: not a judgment written by judgelm-batch ({error})") from error


def _id_of(path: str | Path, number: int, row: Mapping[str, Any]) -> str:
    name = row.get("id")
    if not isinstance(name, str) or "failure" not in row:
        raise InputError(f"{path}:{number}: no line of a run file: it lacks id (a text) or failure; remove the line")
    return name


def short_sha(value: object) -> str:
    """12 hex digits over the canonical JSON of a value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()[:12]


def input_identities(paths: list[str]) -> list[dict[str, Any]]:
    """Name, size in bytes and sha256 of each input file; standard input has only its name."""
    found = []
    for path in paths:
        if path == "-":
            found.append({"file": "-", "bytes": 0, "sha": None})
            continue
        size = Path(path).stat().st_size
        found.append({"file": Path(path).name, "bytes": size, "sha": _sha_of_beginning(path, size)})
    return found


def _sha_of_beginning(path: str, size: int) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while size > 0 and (block := file.read(min(1 << 20, size))):
            digest.update(block)
            size -= len(block)
    return digest.hexdigest()


def run_paths(out: Path) -> tuple[Path, Path, Path]:
    """The judgments, the manifest and the rejects of a run."""
    stem = out.name.removesuffix(".jsonl")
    return out, out.with_name(f"{stem}.run.json"), out.with_name(f"{stem}.rejects.jsonl")


def read_manifest(out: Path) -> dict[str, Any] | None:
    """The manifest beside a run's file; None where neither has begun.

    Raises:
        RunError: the file has none, or it is no manifest.
    """
    path = run_paths(out)[1]
    if not path.exists():
        if out.exists() and out.stat().st_size > 0:
            raise RunError(
                f"{out}: exists but has no {path.name} beside it, so it is not known what it "
                "was made with; choose another -o, or pass --overwrite"
            )
        return None
    try:
        manifest = parse_json(path.read_text(encoding="utf-8"))
        _Manifest.model_validate(manifest)
    except (OSError, ValueError) as error:
        finding = " ".join(str(error).split())
        raise RunError(
            f"{path}: not a manifest of judgelm ({finding}); restore it, or pass --overwrite to start over"
        ) from error
    return manifest  # type: ignore[no-any-return]


def recorded_dtype(out: Path) -> str | None:
    """The numeric format of the run that a session of OUT would go on with; None where there is no such run.

    A run goes on in it on whatever machine: what `auto` stands for is chosen once.

    Raises:
        RunError: OUT has no manifest, or it is no manifest.
    """
    manifest = read_manifest(out)
    if manifest is None:
        return None
    described = [manifest["fingerprint"].get("engine") or {}, *reversed(manifest["provenance"].values())]
    return next((dtype for one in described if isinstance(dtype := one.get("dtype"), str) and dtype != "auto"), None)


def read_finished(out: Path, retry: Retry = "engine") -> tuple[set[int], Counter[str]]:
    """Hashes of the ids of a run that need not be done again, and those among them that failed and stand, by code.

    Hashes instead of ids keep a million of them under 100 MB; that two ids of a million share one, and the second
    is skipped on a rerun, has a probability of 3 in 10^8.
    """
    finished: set[int] = set()
    if not out.is_file():  # not there yet, or a device or a pipe, which cannot be read back
        return finished, Counter()
    failed: dict[int, str] = {}
    for number, row in read_jsonl(out):
        key, failure = hash(_id_of(out, number, row)), row.get("failure")
        failed.pop(key, None)
        if isinstance(failure, dict):
            code = str(failure.get("code"))
            if retry == "failed" or code == "engine":
                finished.discard(key)
                continue
            failed[key] = code
        finished.add(key)
    return finished, Counter(failed.values())


class RunFiles:
    """The three files of one run, open for appending.

    Args:
        out: path of the judgments, `NAME.jsonl`.
        fingerprint: what must be the same for two sessions to belong to one run; `input` holds `input_identities`.
        provenance: what every judgment of this session was made with.
        inputs: paths behind `fingerprint["input"]`, to recognise a file that has only grown.
        retry: which failures a rerun redoes: those of kind `engine`, or all that `failed`.
        overwrite: start over, deleting what is there.

    Attributes:
        finished: hashes of the ids that need not be judged again.
        earlier_failures: those of them that failed and stand, by code.
        repaired_bytes: length of the torn last line that was removed.

    Raises:
        RunError: another run's files, not a run's file, or not writable.
        InputError: a line of the judgments or the rejects is none of a run's.
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
            _check_same(self.out, earlier["fingerprint"], fingerprint, inputs)
        self._judgments = Appender(self.out, overwrite=overwrite)
        self._rejects: Appender | None = None
        self.manifest: dict[str, Any] = (earlier or {"sessions": [], "provenance": {}}) | {"fingerprint": fingerprint}
        self.manifest["provenance"][self.provenance_sha] = provenance
        self.repaired_bytes = self._judgments.repaired
        try:
            if overwrite:
                self.manifest_path.unlink(missing_ok=True)
                self.rejects_path.unlink(missing_ok=True)
            self.finished, self.earlier_failures = read_finished(self.out, retry)
            self._known_rejects = self._read_rejects()
        except BaseException:
            self._judgments.close()  # or the file would stay locked for whoever mends it
            raise

    def _read_rejects(self) -> set[int]:
        """Hashes of the rejects on file, so that reading the same input again does not write them twice."""
        if not self.rejects_path.is_file():
            return set()
        repair_tail(self.rejects_path)
        return {_reject_key(row) for _, row in read_jsonl(self.rejects_path)}

    def start_session(self, session: dict[str, Any]) -> None:
        """Enter a session into the manifest; `save` writes what is put into it later."""
        self.manifest["sessions"].append(session)
        self.save()

    def save(self) -> None:
        """Write the manifest, whole or not at all.

        Raises:
            RunError: it cannot be written.
        """
        draft = self.manifest_path.with_suffix(".tmp")
        try:
            draft.write_text(json.dumps(self.manifest, indent=1, default=str), encoding="utf-8")
            os.replace(draft, self.manifest_path)
        except OSError as error:
            raise RunError(
                f"{self.manifest_path}: cannot write: {error.strerror}; free some space or choose another -o"
            ) from error

    def write(self, judgment: Judgment) -> None:
        """Append a finished judgment; it is with the operating system when this returns."""
        self.write_row(judgment_row(judgment))

    def write_row(self, row: Mapping[str, object]) -> None:
        """Append anything else that is finished: a row with an `id`, and a `failure` that is null or has a `code`."""
        self._judgments.write({**row, "provenance": self.provenance_sha})

    def reject(self, row: Mapping[str, object]) -> None:
        """Append an input line that could not be used, unless an earlier session did."""
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


def _check_same(out: Path, before: dict[str, Any], now: dict[str, Any], inputs: list[str]) -> None:
    """Refuse to mix two runs in one file; an input that has only grown at its end is the same input."""
    differences = [key for key in sorted({*before, *now}) if before.get(key) != now.get(key)]
    if differences == ["input"] and _has_grown(before["input"], now["input"], inputs):
        return
    if not differences:
        return
    sides = "\n".join(
        f"  {place}: there {_brief(old)}, now {_brief(new)}" for place, old, new in _differences("", before, now)
    )
    raise RunError(
        f"{out}: holds judgments of another run:\n{sides}\nchoose another -o, or pass --overwrite to start over"
    )


def _differences(place: str, before: object, now: object) -> Iterator[tuple[str, object, object]]:
    """The leaves in which two fingerprints differ."""
    if isinstance(before, dict) and isinstance(now, dict):
        for key in sorted({*before, *now}):
            yield from _differences(f"{place}.{key}".strip("."), before.get(key), now.get(key))
    elif before != now:
        yield place, before, now


def _has_grown(before: list[dict[str, Any]], now: list[dict[str, Any]], inputs: list[str]) -> bool:
    if [one["file"] for one in before] != [one["file"] for one in now]:
        return False
    return all(
        old["bytes"] <= new["bytes"]
        and (old["sha"] == new["sha"] or _sha_of_beginning(path, old["bytes"]) == old["sha"])
        for old, new, path in zip(before, now, inputs, strict=True)
    )


def _brief(value: object) -> str:
    """As JSON, with as much of a sha256 as one compares by eye."""
    return _SHA256.sub(r"\1", json.dumps(value, ensure_ascii=False, default=str))
