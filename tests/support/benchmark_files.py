"""Imports of benchmarks in tests, and published files that are below a folder that an environment variable names."""

import json
import os
from pathlib import Path

import pytest

from judgelm.data.sources.importer import import_benchmark

VARIABLE = "JUDGELM_BENCHMARK_FILES"


def published(benchmark, *names):
    """Paths of files below FOLDER/BENCHMARK."""
    folder = os.environ.get(VARIABLE)
    if not folder:
        pytest.skip(f"{VARIABLE} names no folder with the published files of {benchmark}")
    paths = [Path(folder) / benchmark / name for name in names]
    if missing := [str(path) for path in paths if not path.is_file()]:
        pytest.skip(f"{missing[0]} is not there")
    return [str(path) for path in paths]


def imported(name, folder, *files):
    """The result of an import into FOLDER/out.jsonl, and its rows."""
    done = import_benchmark(name, [str(file) for file in files], folder / "out.jsonl", overwrite=True)
    return done, [json.loads(line) for line in (folder / "out.jsonl").read_text(encoding="utf-8").split("\n")[:-1]]
