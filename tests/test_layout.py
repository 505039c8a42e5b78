"""Imports stay light, recipes are scripts that shadow nothing, and configs open with the command that runs them."""

import ast
import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
RECIPE_FOLDERS = ("train", "serve", "data_tools")
RECIPES = sorted(path for folder in RECIPE_FOLDERS for path in (ROOT / folder).glob("*.py"))
HEAVY = ("torch", "transformers", "vllm", "ray", "trl", "datasets", "pandas", "matplotlib", "sklearn")


@pytest.mark.parametrize("module", ["judgelm", "judgelm.cli.batch", "judgelm.cli.main"])
def test_importing_the_package_and_its_commands_loads_nothing_heavy(module):
    # the evaluation commands need scikit-learn and matplotlib, but not to print their help
    code = f"import {module}, sys; print([name for name in {HEAVY} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_torch_counts_gpus_without_initialising_cuda():
    code = "import judgelm, os; print(os.environ['PYTORCH_NVML_BASED_CUDA_CHECK'])"
    for given, expected in ((None, "1"), ("0", "0")):  # the user's own setting stays
        environment = {name: value for name, value in os.environ.items() if name != "PYTORCH_NVML_BASED_CUDA_CHECK"}
        environment |= {} if given is None else {"PYTORCH_NVML_BASED_CUDA_CHECK": given}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == expected


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
    imported = {
        alias.name.split(".")[0]
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.Import | ast.ImportFrom)
        for alias in ([ast.alias(node.module or "")] if isinstance(node, ast.ImportFrom) else node.names)
    }
    assert not imported & siblings


@pytest.mark.parametrize("path", sorted((ROOT / "configs").rglob("*.yaml")), ids=lambda path: path.name)
def test_a_config_opens_with_the_command_that_runs_it(path):
    head = path.read_text(encoding="utf-8").split("\n\n")[0]
    assert head.startswith("#")
    assert "--config" in head or f"{path.parent.name}/{path.name}" in head
