"""The vLLM engine, and helpers to import and start vLLM quietly."""

import logging
import os
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager

START_LOG = logging.getLogger("judgelm.vllm_start")
_DEFAULTS = {
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # `auto` requires one NUMA node per worker
}
_STAGES: tuple[tuple[str, Callable[[str], str]], ...] = (
    ("Starting to load model", lambda message: "loading weights"),
    ("Loading weights took", lambda message: "weights loaded; profiling memory"),
    ("KV cache size", lambda message: message.partition(" tokens")[0] + " tokens"),
    ("Graph capturing finished", lambda message: "CUDA graphs captured"),
)


@contextmanager
def quiet_imports() -> Iterator[None]:
    """Disable vLLM's logs and usage statistics during imports, unless the environment variables are set."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    logging.getLogger("vllm").setLevel(logging.ERROR)  # vLLM logs missing optional packages
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        yield


def stage_of(message: str) -> str | None:
    """Return the stage indicated by a log message, if any."""
    return next((stage(message) for words, stage in _STAGES if words in message), None)


class _StageHandler(logging.Handler):
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
    """Log startup stages. With worker processes, only the start and end of loading are logged."""
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
