"""Imports stay light, recipes shadow nothing, the product stays within its budget, docstring examples hold."""

import ast
import doctest
import importlib
import importlib.util
import io
import os
import sys
import tokenize
import tomllib
from collections import Counter
from pathlib import Path

import pytest

import judgelm
from tests.support.processes import run_command

ROOT = Path(__file__).parents[1]
RECIPE_FOLDERS = ("train", "serve", "data_tools")
RECIPES = sorted(path for folder in RECIPE_FOLDERS for path in (ROOT / folder).glob("*.py"))
HEAVY = ("torch", "transformers", "vllm", "ray", "trl", "datasets", "pandas", "matplotlib", "sklearn")


@pytest.mark.parametrize("module", ["judgelm", "judgelm.cli.batch", "judgelm.cli.main"])
def test_importing_the_package_and_its_commands_loads_nothing_heavy(module):
    # the evaluation commands need scikit-learn and matplotlib, but not to print their help
    code = f"import {module}, sys; print([name for name in {HEAVY} if name in sys.modules])"
    assert run_command(sys.executable, "-c", code).stdout == "[]\n"


def test_torch_counts_gpus_without_initialising_cuda():
    code = "import judgelm, os; print(os.environ['PYTORCH_NVML_BASED_CUDA_CHECK'])"
    for given, expected in ((None, "1"), ("0", "0")):  # the user's own setting stays
        environment = {name: value for name, value in os.environ.items() if name != "PYTORCH_NVML_BASED_CUDA_CHECK"}
        environment |= {} if given is None else {"PYTORCH_NVML_BASED_CUDA_CHECK": given}
        assert run_command(sys.executable, "-c", code, env=environment).stdout.strip() == expected


def test_only_one_function_asks_torch_whether_there_is_a_gpu():
    files = [path for path in (ROOT / "judgelm").rglob("*.py") if "cuda.is_available()" in path.read_text("utf-8")]
    # training asks about the process that already trains
    assert {str(path.relative_to(ROOT)) for path in files} == {"judgelm/machine.py", "judgelm/training/live_model.py"}


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_recipe_shadows_no_module_and_imports_no_other_recipe(path):
    # `python train/x.py` puts train/ first on sys.path, so a recipe named like a module would hide it
    # (`data_tools/build.py` has its name from the design; PyPA's `build`, where installed, is a program nobody imports)
    shadowed = None if path.name == "build.py" else importlib.util.find_spec(path.stem)
    assert shadowed is None or (shadowed.origin or "").startswith(str(path.parent)), f"{path.name}: {shadowed.origin}"
    text = path.read_text(encoding="utf-8")
    opening = ast.get_docstring(ast.parse(text)) or ""
    assert path.name in opening or "`judgelm " in opening, "a recipe opens with the command that runs it"
    siblings = {other.stem for folder in RECIPE_FOLDERS for other in (ROOT / folder).glob("*.py")}
    nodes = list(ast.walk(ast.parse(text)))
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    assert not {name.split(".")[0] for name in imported} & siblings


@pytest.mark.parametrize("path", sorted((ROOT / "configs").rglob("*.yaml")), ids=lambda path: path.name)
def test_a_config_opens_with_the_command_that_runs_it(path):
    head = path.read_text(encoding="utf-8").split("\n\n")[0]
    assert head.startswith("#")
    assert "--config" in head or f"{path.parent.name}/{path.name}" in head


PRODUCT = [path for folder in ("judgelm", "train", "serve", "data_tools") for path in (ROOT / folder).rglob("*.py")]
_NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(text: str) -> int:
    """Lines that hold code: neither blank, comment nor docstring."""
    expressions = [node.value for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Expr)]
    docs = [node for node in expressions if isinstance(node, ast.Constant) and isinstance(node.value, str)]
    documented = {line for node in docs for line in range(node.lineno, node.end_lineno + 1)}
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    held = {line for token in tokens if token.type not in _NO_CODE for line in range(token.start[0], token.end[0] + 1)}
    return len(held - documented)


def test_the_product_stays_within_its_budget():
    budget = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["judgelm"]["budget"]
    lines = sum(code_lines(path.read_text(encoding="utf-8")) for path in PRODUCT)
    assert lines <= budget["lines"], "delete what the change makes superfluous, or raise the budget and say for what"


def test_a_public_class_name_stands_once_in_the_tree():
    bodies = (ast.parse(path.read_text(encoding="utf-8")).body for path in (ROOT / "judgelm").rglob("*.py"))
    classes = Counter(node.name for body in bodies for node in body if isinstance(node, ast.ClassDef))
    assert [name for name, count in classes.items() if count > 1 and not name.startswith("_")] == []


PACKAGE = Path(judgelm.__file__).parent
WITH_EXAMPLES = sorted(path for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8"))


@pytest.mark.parametrize("path", WITH_EXAMPLES, ids=lambda path: path.stem)
def test_the_examples_hold(path):
    module = importlib.import_module(".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts))
    result = doctest.testmod(module)
    assert result.attempted
    assert not result.failed
