"""Files of rows for the tests of data."""

import json

import pytest

from judgelm.data.labelled_set import read_labels
from tests.support import benchmark_files


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes rows as JSON lines into the working folder, and returns the file's name."""
    monkeypatch.chdir(tmp_path)

    def write_rows(*rows, name="pairs.jsonl"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return name

    return write_rows


@pytest.fixture
def labelled(write):
    """Reads rows as labels: the set, and the messages of its rejects."""

    def read(*rows, **options):
        messages = []
        return read_labels(write(*rows), on_reject=lambda reject: messages.append(reject.message), **options), messages

    return read


@pytest.fixture
def imported(write, tmp_path):
    """Imports rows as a benchmark: the result, and the rows made."""
    return lambda name, *rows, file="pairs.jsonl": benchmark_files.imported(name, tmp_path, write(*rows, name=file))
