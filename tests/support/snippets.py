"""The code blocks of a Markdown page, and what each of them is for.

What follows a fence's language decides:

    ```bash                        run, in the page's folder, after the blocks before it; so is ```python
    ```bash title="Needs a GPU"    not run (the reader sees why), but parsed; so with all that begin with "Needs", but
                                   for those of `PROVIDED`: the tests have what they need, and run them
    ```json title="pairs.jsonl"    is that file of the page's folder, whatever its language
    ```text title="Output"         is what the block before it prints

Blocks without a fence, indented by four, are commands of a shell, as README.md has them.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Kind = Literal["run", "provided", "parsed", "file", "output", "shown"]

PROVIDED = frozenset(
    {
        "Needs a running judgelm serve",
        "Needs a server that speaks OpenAI's API",
        "Needs PandaLM's published test set",
    }
)

_RUN = ("bash", "python")
_FENCED = re.compile(
    r"^```(?P<language>[\w-]+)[ \t]*(?:title=\"(?P<title>[^\"]*)\")?[^\n]*\n(?P<text>.*?)^```[ \t]*$", re.M | re.S
)
_INDENTED = re.compile(r"(?:^|\n)\n((?:    [^\n]*\n)(?:(?:    [^\n]*)?\n)*)")
_FILE = re.compile(r"[\w.-]+\.[a-z]+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    """One block; `line` is its first line in the page."""

    page: Path
    line: int
    language: str
    title: str
    text: str

    @property
    def kind(self) -> Kind:
        if self.title == "Output":
            return "output"
        if self.title.startswith("Needs "):
            return "provided" if self.title in PROVIDED else "parsed"
        if _FILE.fullmatch(self.title):
            return "file"
        return "run" if self.language in _RUN else "shown"

    @property
    def place(self) -> str:
        return f"{self.page.name}:{self.line}"


def snippets(page: Path) -> list[Snippet]:
    """All blocks of a page in their order."""
    text = page.read_text(encoding="utf-8")
    fenced = [
        Snippet(
            page=page,
            line=text.count("\n", 0, found.start()) + 2,
            language=found["language"],
            title=found["title"] or "",
            text=found["text"],
        )
        for found in _FENCED.finditer(text)
    ]
    left = _FENCED.sub(lambda found: "\n" * found[0].count("\n"), text)
    indented = [
        Snippet(
            page=page,
            line=left.count("\n", 0, found.start(1)) + 1,
            language="bash",
            title="",
            text=re.sub(r"(?m)^    ", "", found[1]),
        )
        for found in _INDENTED.finditer(left)
    ]
    return sorted([*fenced, *indented], key=lambda one: one.line)
