"""The vLLM engine, and the environment for importing and starting vLLM.

`START_LOG` logs the stages of vLLM's start, which takes minutes for a large model.
"""

import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

START_LOG = logging.getLogger("judgelm.vllm_start")
"""One message per stage of vLLM's start."""
_DEFAULTS = {
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # `auto` wants a NUMA node for each worker
}
_STAGES: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("Starting to load model", lambda message: "loading weights"),
    ("Loading weights took", lambda message: "weights are loaded; profiling memory"),
    ("KV cache size", lambda message: message.partition(" tokens")[0] + " tokens"),
    ("Graph capturing finished", lambda message: "CUDA graphs are captured"),
)
"""vLLM's log message at the end of a stage, and the stage."""


@contextmanager
def quiet_imports() -> Iterator[None]:
    """Import vLLM without log lines and usage statistics, unless you set their variables."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    logging.getLogger("vllm").setLevel(logging.ERROR)  # it logs the optional parts that are not installed
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        yield


def stage_of(message: str) -> str | None:
    """Return the stage that a log message belongs to, or None."""
    return next((stage(message) for words, stage in _STAGES if words in message), None)


class _StageHandler(logging.Handler):
    """Logs each stage in vLLM's log once."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._began = time.monotonic()
        self._logged: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        if (stage := stage_of(record.getMessage())) is not None:
            self.log(stage)

    def log(self, stage: str) -> None:
        if stage not in self._logged:
            self._logged.add(stage)
            START_LOG.info("vLLM, %.0f s: %s", time.monotonic() - self._began, stage)


@contextmanager
def logged_stages(processes: int) -> Iterator[None]:
    """Log the stages of vLLM's start; with worker processes, only start and end."""
    if not START_LOG.isEnabledFor(logging.INFO):
        yield
        return
    vllm_log = logging.getLogger("vllm")
    level, handler = vllm_log.level, _StageHandler()
    if processes > 1:
        handler.log(f"loading weights and profiling memory in {processes} worker processes")
    vllm_log.addHandler(handler)
    vllm_log.setLevel(min(level, logging.INFO) or logging.INFO)
    try:
        yield
        handler.log("ready")
    finally:
        vllm_log.removeHandler(handler)
        vllm_log.setLevel(level)
