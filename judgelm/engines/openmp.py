"""Manage OpenMP threads."""

import ctypes
import os


def release_openmp_threads() -> None:
    """Stop the calling thread's OpenMP threads. The next torch operation starts new threads.

    With more threads than cores, GNU OpenMP slows down forward passes by up to 30 %.
    """
    try:
        openmp = ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except (OSError, AttributeError):  # not loaded in this process, or not Linux
        return
    openmp.omp_pause_resource_all(2)  # omp_pause_hard
