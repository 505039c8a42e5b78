"""The shape of the house."""

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RECIPE_FOLDERS = ("train", "serve", "data_tools")
RECIPES = sorted(path for folder in RECIPE_FOLDERS for path in (ROOT / folder).glob("*.py"))
BENCHMARKS = sorted((ROOT / "benchmarks").rglob("*.py"))
MODULES = sorted((ROOT / "judgelm").rglob("*.py"))
HEAVY = ("torch", "transformers", "vllm", "ray", "trl", "datasets", "pandas", "matplotlib", "sklearn")


def test_dependencies_point_downwards():
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            "from importlinter.cli import lint_imports_command; lint_imports_command()",
            "--no-cache",
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    assert "1 kept, 0 broken" in done.stdout


@pytest.mark.parametrize("module", ["judgelm", "judgelm.cli.batch.command", "judgelm.cli.main"])
def test_importing_the_package_and_its_commands_loads_nothing_heavy(module):
    # the evaluation commands need scikit-learn and matplotlib, but not to print their help
    code = f"import {module}, sys; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_judge_is_had_from_the_package():
    code = "import judgelm; print(judgelm.Judge.__name__, judgelm.__version__)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Judge 0.")


@pytest.mark.parametrize("folder", RECIPE_FOLDERS)
def test_recipes_are_scripts_beside_the_package(folder):
    assert not (ROOT / folder / "__init__.py").exists()


@pytest.mark.parametrize("path", RECIPES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_recipe_shadows_no_module_and_stays_small(path):
    # `python train/x.py` puts train/ first on sys.path, so a recipe named like a module would hide it
    # (`data_tools/build.py` has its name from the design; PyPA's `build`, where installed, is a program nobody imports)
    found = None if path.name == "build.py" else importlib.util.find_spec(path.stem)
    assert found is None or (found.origin or "").startswith(str(path.parent)), f"{path.name} shadows {found.origin}"
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 250
    opening = ast.get_docstring(ast.parse(text)) or ""
    assert path.name in opening or "the command `judgelm" in opening, "a recipe opens with the command that runs it"
    siblings = {other.stem for folder in RECIPE_FOLDERS for other in (ROOT / folder).glob("*.py")}
    imported = {
        alias.name.split(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in ([ast.alias(node.module or "")] if isinstance(node, ast.ImportFrom) else node.names)
    }
    assert not imported & siblings


@pytest.mark.parametrize("path", BENCHMARKS, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_benchmark_stays_small_and_opens_with_its_command(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 250
    if '__name__ == "__main__"' in text and path.name != "step.py":  # a step is started by its benchmark
        name = path.parent.name if path.name == "__main__.py" else path.stem
        assert f"python -m benchmarks.{name}" in (ast.get_docstring(ast.parse(text)) or "")


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(ROOT)))
def test_modules_and_functions_stay_small(path):
    text = path.read_text(encoding="utf-8")
    assert len(text.splitlines()) <= 350
    if "cli" in path.parts:
        return  # a command's options are one long signature
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            body = node.body[1:] if ast.get_docstring(node) else node.body
            lines = (body[-1].end_lineno - body[0].lineno + 1) if body else 0
            assert lines <= 40, f"{path.name}:{node.name} has {lines} lines"


def test_only_the_command_line_prints_or_exits():
    for path in MODULES:
        if "cli" in path.parts or path.name == "__main__.py":
            continue
        calls = {
            node.func.id
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
        }
        assert not calls & {"print", "exit", "quit"}, path


@pytest.mark.parametrize("path", sorted((ROOT / "configs").rglob("*.yaml")), ids=lambda path: path.name)
def test_a_config_opens_with_the_command_that_runs_it(path):
    head = path.read_text(encoding="utf-8").split("\n\n")[0]
    assert head.startswith("#")
    assert "--config" in head or f"{path.parent.name}/{path.name}" in head
