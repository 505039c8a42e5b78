"""A run's file of labels."""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from judgelm.data.readers.rows import Row
from judgelm.data.sources.source import winner_field
from judgelm.errors import InputError, RunError
from judgelm.jsonl import encode_line, read_jsonl
from judgelm.records import Winner

_SUFFIX = ".labels.jsonl"
_LONGEST_STEM = 80


class StoredLabels(NamedTuple):
    """Contents of a file of labels: the winners by sample id, and whether an incomplete last line was skipped."""

    winners: dict[str, Winner]
    torn: bool


@dataclass(frozen=True, slots=True)
class LabelFile:
    """A run's file of labels, which several pages and servers may write at once; it need not exist yet."""

    path: Path

    def read(self) -> StoredLabels:
        """All labels; of two for one id the later.

        Raises:
            InputError: the file cannot be read, or has lines that the page does not write.
        """
        winners: dict[str, Winner] = {}
        line = 0
        if not self.path.exists():
            return StoredLabels(winners, torn=False)
        try:
            for line, row in read_jsonl(self.path):
                winners |= _winner(Row(str(self.path), line, row))
        except InputError:
            if not self._is_torn_after(line):
                raise
            return StoredLabels(winners, torn=True)
        return StoredLabels(winners, torn=False)

    def put(self, key: str, winner: Winner | None) -> dict[str, Winner]:
        """Write a label, or remove it where it is None; it is on disk once this has returned.

        Returns:
            All labels of the file, also those written by others meanwhile.

        Raises:
            InputError: as `read`; nothing is written.
            RunError: the file cannot be written; it is as it was before.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            with _locked(self.path):
                winners = self.read().winners
                winners.pop(key, None)
                if winner is not None:
                    winners[key] = winner
                self._replace(winners)
        except OSError as error:
            raise RunError(
                f"{self.path}: this label is not saved: {error.strerror or error}; free some space, or let "
                "`judgelm web` write there, and give it again (labels of uploaded files are saved in another folder)"
            ) from error
        return winners

    def _replace(self, winners: dict[str, Winner]) -> None:
        draft = self.path.with_suffix(".tmp")
        try:
            with draft.open("wb") as file:
                file.writelines(encode_line({"id": key, "winner": winner}) for key, winner in winners.items())
                file.flush()
                os.fsync(file.fileno())  # a power cut after the exchange would otherwise take all labels, not the last
            os.replace(draft, self.path)  # from here on another holds the lock, and the draft is theirs
        except OSError:
            draft.unlink(missing_ok=True)
            raise

    def _is_torn_after(self, line: int) -> bool:
        """True where the rest after this line is one line without a line end."""
        written = self.path.read_bytes()
        return not written.endswith(b"\n") and written.count(b"\n") == line


def beside_run(run: Path) -> LabelFile:
    """The labels of a run file on this machine: `judgments.labels.jsonl` beside `judgments.jsonl`."""
    return LabelFile(run.with_name(run.name.removesuffix(".jsonl") + _SUFFIX))


def of_upload(run: Path) -> LabelFile:
    """The labels of an uploaded run file, which is deleted when the page ends.

    They are in the user's folder for state (`$XDG_STATE_HOME/judgelm/labels`), named by the run file's content, so that
    they are found again when the same file is uploaded again.

    Raises:
        InputError: the run file cannot be read.
    """
    try:
        with run.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()[:16]
    except OSError as error:
        raise InputError(f"{run.name}: cannot read: {error.strerror or error}; upload it again") from error
    state = Path(os.environ.get("XDG_STATE_HOME") or os.path.expanduser("~/.local/state"))
    stem = run.name.removesuffix(".jsonl")[:_LONGEST_STEM]
    return LabelFile(state / "judgelm" / "labels" / f"{stem}-{digest}{_SUFFIX}")


def _winner(row: Row) -> dict[str, Winner]:
    """The line's label by its id. Lines with more fields are refused, since the page would drop the fields."""
    key = row.data.get("id")
    if row.data.keys() != {"id", "winner"} or not isinstance(key, str):
        finding = "expected exactly an id and a winner, as written by the page"
        raise row.error(f"{finding}; give this file another name, and open it under Earlier labels")
    return {key: winner_field(row)}


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Lock the file against other writers; after a wait for a file that was replaced meanwhile, lock the new one."""
    while True:
        with path.open("ab") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                yield
                return
