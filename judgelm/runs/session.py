"""One process's part of a run: what it counted, saved now and then, so that a killed session leaves its trace."""

import os
import time
from contextlib import suppress
from types import TracebackType
from typing import Any, Protocol, Self

from judgelm.engines.base import Engine
from judgelm.errors import RunError
from judgelm.runs.process_cleanup import children
from judgelm.runs.run_files import RunFiles

_SAVE_EVERY_S = 30.0


class Counts(Protocol):
    """What a session counts."""

    judge_s: float

    def row(self) -> dict[str, Any]:
        """For the manifest."""
        ...


class RunSession:
    """The entry in the manifest of one process, from entering the `with` block to leaving it."""

    def __init__(self, files: RunFiles, stats: Counts, engine: Engine) -> None:
        self._files = files
        self._stats = stats
        self._engine = engine
        self._began = self._saved = time.monotonic()
        self._entry: dict[str, Any] = {"started": _now(), "outcome": "running", "pid": os.getpid()}

    def __enter__(self) -> Self:
        self._look()
        self._files.start_session(self._entry)
        return self

    def tick(self) -> None:
        """Count time, and save when the last save is long ago."""
        now = time.monotonic()
        self._stats.judge_s = now - self._began
        if now - self._saved > _SAVE_EVERY_S:
            self._saved = now
            self._look()
            self._files.save()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._look()
        self._entry |= {"outcome": _outcome(error), "ended": _now()}
        if error is None:
            self._files.save()
            return
        with suppress(RunError):  # a full disk does not hide the first error
            self._files.save()

    def _look(self) -> None:
        """Counts of run and engine, and the processes that the engine runs in, as they are now."""
        living = {"children": children(str(self._files.out))}
        self._entry |= self._stats.row() | {"engine": self._engine.stats()} | living


def _outcome(error: BaseException | None) -> str:
    if error is None:
        return "finished"
    return "interrupted" if isinstance(error, KeyboardInterrupt | GeneratorExit) else type(error).__name__


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
