"""Fixtures that run commands in this process."""

import io
import sys

import pytest

from tests.support.in_process import exit_code
from tests.support.jsonl_files import write_rows


@pytest.fixture
def cli(monkeypatch, capsys):
    """Run `judgelm-batch` or `judgelm`; return exit code, standard output and standard error."""

    def run(program, *arguments, stdin=None):
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin)), encoding="utf-8"))
        capsys.readouterr()
        code = exit_code(program, *arguments)
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return run


@pytest.fixture
def batch(cli, tmp_path):
    """Judge a file into `out.jsonl` with the scripted engine; return what `cli` returns."""

    def run(path, *options, reply="8 6\\n", out=None, stdin=None):
        command = ("judgelm-batch", path, "-o", out or tmp_path / "out.jsonl", "--engine", "scripted", "--model", reply)
        return cli(*command, *options, stdin=stdin)

    return run


@pytest.fixture
def pairs(tmp_path):
    """Write a file of plain pairs."""

    def write(n, name="pairs.jsonl", **fields):
        rows = ({"id": f"p{i}", "question": f"q{i}", "answer_1": "a", "answer_2": "b"} | fields for i in range(n))
        return write_rows(tmp_path / name, rows)

    return write
