"""What is built: a wheel with the package alone, a source distribution with the repository, and both outside of it."""

import json
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

from tests.support.checkouts import copy_checkout

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
JUNK = ("__pycache__", ".pyc", ".venv", ".git/", ".conformance", ".hypothesis", ".env")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A source distribution of a copy of the repository, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    source = copy_checkout(folder / "source")
    command = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    [sdist], [wheel] = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def is_tracked(path):
    return path.is_file() and not any(part in path.as_posix() for part in JUNK)


def test_the_wheel_holds_the_package_and_all_that_it_reads(built):
    names = set(zipfile.ZipFile(built[1]).namelist())
    package = {path.relative_to(ROOT).as_posix() for path in (ROOT / "judgelm").rglob("*") if is_tracked(path)}
    assert package <= names
    assert {"judgelm/py.typed", "judgelm/judges/cards/small-judge.yaml"} <= names
    assert not [name for name in names if name.endswith((".safetensors", ".gguf", ".bin"))]
    recipes = {f"judgelm/training/recipes/{path.name}" for path in (ROOT / "train").glob("*.py")}
    configs = {f"judgelm/training/{path.relative_to(ROOT)}" for path in (ROOT / "configs").rglob("*.yaml")}
    assert recipes | configs <= names
    others = {name for name in names - package - recipes - configs if ".dist-info/" not in name}
    assert others == set()
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_the_source_distribution_is_the_repository_without_junk(built):
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for needed in ("LICENSE", "README.md", "CHANGELOG.md", "Makefile", "constraints.txt", "train/sft.py",
                   "serve/api.py", "data_tools/build.py", "configs/train/demo.yaml", "tests/conftest.py",
                   "tests/support/snippets.py", "docs/index.md"):  # fmt: skip
        assert needed in names
    assert [name for name in names if name.startswith("runs/") or any(part in name for part in JUNK)] == []


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory):
    """The wheel in an environment of its own; what it depends on is this environment's."""
    folder = tmp_path_factory.mktemp("outside")
    venv.create(folder / "venv", with_pip=True)
    [site] = (folder / "venv/lib").glob("python*/site-packages")
    python = folder / "venv/bin/python"
    subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", built[1]], check=True)
    [ours] = [path for path in map(Path, sys.path) if (path / "typer").is_dir()]
    # paths alone: its own .pth files, ours among them, are not read
    (site / "dependencies.pth").write_text(f"{ours}\n")
    ask = [python, "-c", "import judgelm; print(judgelm.__file__)"]
    place = subprocess.run(ask, capture_output=True, text=True, cwd=folder, check=True)
    assert place.stdout.startswith(str(site)), "the checkout was imported instead of the wheel"
    return folder


def run(folder, program, *arguments):
    done = subprocess.run(
        [folder / "venv/bin" / program, *map(str, arguments)], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done


def test_it_judges_evaluates_and_reports_outside_of_the_checkout(installed):
    rows = [{"id": str(n), "question": "q", "answer_1": "a", "answer_2": "b", "winner": 1} for n in range(9)]
    (installed / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert run(installed, "judgelm", "--version").stdout.startswith("judgelm ")
    run(installed, "judgelm-batch", "pairs.jsonl", "-o", "out.jsonl", "--engine", "scripted", "--model", "8 6", "-q")
    found = run(installed, "judgelm", "eval", "out.jsonl", "-l", "pairs.jsonl", "--bootstrap", 100, "--json", "-")
    assert json.loads(found.stdout)["excluded"]["accuracy"]["value"] == 1.0
    run(installed, "judgelm", "report", "out.jsonl", "-l", "pairs.jsonl", "--bootstrap", 100)
    assert "<html" in (installed / "report.html").read_text()
    assert "build" in run(installed, "judgelm", "data", "--help").stdout
