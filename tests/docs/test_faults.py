"""The faults in CONTRIBUTING.md: every test that they name exists, and every stage has a row for each fault."""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
_, _, PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n## Faults\n")
FAULTS = ("killed", "full disk", "memory", "torn file", "dead server")


def test_every_test_named_is_there():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", PAGE)
    assert len(named) == PAGE.count("::")
    for path, name in named:
        found = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
        assert name in {one.name for one in found if isinstance(one, ast.FunctionDef)}, f"{path}::{name}"


def test_every_stage_has_every_fault():
    stages = re.split(r"^### ", PAGE, flags=re.MULTILINE)[1:]
    assert len(stages) == 14
    for stage in stages:
        rows = re.findall(r"^\| ([a-z ,]+?) \| (.+?) \| (.*?) ?\|$", stage, flags=re.MULTILINE)
        heads = ", ".join(head for head, *_ in rows)
        assert all(fault in heads for fault in FAULTS), stage.splitlines()[0]
