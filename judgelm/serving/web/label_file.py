"""The label file for a run.

The file has one line `{"id": ..., "winner": ...}` per labelled pair and is replaced atomically on each change.
"""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from judgelm.data.label_codes import winner_field
from judgelm.data.readers.rows import Row
from judgelm.errors import InputError, RunError
from judgelm.jsonl import encode_line, read_jsonl
from judgelm.records import Winner

_SUFFIX = ".labels.jsonl"
_MAX_STEM = 80


@dataclass(frozen=True, slots=True)
class LabelFile:
    """The label file for a run. The file may not exist yet, and several processes may write to it."""

    path: Path

    def read(self) -> dict[str, Winner]:
        """Return winners by sample id. If an id has several labels, the last label is used."""
        winners: dict[str, Winner] = {}
        for line, row in read_jsonl(self.path) if self.path.exists() else ():
            winners |= _winner(Row(str(self.path), line, row))
        return winners

    def put(self, key: str, winner: Winner | None) -> dict[str, Winner]:
        """Save a label, or remove it if `winner` is None. Returns once the file is synced to disk."""
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self.path):
                winners = self.read()
                winners.pop(key, None)
                if winner is not None:
                    winners[key] = winner
                self._replace(winners)
        except OSError as error:
            raise RunError(
                f"{self.path}: cannot save the label: {error.strerror or error}; free up disk space or fix the "
                "permissions, then label again; or upload the run file, which saves labels in a different folder"
            ) from error
        return winners

    def _replace(self, winners: dict[str, Winner]) -> None:
        draft = self.path.with_suffix(".tmp")
        try:
            with draft.open("wb") as file:
                file.writelines(encode_line({"id": key, "winner": winner}) for key, winner in winners.items())
                file.flush()
                os.fsync(file.fileno())  # otherwise, a power failure after the rename could lose all labels
            os.replace(draft, self.path)  # releases the lock, so the draft may now belong to another writer
        except OSError:
            draft.unlink(missing_ok=True)
            raise


def label_file_of(run: Path) -> LabelFile:
    """Return the label file for a local run, for example `judgments.labels.jsonl` next to `judgments.jsonl`."""
    return LabelFile(run.with_name(run.name.removesuffix(".jsonl") + _SUFFIX))


def label_file_of_upload(run: Path) -> LabelFile:
    """Return the label file for an uploaded run, which is in `$XDG_STATE_HOME/judgelm/labels`."""
    try:
        with run.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        raise InputError(f"{run.name}: cannot read the file: {error.strerror or error}; upload it again") from error
    state = Path(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"))
    stem = run.name.removesuffix(".jsonl")[:_MAX_STEM]
    return LabelFile(state / "judgelm" / "labels" / f"{stem}-{digest}{_SUFFIX}")


def _winner(row: Row) -> dict[str, Winner]:
    key = row.data.get("id")  # reject lines with other fields, which would be lost when the file is replaced
    if row.data.keys() != {"id", "winner"} or not isinstance(key, str):
        finding = 'expected only the fields "id" and "winner"'
        raise row.error(f"{finding}; rename this file and open it as Earlier labels")
    return {key: winner_field(row)}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock the file. If another process replaces the file while we wait, lock the new file."""
    while True:
        with path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield
                return
