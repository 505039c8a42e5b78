"""Run passes, and recognise errors of memory and device."""

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
    # oneDNN's words, whole: those of a shape that it does not support go on ("... a primitive descriptor for ...")
    _NO_CODE,
    "could not create a memory object\n",
    "could not execute a primitive\n",
)
"""In the messages of a CPU, for which torch has no error class."""

_LOST_DEVICE = ("CUDA error", "HIP error", "XPU error", "CUBLAS_STATUS_", "CUDNN_STATUS_")


def is_out_of_memory(error: BaseException) -> bool:
    """True if a pass ran out of memory."""
    text = f"{error}\n"
    return isinstance(error, (torch.OutOfMemoryError, MemoryError)) or any(words in text for words in _NO_MEMORY)


def is_device_lost(error: BaseException) -> bool:
    """True if no later pass can succeed: after such an error an accelerator refuses all work of its process."""
    return any(words in str(error) for words in _LOST_DEVICE)


class PassThread:
    """Runs passes in the caller's thread, and in another one after oneDNN had no memory for generated code.

    oneDNN (3.12) never forgets that error in the thread in which it arose: it generates no code there any more, so
    every pass of a new length would fail although memory is free again, and perhaps it says so only in such a later
    pass. The other thread starts at once, since it could not when memory is short; its OpenMP threads take the place of
    the caller's when it is needed.
    """

    def __init__(self) -> None:
        self._spare = ThreadPoolExecutor(max_workers=1)
        self._spare.submit(int).result()
        self._is_moved = False

    def run(self, function: Callable[..., Result], *args: Any, alone: bool = False) -> Result:
        """The function's result, computed without gradients.

        Args:
            function: runs the pass; it may be called twice.
            args: its arguments.
            alone: the pass holds one request and cannot shrink, so it is repeated in the other thread before it fails.
        """
        if not self._is_moved:
            try:
                return function(*args)
            except RuntimeError as error:
                self._is_moved = _NO_CODE in f"{error}\n"
                if self._is_moved:
                    release_openmp_threads()
                if not (alone and self._is_moved):
                    raise
            gc.collect()  # the failed pass's frames stand in reference cycles and would hold its tensors
        return self._spare.submit(torch.inference_mode()(function), *args).result()
