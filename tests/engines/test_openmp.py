"""Released OpenMP threads."""

import os
import subprocess
import sys
import textwrap

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="GNU's OpenMP and /proc are Linux's")


def run(code):
    """The output of a process with two OpenMP threads per thread; `count()` is its number of threads."""
    start = "import os, threading, torch\ncount = lambda: len(os.listdir('/proc/self/task'))\n"
    done = subprocess.run(
        [sys.executable, "-c", start + textwrap.dedent(code)],
        env=os.environ | {"OMP_NUM_THREADS": "2", "TOKENIZERS_PARALLELISM": "false"},
        capture_output=True, text=True, check=False, timeout=250,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout.split()


def test_released_threads_end_and_come_back():
    counts = run(
        """
        from judgelm.engines.openmp import release_openmp_threads
        release_openmp_threads()
        before = count()
        for _ in range(2):
            torch.ones(1 << 20).add(1)
            print(count() - before)
            release_openmp_threads()
            print(count() - before)
        """
    )
    assert counts == ["1", "0", "1", "0"]


def test_process_without_openmp():
    code = "import sys\nfrom judgelm.engines.openmp import *\nrelease_openmp_threads()\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.split() == ["False"]
