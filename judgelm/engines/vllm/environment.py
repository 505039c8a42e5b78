"""The environment for importing torch and vLLM: no log lines between a run's own, no usage statistics sent."""

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_DEFAULTS = {
    "TORCH_CPP_LOG_LEVEL": "ERROR",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_CPU_OMP_THREADS_BIND": "nobind",  # `auto` wants a NUMA node for each worker
}


@contextmanager
def quiet_imports() -> Iterator[None]:
    """Import vLLM in this context; variables that the user has set stay."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    logging.getLogger("vllm").setLevel(logging.ERROR)  # it logs the optional parts that are not installed
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        yield
