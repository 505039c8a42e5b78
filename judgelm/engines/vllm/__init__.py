"""The vLLM engine, and the environment for importing and starting vLLM."""

import logging
import os
import time
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

START_LOG = logging.getLogger("judgelm.vllm_start")
_DEFAULTS = {
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # `auto` wants a NUMA node for each worker
}


@contextmanager
def quiet_imports() -> Iterator[None]:
    """Import vLLM without log lines and usage statistics, unless you set their variables."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    logging.getLogger("vllm").setLevel(logging.ERROR)  # it logs the optional parts that are not installed
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        yield


@contextmanager
def logged_start(processes: int) -> Iterator[None]:
    """Log beginning and end of vLLM's start, which takes minutes for a large model."""
    began = time.monotonic()
    START_LOG.info("vLLM: loading weights and profiling memory in %d process%s", processes, "es" * (processes > 1))
    yield
    START_LOG.info("vLLM: ready after %.0f s", time.monotonic() - began)
