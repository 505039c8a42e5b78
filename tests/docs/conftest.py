"""Says at the end how much of the documentation is run, and how much only parsed."""

from collections import Counter
from pathlib import Path

from tests.support.snippets import Snippet, snippets

DOCS = Path(__file__).parents[2] / "docs"
RUN_BY_CLIENTS = ("deepeval", "inspect-ai", "openevals", "prometheus", "promptfoo", "ragas")
"""Pages whose client runs them in `make conformance`."""


def pytest_terminal_summary(terminalreporter):
    code = [one for page in DOCS.rglob("*.md") for one in snippets(page) if one.language in ("bash", "python")]
    found = Counter(map(_kind, code))
    terminalreporter.write_line(
        f"snippets of docs/: {found['run']} run, {found['file']} files that they use, {found['client']} run by "
        f"`make conformance`, {found['parsed']} only parsed"
    )


def _kind(one: Snippet) -> str:
    if one.page.stem in RUN_BY_CLIENTS and one.kind == "parsed":
        return "client"
    return "run" if one.kind == "provided" else one.kind
