"""The page on the way from an API to a judge of one's own: its releases, its changes and its figures."""

import ast
import json
import re
from pathlib import Path

import pytest
import yaml

import judgelm.integrations
from tests.conformance.build_clients import NODE_CLIENTS, PYTHON_CLIENTS
from tests.support.snippets import snippets

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs/replacing-gpt4/off-the-api.md"
STORED = json.loads((ROOT / "benchmarks/stored_gpt4.json").read_text(encoding="utf-8"))
PINS = [pin for pins in (PYTHON_CLIENTS | NODE_CLIENTS).values() for pin in pins]
PINS += (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
DIFFS = [pytest.param(one, id=one.title) for one in snippets(PAGE) if one.language == "diff"]


def test_the_releases_are_those_that_are_compared():
    rows = re.findall(r"^\| ([a-z_]+)[^|]*\| ([\d.]+) \|", PAGE.read_text(encoding="utf-8"), re.M)
    assert len(rows) == 9
    for name, release in rows:
        pattern = rf"{name.replace('_', '[_-]')}(\[\w+\])?[=@]=?{re.escape(release)}"
        assert any(re.fullmatch(pattern, pin) for pin in PINS), (name, release)


@pytest.mark.parametrize("diff", DIFFS)
def test_what_each_change_leaves_is_code(diff):
    kept = [line[1:] for line in diff.text.splitlines() if line[0] in " +"]
    assert any(line[0] == "+" for line in diff.text.splitlines())
    if diff.title == "promptfoo":
        assert yaml.safe_load("\n".join(kept))["provider"]["config"]["apiBaseUrl"].endswith("/v1")
        return
    for node in ast.walk(ast.parse("\n".join(kept))):
        if isinstance(node, ast.ImportFrom) and node.module == "judgelm.integrations":
            assert all(hasattr(judgelm.integrations, name.name) for name in node.names)


def test_the_figures_are_the_measured_ones():
    page = PAGE.read_text(encoding="utf-8")
    same = STORED["same_winner"]
    words = f"{100 * same['value']:.1f} % ({100 * same['low']:.1f} to {100 * same['high']:.1f})"
    assert words in page
    assert f"${STORED['gpt_4_1_dollars_per_10000']:.0f}" in page
    assert f"{STORED['answered']} of {STORED['requests']}" in page
