"""Run forward passes, and detect out-of-memory and lost-device errors."""

import gc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import torch

from judgelm.engines.openmp import release_openmp_threads

Result = TypeVar("Result")

_NO_CODE = "could not create a primitive\n"
_NO_MEMORY = (
    "can't allocate memory",
    "not enough memory",
    # oneDNN's complete message; unsupported shapes produce a longer one ("... a primitive descriptor for ...")
    _NO_CODE,
    "could not create a memory object\n",
    "could not execute a primitive\n",
)
"""Messages of out-of-memory errors on CPUs, for which torch has no error class."""
_LOST_DEVICE = ("CUDA error", "HIP error", "XPU error", "CUBLAS_STATUS_", "CUDNN_STATUS_")


def is_out_of_memory(error: BaseException) -> bool:
    """Return True for out-of-memory errors."""
    text = f"{error}\n"
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(words in text for words in _NO_MEMORY)


def is_device_lost(error: BaseException) -> bool:
    """Return True if the device can no longer be used."""
    return any(words in str(error) for words in _LOST_DEVICE)


class PassThread:
    """Runs passes in the caller's thread, or in a spare thread if oneDNN (3.12) cannot allocate memory for code."""

    def __init__(self) -> None:
        self._spare = ThreadPoolExecutor(max_workers=1)
        self._spare.submit(int).result()
        self._is_moved = False

    def run(self, function: Callable[..., Result], *args: Any, alone: bool = False) -> Result:
        """Run a function without gradients and return its result."""
        if not self._is_moved:
            try:
                return function(*args)
            except RuntimeError as error:
                self._is_moved = _NO_CODE in f"{error}\n"
                if self._is_moved:
                    release_openmp_threads()
                if not (alone and self._is_moved):
                    raise
            gc.collect()  # reference cycles keep the failed pass's tensors alive
        return self._spare.submit(torch.inference_mode()(function), *args).result()
