"""The pages of docs/replacing-gpt4/: replies as the dialects render them, releases, changes and figures."""

import ast
import json
import re
from pathlib import Path

import pytest
import yaml

import judgelm.integrations
from judgelm.dialects.catalog import DIALECTS
from judgelm.dialects.contract import ChatRequest, JudgeResult, JudgeTask, sample_of
from tests.conformance.build_clients import NODE_CLIENTS, PYTHON_CLIENTS
from tests.support.snippets import snippets

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
REASON = "The first answer names the number, the second does not."
FINDINGS = {
    "pair": JudgeResult(winner=1, scores=(8.2, 6.1), first_better=0.87, tie=0.06, reason=REASON),
    "grade": JudgeResult(scores=(8.2,), grades=((8.0, 0.8), (9.0, 0.2)), reason=REASON),
    "label": JudgeResult(correct=0.91, reason=REASON),
}
GRADES = {
    **dict.fromkeys(("autoj-single", "fastchat-single", "rewardbench-ratings"), (1.0, 10.0)),
    **dict.fromkeys(("flowjudge", "geval", "prometheus-absolute", "ragas-rubrics"), (1.0, 5.0)),
    "deepeval-geval": (0.0, 10.0),
    "llmbar-rating": (0.0, 9.0),
}
LABELS = {
    "agentevals", "inspect-model-graded-qa", "openevals", "promptfoo-closedqa", "promptfoo-llm-rubric",
    "ragas-aspect-critic", "simpleqa",
}  # fmt: skip
FACTS = {
    **{name: {"choices": (), "reasoning": True, "fault": False} for name in ("agentevals", "openevals")},
    "arena-hard": {"labels": ("A>>B", "A>B", "A=B", "B>A", "B>>A")},
    "llmbar-choice": {"explanation": True},
}
SHOWN = [
    pytest.param(one.title.removeprefix("Reply: "), one.text, id=one.place)
    for page in sorted(DOCS.rglob("*.md"))
    for one in snippets(page)
    if one.title.startswith("Reply: ")
]


@pytest.mark.parametrize(("name", "shown"), SHOWN)
def test_a_reply_is_what_its_dialect_renders(name, shown):
    [dialect] = [one for one in DIALECTS if one.name == name]
    task = "grade" if name in GRADES else "label" if name in LABELS else "pair"
    sample = sample_of("What is 2 + 2?", ("4", "5") if task == "pair" else ("4",))
    case = JudgeTask(dialect=name, kind=task, sample=sample, scale=GRADES.get(name), facts=FACTS.get(name, {}))
    reply = dialect.render(case, ChatRequest(messages=()), FINDINGS[task])
    assert (*reply.texts, reply.arguments)[0].strip() == shown.strip()


def test_every_client_that_is_named_exists_and_every_dialect_is_named():
    named = (DOCS / "replacing-gpt4/index.md").read_text(encoding="utf-8")
    families = {dialect.name.split("-")[0] for dialect in DIALECTS}
    assert sorted(family for family in families if f"`{family}" not in named) == []


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
    assert f"{100 * same['value']:.1f} % ({100 * same['low']:.1f} to {100 * same['high']:.1f})" in page
    assert f"${STORED['gpt_4_1_dollars_per_10000']:.0f}" in page
    assert f"{STORED['answered']} of {STORED['requests']}" in page
