"""Published files of benchmarks, which are not in the repository: below a folder that an environment variable names."""

import os
from pathlib import Path

import pytest

VARIABLE = "JUDGELM_BENCHMARK_FILES"


def published(benchmark, *names):
    """Paths of files below FOLDER/BENCHMARK; the test is skipped where they are not there."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} names no folder with the published files of {benchmark}")
    paths = [Path(folder) / benchmark / name for name in names]
    if missing := [str(path) for path in paths if not path.is_file()]:
        pytest.skip(f"{missing[0]} is not there")
    return [str(path) for path in paths]
