"""The pages: links hold, pictures are small, and the tests and files that they name exist and run."""

import ast
import json
import re
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")])
EACH_PAGE = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
PICTURES = sorted((DOCS / "images").glob("*.png"))
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCED = re.compile(r"^```.*?^```[ \t]*$", re.M | re.S)
NAMED_FILE = re.compile(r"`((?:judgelm|train|serve|data_tools|configs|benchmarks|tests)/[\w./-]+)`")


@cache
def anchors(page: Path) -> frozenset[str]:
    """The names of its headings, as GitHub and the site make them."""
    headings = re.findall(r"(?m)^#{1,6} +(.+?) *$", FENCED.sub("", page.read_text(encoding="utf-8")))
    plain = (re.sub(r"[^\w\- ]", "", heading).strip().lower() for heading in headings)
    return frozenset(name.replace(" ", "-") for name in plain)


@EACH_PAGE
def test_links_hold(page):
    broken = []
    prose = re.sub(r"`[^`\n]*`", "", FENCED.sub("", page.read_text(encoding="utf-8")))
    for link in LINK.findall(prose):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists():
            broken.append(f"{link}: no such file")
        elif anchor and anchor not in anchors(target):
            broken.append(f"{link}: no such heading")
    assert broken == []


@EACH_PAGE
def test_files_that_are_named_exist(page):
    named = NAMED_FILE.findall(page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_page_of_docs_is_in_the_sites_navigation():
    named = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    assert [page for page in DOCS.rglob("*.md") if str(page.relative_to(DOCS)) not in named] == []


@pytest.mark.parametrize("picture", PICTURES, ids=lambda picture: picture.name)
def test_a_picture_is_small(picture):
    assert picture.stat().st_size <= 150_000


def test_the_gallery_shows_each_picture_of_the_page():
    gallery = (DOCS / "gallery.md").read_text(encoding="utf-8")
    of_the_page = [picture.name for picture in PICTURES if picture.name.startswith("web-")]
    assert [name for name in of_the_page if f"images/{name}" not in gallery] == []


_, _, FAULTS_PAGE = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("\n## Faults\n")
FAULTS = ("killed", "full disk", "memory", "torn file", "dead server")


def test_every_test_named_is_there():
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", FAULTS_PAGE)
    assert len(named) == FAULTS_PAGE.count("::")
    for path, name in named:
        nodes = ast.parse((ROOT / path).read_text(encoding="utf-8")).body
        assert name in {node.name for node in nodes if isinstance(node, ast.FunctionDef)}, f"{path}::{name}"


def test_every_stage_has_every_fault():
    stages = re.split(r"^### ", FAULTS_PAGE, flags=re.MULTILINE)[1:]
    assert len(stages) == 13
    for stage in stages:
        rows = re.findall(r"^\| ([a-z ,]+?) \| (.+?) \| (.*?) ?\|$", stage, flags=re.MULTILINE)
        heads = ", ".join(head for head, *_ in rows)
        assert all(fault in heads for fault in FAULTS), stage.splitlines()[0]


SECTIONS = {"batch": "A pair, from file to verdict", "sft": "A row, from file to trained judge", "request": "A request"}
OTHER_RUNS = {
    "judgelm/engines/openai/engine.py": "another engine",
    "judgelm/engines/vllm/engine.py": "another engine",
    "judgelm/data/swap_names.py": "needs reasons",
    "judgelm/judges/cards.py": "needs a judge by name",
    "judgelm/serving/app.py": "runs at the server's start",
}
"""Files that the page names for cases that the walks do not have."""


@pytest.fixture(scope="module")
def walks(tmp_path_factory):
    file = tmp_path_factory.mktemp("walks") / "walks.json"
    command = [sys.executable, "-m", "benchmarks.walks", "--json", str(file)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True, timeout=900)
    return json.loads(file.read_text(encoding="utf-8"))


@pytest.mark.slow  # trains one step, judges 60 pairs and starts a server
@pytest.mark.parametrize("walk", SECTIONS)
def test_the_files_of_a_walk_run(walks, walk):
    _, _, text = (DOCS / "architecture.md").read_text(encoding="utf-8").partition(f"\n## {SECTIONS[walk]}")
    steps = re.findall(r"^\d+\. .*(?:\n   .*)*", text.partition("\n## ")[0], re.M)
    named = set(re.findall(r"`(judgelm/[\w/]+\.py)`", "\n".join(steps)))
    assert len(steps) == 10
    assert named - OTHER_RUNS.keys() - set(walks[walk]) == set()
