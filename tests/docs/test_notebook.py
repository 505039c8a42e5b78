"""The example notebook is executed, cell by cell, with a scripted judge instead of the default judge."""

import json

import judgelm
from judgelm import Judge
from tests.docs.test_snippets import ROOT


def test_the_notebook_runs(monkeypatch, capsys):
    monkeypatch.setattr(judgelm, "Judge", lambda: Judge("Yes", engine="scripted", reading="yes-no"))
    notebook = json.loads((ROOT / "examples/judge.ipynb").read_text(encoding="utf-8"))
    cells = ["".join(cell["source"]) for cell in notebook["cells"] if cell["cell_type"] == "code"]
    names = {}
    for cell in cells:
        exec(compile(cell, "judge.ipynb", "exec"), names)
    assert "  It opened in 1925." in capsys.readouterr().out
