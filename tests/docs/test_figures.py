"""Figures in README and docs/ are in docs/benchmarks.md, and those in docs/benchmarks.md are in benchmarks/."""

import json
import re
from pathlib import Path

import pytest

from benchmarks import figures
from benchmarks.findings.tables import render
from benchmarks.which_judge import __main__ as which_judge
from judgelm.dialects.catalog import DIALECTS

ROOT = Path(__file__).parents[2]
README = ROOT / "README.md"
TABLE = ROOT / "docs/benchmarks.md"
DETAILS = ROOT / "benchmarks/README.md"
FINDINGS_TABLES = ROOT / "benchmarks/findings/tables.md"
PAGES = [README, *sorted(page for page in (ROOT / "docs").rglob("*.md") if page != TABLE)]
INTERVAL = re.compile(r"-?\d+\.\d+ to -?\d+\.\d+")
NUMBER = re.compile(r"\d[\d,]*(?:\.\d+)?")


def rows(text: str, heads: str) -> list[list[str]]:
    """The cells of the tables whose first line begins so."""
    tables = re.findall(rf"^\| {re.escape(heads)} \|.*\n\|[-|]+\n((?:\|.*\n)+)", text, re.M)
    assert tables
    return [[cell.strip() for cell in line.strip("|").split(" | ")] for line in "".join(tables).splitlines()]


def measured() -> str:
    """The whole page of benchmarks, as the site shows it, and the tables of the findings."""
    return "".join(path.read_text(encoding="utf-8") for path in (TABLE, DETAILS, FINDINGS_TABLES))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_interval_is_among_the_benchmarks(page):
    assert set(INTERVAL.findall(page.read_text(encoding="utf-8"))) <= set(INTERVAL.findall(measured()))


def test_the_table_of_benchmarks_says_what_the_details_say():
    stated = set(INTERVAL.findall(TABLE.read_text(encoding="utf-8")))
    assert len(stated) >= 20
    assert stated <= set(INTERVAL.findall(DETAILS.read_text(encoding="utf-8")))


def test_the_tables_of_the_findings_are_those_of_their_results():
    results = json.loads(FINDINGS_TABLES.with_name("results.json").read_text(encoding="utf-8"))
    assert render(results) == FINDINGS_TABLES.read_text(encoding="utf-8")


def test_the_findings_show_every_row_of_their_tables_and_no_other_interval():
    page, tables = (path.read_text(encoding="utf-8") for path in (ROOT / "docs/findings.md", FINDINGS_TABLES))
    rows = {line for line in tables.splitlines() if line.startswith("|")}
    assert len(rows) > 80
    assert rows <= set(page.splitlines())
    assert set(INTERVAL.findall(page)) <= set(INTERVAL.findall(tables))


def test_the_page_of_benchmarks_is_that_of_the_stored_results():
    assert TABLE.read_text(encoding="utf-8") == figures.render(figures.read())


def test_every_figure_has_n_a_command_a_date_and_a_machine():
    machines = figures.read().machines
    for what, *cells in rows(TABLE.read_text(encoding="utf-8"), "what"):
        figure, n, command, date, machine = (cell.rstrip(" |") for cell in cells)
        assert NUMBER.search(figure), what
        assert NUMBER.search(n), what
        assert re.fullmatch(r"20\d\d-\d\d-\d\d", date), what
        assert machine in machines, what
        assert re.search(r"`(make|python|bash|pytest|judgelm-batch|judgelm) [^`]+`", command), what


@pytest.mark.parametrize("page", [README, ROOT / "docs/replacing-gpt4/index.md"], ids=lambda page: page.parent.name)
def test_the_number_of_dialects_is_the_catalogs(page):
    [stated] = re.findall(r"(\d+) (?:kinds of|judge prompts)", page.read_text(encoding="utf-8"))
    assert int(stated) == len(DIALECTS)


def test_the_table_of_judges_is_up_to_date():
    published = which_judge.published()
    rows = [*which_judge.own_rows(), *which_judge.released_rows(published)]
    text = README.read_text(encoding="utf-8")
    assert which_judge.readme_with(text, rows) == text, "run: python -m benchmarks.which_judge"
    assert which_judge.page(rows, published) == which_judge.PAGE.read_text(encoding="utf-8")


def test_every_published_figure_is_of_a_known_judge_and_has_a_source():
    known = {row["judge"] for row in which_judge.released_rows({})}
    for (model, name), fact in which_judge.published().items():
        assert model in known
        assert name in which_judge.SETS
        assert 0 < fact["percent"] < 100
        assert fact["source"].startswith("https://")
