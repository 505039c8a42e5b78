"""Links of the repository's own pages: files and headings that they name are there. The site checks its own again."""

import re
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "benchmarks").rglob("*.md")])
LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *$", re.M)
FENCED = re.compile(r"^```.*?^```[ \t]*$", re.M | re.S)
NAMED_FILE = re.compile(r"`((?:judgelm|train|serve|data_tools|configs|benchmarks|tests)/[\w./-]+)`")


def prose(page: Path) -> str:
    """A page's text without its code."""
    return re.sub(r"`[^`\n]*`", "", FENCED.sub("", page.read_text(encoding="utf-8")))


@cache
def anchors(page: Path) -> frozenset[str]:
    """The names of its headings, as GitHub and the site make them."""
    headings = HEADING.findall(FENCED.sub("", page.read_text(encoding="utf-8")))
    plain = (re.sub(r"[^\w\- ]", "", heading).strip().lower() for heading in headings)
    return frozenset(name.replace(" ", "-") for name in plain)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_hold(page):
    broken = []
    for link in LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", link):
            continue
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists():
            broken.append(f"{link}: no such file")
        elif anchor and anchor not in anchors(target):
            broken.append(f"{link}: no such heading")
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_are_named_exist(page):
    named = NAMED_FILE.findall(page.read_text(encoding="utf-8"))
    assert [name for name in named if not (ROOT / name).exists()] == []


def test_every_page_of_docs_is_in_the_sites_navigation():
    named = (ROOT / "mkdocs.yml").read_text(encoding="utf-8")
    missing = [str(page) for page in (ROOT / "docs").rglob("*.md") if str(page.relative_to(ROOT / "docs")) not in named]
    assert missing == []
