"""OpenMP's threads: as many as cores while an engine runs, in whichever thread it was loaded."""

import math
import os
import subprocess
import sys
import textwrap

import pytest

from judgelm.errors import ConfigError
from judgelm.records import Sampling

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="GNU's OpenMP and /proc are Linux's")


def run(code):
    """What a process with two OpenMP threads for each of its own prints; `count()` is its number of threads."""
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
        from judgelm.engines.base import release_openmp_threads
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


def test_a_process_without_openmp_has_nothing_to_release():
    code = "import sys\nfrom judgelm.engines.base import *\nrelease_openmp_threads()\nprint('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.stdout.split() == ["False"]


@pytest.mark.parametrize(
    ("field", "values"),
    [
        ("temperature", [math.nan, math.inf, -math.inf, -0.1, 101, 1e308, 10**400]),
        ("max_tokens", [0, -1, 2**31, 10**400]),
        ("n", [0, -1, 10_001]),
        ("seed", [-1, 2**62 + 1, 2**64, 10**400]),
        ("reserve", [-1, 2**31]),
        ("stop", [("",), ("a", "")]),
    ],
)
def test_numbers_beyond_all_engines_are_refused(field, values):
    for value in values:
        with pytest.raises(ConfigError, match=field):
            Sampling(**({"max_tokens": 8} | {field: value}))


@pytest.mark.parametrize(
    ("given", "used"), [(0, 0), (1e-300, 0.01), (5e-324, 0.01), (0.01, 0.01), (0.7, 0.7), (100, 100)]
)
def test_a_temperature_too_low_for_its_logits_is_raised(given, used):
    assert Sampling(max_tokens=8, temperature=given).temperature == used
