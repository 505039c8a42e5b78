"""Files of rows for the tests of sources."""

import json

import pytest


@pytest.fixture
def write(tmp_path, monkeypatch):
    """Writes rows as JSON lines into the working folder, and returns the file's name."""
    monkeypatch.chdir(tmp_path)

    def write_rows(*rows, name="pairs.jsonl"):
        (tmp_path / name).write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
        return name

    return write_rows
