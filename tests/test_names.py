"""Names and layout: empty local names, openings of docstrings, gerund modules, loose modules, prefixes, slivers."""

import ast
import tomllib
from collections import Counter, defaultdict
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = ("judgelm", "train", "serve", "data_tools", "benchmarks")
MODULES = sorted(path for folder in FOLDERS for path in (ROOT / folder).rglob("*.py"))
EMPTY_NAMES = frozenset(
    ["one", "found", "told", "said", "lent", "those", "how", "kept", "place", "number", "what", "who", "asked"]
)
"""They say nothing of the value: it is a request, a result, an index, a count, a message ..."""

NOUNS = frozenset(
    [
        "cleaning",
        "debiasing",
        "grading",
        "judging",
        "loading",
        "parsing",
        "resampling",
        "sampling",
        "scoring",
        "serving",
        "streaming",
        "thinking",
        "training",
        "wording",
    ]
)
"""Words of the field that end like a gerund, and that modules may be called by."""


def empty_names(path):
    """Variables, parameters, imports and definitions with an empty name, each with its line."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.arg(arg=name) | ast.Name(id=name, ctx=ast.Store()):
                pass
            case ast.ExceptHandler(name=name) | ast.MatchAs(name=name) | ast.MatchStar(name=name):
                pass
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) | ast.ClassDef(name=name):
                pass
            case ast.alias():
                name = node.asname or node.name
            case _:
                continue
        if name in EMPTY_NAMES:
            yield f"{path.relative_to(ROOT)}:{getattr(node, 'lineno', 0)}: {name}"


@pytest.mark.parametrize("folder", [*FOLDERS[1:], *sorted(path.name for path in (ROOT / "judgelm").iterdir())])
def test_local_names_say_what_the_value_is(folder):
    paths = [path for path in MODULES if folder in path.relative_to(ROOT).parts[:2]]
    assert [line for path in paths for line in empty_names(path)] == []


@pytest.mark.parametrize("folder", FOLDERS)
def test_docstrings_begin_with_a_noun_or_a_verb(folder):
    openings = ("What ", "How ", "Whether ", "Which ")
    assert [
        f"{path.relative_to(ROOT)}:{node.body[0].lineno}"
        for path in MODULES
        if path.relative_to(ROOT).parts[0] == folder
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and (ast.get_docstring(node) or "").startswith(openings)
    ] == []


def test_a_module_is_named_by_a_noun():
    names = {part for path in MODULES for part in path.relative_to(ROOT).with_suffix("").parts}
    assert {name for name in names if name.endswith("ing") and name.split("_")[-1] not in NOUNS} == set()


def test_at_most_eight_modules_stand_loose():
    assert len([path for path in (ROOT / "judgelm").glob("*.py") if path.stem != "__main__"]) <= 8


def test_at_most_nine_layers():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    [contract] = settings["tool"]["importlinter"]["contracts"]
    assert len(contract["layers"]) <= 9


def test_more_than_three_modules_of_one_prefix_are_a_package():
    families = Counter((path.parent, path.stem.split("_")[0]) for path in MODULES if "_" in path.stem.strip("_"))
    assert [f"{folder.relative_to(ROOT)}/{prefix}_*" for (folder, prefix), n in families.items() if n > 3] == []


def test_few_small_modules_serve_one_other():
    # under 80 lines, and imported (or named in a string, as lazy commands are) by one module alone
    text = {path: path.read_text(encoding="utf-8") for path in MODULES}
    dotted = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path for path in MODULES
    }
    importers = defaultdict(set)
    for path in MODULES:
        for name in imported_names(text[path]) & dotted.keys():
            importers[name].add(path)
    small = [
        name
        for name, path in dotted.items()
        if name.startswith("judgelm.") and path.name != "__init__.py"
        and len(importers[name]) == 1 and len(text[path].splitlines()) < 80
    ]  # fmt: skip
    assert len(small) < 60, small


def imported_names(text):
    """Dotted names that a module imports, or mentions as a string such as "package.module:function"."""
    names = set()
    for node in ast.walk(ast.parse(text)):
        match node:
            case ast.Import():
                names |= {alias.name for alias in node.names}
            case ast.ImportFrom(module=str(module)):
                names |= {module} | {f"{module}.{alias.name}" for alias in node.names}
            case ast.Constant(value=str(value)):
                names.add(value.split(":")[0])
    return names
