"""Memory that a pass frees is there for the next one, without asking the system again."""

import platform
import subprocess
import sys

import pytest

COUNT = """
import resource, sys
import torch
from judgelm.engines.free_memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
faults = lambda: resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(4 << 20)
before = faults()
for _ in range(20):
    torch.ones(4 << 20)  # 16 MB
print(faults() - before)
"""


@pytest.mark.skipif(platform.libc_ver()[0] != "glibc", reason="glibc's own setting")
def test_large_tensors_cost_no_new_pages_once_there_were_some():
    def faults(how):
        done = subprocess.run(
            [sys.executable, "-c", COUNT, how], capture_output=True, text=True, check=True, timeout=120
        )
        return int(done.stdout)

    given_back, kept = faults("give back"), faults("keep")
    assert given_back > 10_000  # 16 MB are 4,096 pages, or fewer where the system joins them
    assert kept < given_back / 10
