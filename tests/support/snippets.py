"""The code blocks of a Markdown page, and what each of them is for."""

import ast
import re
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path
from typing import Literal

Kind = Literal["run", "provided", "parsed", "file", "output", "shown"]

PROVIDED = frozenset(
    {"Needs a running judgelm serve", "Needs a server that speaks OpenAI's API", "Needs PandaLM's published test set"}
)

_ROOT = Path(__file__).parents[2]
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


_PROGRAM = r"(?:judgelm|judgelm-batch|python|make|accelerate|bash|pip|[a-z_]+\.py)"
_INLINE = re.compile(rf"(?<!`)`({_PROGRAM}(?: [^`]*)?)`")
_LINE = rf"({_PROGRAM} (?:[^\n]*\\\n)*[^\n]*)$"
_IN_DOCSTRING = re.compile(rf"^(?:    |Example: ){_LINE}", re.MULTILINE)
_IN_COMMENT = re.compile(rf"^(?:   +|.*?: ){_LINE}", re.MULTILINE)
_PLACEHOLDER = re.compile(r"\b(?:NAME|COMMAND)\b|\[--|\.\.\.")
_SCRIPTS = ("data_tools", "train", "serve")


def named_commands(path: Path) -> list[str]:
    """The commands that a page's sentences, a configuration's first comment, or a script's docstrings name."""
    text = path.read_text(encoding="utf-8")
    if path.suffix == ".md":
        found = [" ".join(match[1].split()) for match in _INLINE.finditer(_FENCED.sub("", text))]
    elif path.suffix == ".py":
        nodes = [node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Module | ast.FunctionDef)]
        found = [match[1] for node in nodes for match in _IN_DOCSTRING.finditer(ast.get_docstring(node) or "")]
    else:
        comment = "\n".join(line.lstrip("#!") for line in takewhile(lambda line: line[:1] == "#", text.splitlines()))
        found = [match[1] for match in _IN_COMMENT.finditer(comment)]
    calls = (re.sub(r"   +[(#].*", "", call) for call in found if not _PLACEHOLDER.search(call))
    return [located for call in calls if (located := _located(call))]


def _located(call: str) -> str:
    program = call.split()[0]
    if not program.endswith(".py"):
        return call
    places = [path for folder in _SCRIPTS for path in (_ROOT / folder).glob(program)]
    return f"python {places[0].relative_to(_ROOT)}{call.removeprefix(program)}" if places else ""


def snippets(page: Path) -> list[Snippet]:
    text = page.read_text(encoding="utf-8")
    found = [
        (text.count("\n", 0, match.start()) + 2, match["language"], match["title"] or "", match["text"])
        for match in _FENCED.finditer(text)
    ]
    left = _FENCED.sub(lambda match: "\n" * match[0].count("\n"), text)
    found += [
        (left.count("\n", 0, match.start(1)) + 1, "bash", "", re.sub(r"(?m)^    ", "", match[1]))
        for match in _INDENTED.finditer(left)
    ]
    return [
        Snippet(page=page, line=line, language=language, title=title, text=code)
        for line, language, title, code in sorted(found)
    ]
