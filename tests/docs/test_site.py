"""The site as it is built: without a warning, and its pages ask nothing of any other host."""

import os
import re
import sys
from pathlib import Path

import pytest

from tests.support.processes import run_command

pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install -e '.[docs]'")

pytestmark = pytest.mark.slow  # the site is built

ROOT = Path(__file__).parents[2]
LOADED = re.compile(
    r"""<(?:script|img|iframe|source|video|audio|embed)\b[^>]*\bsrc\s*=\s*["']?(?P<src>[^"'\s>]+)"""
    r"""|<link\b(?=[^>]*\brel\s*=\s*["']?(?:stylesheet|preload|preconnect|dns-prefetch|icon|manifest))"""
    r"""[^>]*\bhref\s*=\s*["']?(?P<href>[^"'\s>]+)""",
    re.I,
)
LOADED_BY_STYLE = re.compile(r"@import\s+(?:url\()?[\"']?([^\"')\s]+)|url\([\"']?((?:https?:)?//[^\"')]+)")


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = (sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", folder)
    done = run_command(*command, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"})
    assert "WARNING" not in done.stderr
    return folder


def test_pages_load_nothing_from_another_host(site):
    pages = sorted(site.rglob("*.html"))
    assert len(pages) > 30
    loaded = {
        f"{page.name}: {address}"
        for pattern, files in ((LOADED, pages), (LOADED_BY_STYLE, site.rglob("*.css")))
        for page in files
        for match in pattern.finditer(page.read_text(encoding="utf-8"))
        if re.match(r"(?:https?:)?//", address := match[1] or match[2])
    }
    assert loaded == set()


def test_formulas_are_mathml(site):
    text = (site / "metrics.html").read_text(encoding="utf-8")
    assert text.count("<math") >= 15
    assert "arithmatex" not in text


def test_the_api_reference_is_filled_from_docstrings(site):
    text = (site / "api/index.html").read_text(encoding="utf-8")
    assert 'id="judgelm.judge.Judge.compare"' in text
    assert "Judge a pair." in text
