"""Release the OpenMP threads of a thread that computes no more."""

import ctypes
import os


def release_openmp_threads() -> None:
    """End the OpenMP threads that compute for the calling thread; its next operation starts new ones.

    Each thread that computes has its own. GNU's OpenMP, which torch has on Linux, lets them wait ready for the
    next operation only while the process has no more of them than cores. With more, all of them sleep after each
    operation and are woken for the next one, and passes take up to 1.3 times as long. So a thread that computes no more
    lets go of them.
    """
    try:
        openmp = ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except (OSError, AttributeError):  # not in this process, or not Linux
        return
    openmp.omp_pause_resource_all(2)  # omp_pause_hard
