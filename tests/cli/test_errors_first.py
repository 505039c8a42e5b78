"""Mistakes in files and names are reported before torch, transformers or statistics are loaded."""

import json
import subprocess
import sys

import pytest

from tests.support.jsonl_files import write_rows

HEAVY = ("torch", "transformers", "scipy", "sklearn", "statsmodels", "matplotlib", "gradio", "huggingface_hub")
SCRIPT = f"""
import json, sys
from judgelm.cli import main
sys.argv = ["judgelm", *sys.argv[1:]]
try:
    main.main()
except SystemExit as end:
    print(json.dumps([end.code, sorted(set({HEAVY!r}) & sys.modules.keys())]))
"""
PAIR = {"id": "1", "question": "q", "answer_1": "a", "answer_2": "b", "winner": 1}


@pytest.fixture
def errors_of(tmp_path, batch, monkeypatch):
    """Run a command in a folder with `pairs.jsonl`, `other.jsonl` and a run, `out.jsonl`; return its errors."""
    batch(write_rows(tmp_path / "pairs.jsonl", [PAIR]))
    write_rows(tmp_path / "other.jsonl", [{"a": 1}])
    (tmp_path / "cp1252.csv").write_bytes("question,answer_1,answer_2\ncafé,a,b\n".encode("cp1252"))
    monkeypatch.setenv("JUDGELM_CACHE", str(tmp_path / "cache"))

    def run(command):
        arguments = [sys.executable, "-c", SCRIPT, *command.split()]
        done = subprocess.run(arguments, capture_output=True, text=True, cwd=tmp_path)
        assert json.loads(done.stdout) == [1, []], done.stderr
        return " ".join(done.stderr.split())

    return run


@pytest.mark.parametrize(
    ("command", "finding"),
    [
        ("batch piars.jsonl -o o.jsonl", "did you mean pairs.jsonl"),
        ("batch pairs.jsonl -o nowhere/o.jsonl", "create nowhere first"),
        ("batch other.jsonl -o o.jsonl", "fields not recognised: a."),
        ("batch cp1252.csv -o o.jsonl", "iconv -f WINDOWS-1252"),
        ("batch pairs.jsonl -o o.jsonl --column question=prompt", 'column "prompt", assigned to field "question"'),
        ("batch pairs.jsonl -o o.jsonl --model ./judge", "no such folder"),
        ("batch pairs.jsonl -o o.jsonl", "run: judgelm judges install"),
        ("eval out.jsonl --labels other.jsonl", "fields not recognised: a."),
        ("report pairs.jsonl --labels out.jsonl", "swap them: out.jsonl --labels pairs.jsonl"),
        ("eval piars.jsonl --labels pairs.jsonl", "did you mean pairs.jsonl"),
        ("tune ./judge --labels pairs.jsonl -o j", "no such folder"),
        ("serve ./judge", "no such folder"),
        ("web ./judge", "no such folder"),
    ],
)
def test_mistakes_are_reported_before_slow_imports(errors_of, command, finding):
    assert finding in errors_of(command)
