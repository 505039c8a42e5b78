"""Release the OpenMP threads of a thread that has finished computing."""

import ctypes
import os


def release_openmp_threads() -> None:
    """End the OpenMP threads of the calling thread; its next torch operation starts new ones.

    Every computing thread has its own. If a process has more of them than cores, GNU OpenMP lets them sleep between
    operations, which makes passes up to 1.3 times slower.
    """
    try:
        openmp = ctypes.CDLL("libgomp.so.1", mode=os.RTLD_NOW | os.RTLD_NOLOAD)
    except (OSError, AttributeError):  # not in this process, or not Linux
        return
    openmp.omp_pause_resource_all(2)  # omp_pause_hard
