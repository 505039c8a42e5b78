"""Sessions of a run, and runs that join other runs."""

import os
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any, Self, TypeVar

from judgelm.engines.base import Engine
from judgelm.errors import RunError
from judgelm.jsonl import encode_line, read_jsonl
from judgelm.records import Judgment
from judgelm.runs.process_cleanup import children
from judgelm.runs.run_files import RunFiles
from judgelm.runs.stats import RunStats, SessionStats
from judgelm.serialization import judgment_row

_SAVE_EVERY_S = 30.0


Item = TypeVar("Item")


def pending(items: Iterable[Item], is_finished: Callable[[Any], bool], stats: SessionStats) -> Iterator[Item]:
    """Yield None and unfinished items. Count finished items as skipped."""
    for item in items:
        if item is not None and is_finished(item):
            stats.skipped += 1
        else:
            yield item


class RunSession:
    """The entry of this process in a run's manifest.

    The caller must close `files` after the session.
    """

    def __init__(self, files: RunFiles, stats: SessionStats, engine: Engine | None = None) -> None:
        self._files = files
        self._stats = stats
        self._engine = engine
        self._began = self._saved = time.monotonic()
        self._entry: dict[str, Any] = {"started": _now(), "outcome": "running", "pid": os.getpid()}

    def __enter__(self) -> Self:
        self._update()
        self._files.start_session(self._entry)
        return self

    def tick(self) -> None:
        """Update the judging time, and save the entry every half minute."""
        now = time.monotonic()
        self._stats.judge_s = now - self._began
        if now - self._saved > _SAVE_EVERY_S:
            self._saved = now
            self._update()
            self._files.save()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._update()
        self._entry |= {"outcome": _outcome(error), "ended": _now()}
        if error is None:
            self._files.save()
            return
        with suppress(RunError):  # keep the original error if the disk is full
            self._files.save()

    def _update(self) -> None:
        self._entry |= self._stats.row()
        if self._engine is not None:
            self._entry |= {"engine": self._engine.stats(), "children": children(str(self._files.out))}


def write_joined(
    files: RunFiles, judgments: Iterable[Judgment], stats: RunStats, entries: Callable[[], Mapping[str, Any]]
) -> None:
    """Write the judgments from other runs that are not yet in the file.

    `entries` is called at the end and returns additional entries for the manifest.
    """
    with RunSession(files, stats):
        written = {hash(row["id"]): _hash_of_content(row) for _, row in read_jsonl(files.out)}
        for judgment in judgments:
            stats.add(judgment)
            content = _hash_of_content(judgment_row(judgment))
            if written.get(hash(judgment.sample_id)) != content:
                files.write(judgment)
                written[hash(judgment.sample_id)] = content
        files.manifest |= entries()


def _hash_of_content(row: Mapping[str, object]) -> int:
    return hash(encode_line({**row, "provenance": ""}))


def common_mode(manifests: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the mode options that are the same in all runs."""
    first, *others = (manifest["fingerprint"].get("mode", {}) for manifest in manifests)
    return {key: value for key, value in first.items() if all(mode.get(key) == value for mode in others)}


def last_provenance(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Return the provenance of the last session, if any."""
    return next(reversed(manifest["provenance"].values()), {})


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return "finished"
    return "interrupted" if isinstance(error, KeyboardInterrupt | GeneratorExit) else type(error).__name__


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
