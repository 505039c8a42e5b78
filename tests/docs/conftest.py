"""Says at the end how much of the documentation is run, and how much only parsed."""

from collections import Counter
from pathlib import Path

from snippets import snippets

ROOT = Path(__file__).parents[2]


def pytest_terminal_summary(terminalreporter):
    found = Counter(
        one.kind
        for page in (ROOT / "docs").rglob("*.md")
        for one in snippets(page)
        if one.language in ("bash", "python") and one.kind in ("run", "parsed", "file")
    )
    terminalreporter.write_line(
        f"snippets of docs/: {found['run']} run, {found['file']} files that they use, {found['parsed']} only parsed"
    )
