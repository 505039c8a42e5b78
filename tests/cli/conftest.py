"""Commands, run in this process as the entry points run them."""

import io
import sys

import pytest

from tests.support.jsonl_files import write_rows


@pytest.fixture
def cli(monkeypatch, capsys):
    """Run `judgelm-batch` or `judgelm` with arguments; exit code, standard output, standard error."""

    def run(program, *arguments, stdin=None):
        from judgelm.cli import batch, main

        entry = {"judgelm-batch": batch.main, "judgelm": main.main}[program]
        monkeypatch.setattr(sys, "argv", [program, *map(str, arguments)])
        monkeypatch.setattr("gc.unfreeze", lambda: None)  # or the next run would search all that this process imported
        if stdin is not None:
            monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BufferedReader(io.BytesIO(stdin)), encoding="utf-8"))
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            entry()
        printed = capsys.readouterr()
        return ended.value.code or 0, printed.out, printed.err

    return run


@pytest.fixture
def batch(cli, tmp_path):
    """Judge a file with the scripted engine into `out.jsonl`; what `cli` returns."""

    def run(path, *options, reply="8 6\\n", out=None, stdin=None):
        command = ("judgelm-batch", path, "-o", out or tmp_path / "out.jsonl", "--engine", "scripted", "--model", reply)
        return cli(*command, *options, stdin=stdin)

    return run


@pytest.fixture
def pairs(tmp_path):
    """A file of plain pairs."""

    def write(n, name="pairs.jsonl", **fields):
        rows = ({"id": f"p{i}", "question": f"q{i}", "answer_1": "a", "answer_2": "b"} | fields for i in range(n))
        return write_rows(tmp_path / name, rows)

    return write
