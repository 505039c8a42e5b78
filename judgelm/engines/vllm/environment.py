"""What torch and vLLM must find when they are imported: no lines of theirs between a run's own, nothing sent out."""

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
    """Import vLLM within it; what the user has set in the environment stays."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    logging.getLogger("vllm").setLevel(logging.ERROR)  # it tells which of its optional parts are not installed
    with warnings.catch_warnings(action="ignore", category=FutureWarning):
        yield
