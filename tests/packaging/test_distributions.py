"""What is released: the wheel, the source distribution, the judges' distributions, and the notes of a version."""

import hashlib
import json
import os
import runpy
import shutil
import subprocess
import sys
import tarfile
import tomllib
import venv
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from judgelm.data.training_questions import read_hashes
from judgelm.judges.cards import card_names, check_adapter, judge_card
from judgelm.prompts.judge_card import find_card, write_card
from tests.support.checkouts import copy_checkout
from tests.support.jsonl_files import write_rows
from tests.support.named_judges import MODULE, cached_adapter, cached_base
from tests.support.processes import run_command

ROOT = Path(__file__).parents[2]
BUILD = (sys.executable, "-m", "build", "--no-isolation")
JUNK = ("__pycache__", ".pyc", ".venv", ".git/", ".conformance", ".hypothesis", ".env")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A source distribution of a copy of the repository, and the wheel that is built from it."""
    folder = tmp_path_factory.mktemp("dist")
    run_command(*BUILD, "--outdir", folder, copy_checkout(folder / "source"))
    [sdist], [wheel] = folder.glob("*.tar.gz"), folder.glob("*.whl")
    return sdist, wheel


def is_tracked(path):
    return path.is_file() and not any(part in path.as_posix() for part in JUNK)


@pytest.mark.slow
def test_the_wheel_holds_the_package_and_all_that_it_reads(built):
    names = set(zipfile.ZipFile(built[1]).namelist())
    package = {path.relative_to(ROOT).as_posix() for path in (ROOT / "judgelm").rglob("*") if is_tracked(path)}
    assert package <= names
    assert {"judgelm/py.typed", "judgelm/judges/cards/small-judge.yaml"} <= names
    assert not [name for name in names if name.endswith((".safetensors", ".gguf", ".bin"))]
    recipes = {f"judgelm/training/recipes/{path.name}" for path in (ROOT / "train").glob("*.py")}
    configs = {f"judgelm/training/{path.relative_to(ROOT)}" for path in (ROOT / "configs").rglob("*.yaml")}
    assert recipes | configs <= names
    assert {name for name in names - package - recipes - configs if ".dist-info/" not in name} == set()
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


@pytest.mark.slow
def test_the_source_distribution_is_the_repository_without_junk(built):
    with tarfile.open(built[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert names >= {
        "LICENSE", "README.md", "CHANGELOG.md", "Makefile", "constraints.txt", "train/sft.py", "serve/api.py",
        "data_tools/build.py", "configs/train/demo.yaml", "tests/conftest.py", "tests/support/snippets.py",
        "docs/index.md",
    }  # fmt: skip
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
    place = run_command(python, "-c", "import judgelm; print(judgelm.__file__)", cwd=folder)
    assert place.stdout.startswith(str(site)), "the checkout was imported instead of the wheel"
    return folder


@pytest.mark.slow
def test_it_judges_evaluates_and_reports_outside_of_the_checkout(installed):
    def run(program, *arguments):
        return run_command(installed / "venv/bin" / program, *arguments, cwd=installed).stdout

    pair = {"question": "q", "answer_1": "a", "answer_2": "b", "winner": 1}
    write_rows(installed / "pairs.jsonl", [pair | {"id": str(number)} for number in range(9)])
    assert run("judgelm", "--version").startswith("judgelm ")
    run("judgelm-batch", "pairs.jsonl", "-o", "out.jsonl", "--engine", "scripted", "--model", "8 6", "-q")
    evaluation = run("judgelm", "eval", "out.jsonl", "-l", "pairs.jsonl", "--bootstrap", 100, "--json", "-")
    assert json.loads(evaluation)["excluded"]["accuracy"]["value"] == 1.0
    run("judgelm", "report", "out.jsonl", "-l", "pairs.jsonl", "--bootstrap", 100)
    assert "<html" in (installed / "report.html").read_text()
    assert "build" in run("judgelm", "data", "--help")


TRAINED = [card for card in map(judge_card, card_names()) if card.adapter is not None]


@pytest.mark.parametrize("card", TRAINED, ids=lambda card: card.name)
def test_the_adapter_in_the_checkout_belongs_to_the_card(card):
    folder = ROOT / "examples" / card.name.replace("-", "_") / card.adapter.distribution.replace("-", "_")
    check_adapter(card, folder)
    own = find_card(str(folder))
    assert (own.name, own.template, own.scale) == (card.name, card.template, card.scale)
    assert own.base.gguf_sha256 == card.base.gguf_sha256
    assert own.training["questions"]["count"] == len(read_hashes(folder))
    weights = (folder / "adapter_model.safetensors").read_bytes()
    assert len(weights) <= card.adapter.megabytes * 1e6
    assert hashlib.sha256(weights).hexdigest() == card.adapter.weights_sha256
    project = tomllib.loads((folder.parent / "pyproject.toml").read_text())["project"]
    stated = (card.adapter.distribution, card.adapter.version, card.adapter.licence)
    assert (project["name"], project["version"], project["license"]) == stated


@pytest.fixture(scope="module")
def source(tiny_model, tmp_path_factory):
    """The distribution's source with a tiny adapter in place of the trained one."""
    folder = tmp_path_factory.mktemp("source")
    adapter = cached_adapter(folder / "cache", tiny_model)
    copy = Path(shutil.copytree(ROOT / "examples/small_judge", folder / "small_judge"))
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        shutil.copy(adapter / name, copy / MODULE / name)
    write_card(copy / MODULE, replace(find_card(str(adapter)), name="small-judge"))
    return copy


def judgelm(*arguments, cache):
    environment = os.environ | {"JUDGELM_CACHE": str(cache), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)}
    return run_command(sys.executable, "-m", "judgelm", *arguments, env=environment, cwd=cache.parent)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "wheel"])
def test_it_is_installed_from_a_folder_and_from_a_wheel(source, tiny_model, tmp_path, kind):
    cached_base(tmp_path / "cache", tiny_model)
    origin = source
    if kind == "wheel":
        run_command(*BUILD, "--wheel", "--outdir", tmp_path, source)
        [origin] = tmp_path.glob("*.whl")
        names = zipfile.ZipFile(origin).namelist()
        held = {name.partition("/")[2] for name in names if name.startswith(f"{MODULE}/")}
        files = {"adapter_model.safetensors", "adapter_config.json", "judge.json", "training_questions.sha"}
        assert held == files | {"__init__.py", "README.md"}
        assert any(name.endswith("licenses/LICENSE") for name in names)
    done = judgelm("judges", "install", "small-judge", "--from", origin, cache=tmp_path / "cache")
    for part in ("CC-BY-NC-4.0 (research use only, as", f", from {origin}", "small-judge is installed"):
        assert part in done.stderr
    listed = json.loads(judgelm("judges", "--json", "-", cache=tmp_path / "cache").stdout)
    [row] = [row for row in listed if row["name"] == "small-judge"]
    assert row["adapter"] == str(tmp_path / "cache/judges/small-judge/0.1.0")
    again = judgelm("judges", "install", "small-judge", cache=tmp_path / "cache")
    assert "was already installed" in again.stderr
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"id": "1", "question": "q", "answer_1": "a", "answer_2": "b"}\n')
    named = ("--model", "small-judge", "--engine", "transformers")
    run = ("batch", pairs, "-o", tmp_path / "out.jsonl", *named, "--max-failure-rate", 1)
    assert "small-judge 0.1.0: adapter under CC-BY-NC-4.0" in judgelm(*run, cache=tmp_path / "cache").stderr


CHANGELOG = (
    "# Changelog\n\n## [Unreleased]\n\n### Added\n- Not yet.\n\n## [1.2.0] - 2027-01-31\n\n### Added\n- A thing.\n\n"
    "## [1.1.0] - 2026-12-01\n\n### Fixed\n- Another.\n\n[1.1.0]: https://example.org/1.1.0\n"
)


def notes(folder, tag, *, version="1.2.0", changelog=CHANGELOG):
    (folder / "judgelm").mkdir()
    (folder / "judgelm/package.py").write_text(f'VERSION = "{version}"\n')
    (folder / "CHANGELOG.md").write_text(changelog)
    return runpy.run_path(str(ROOT / ".github/release_notes.py"))["release_notes"](tag, folder)


@pytest.mark.parametrize(
    ("version", "section"),
    [("1.2.0", "### Added\n- A thing.\n"), ("1.1.0", "### Fixed\n- Another.\n")],  # the last ends before the links
)
def test_a_versions_section_alone(tmp_path, version, section):
    assert notes(tmp_path, f"v{version}", version=version) == section


@pytest.mark.parametrize(
    ("version", "entries", "message"),
    [
        ("1.2.0", "", r"^tag v1\.3\.0: judgelm/package\.py has 1\.2\.0; "),
        *(
            ("1.3.0", entries, r"no entries below a heading '## \[1\.3\.0\] - YYYY-MM-DD'")
            for entries in ("", "\n## [1.3.0] - soon\n- A thing.\n", "\n## [1.3.0] - 2027-02-01\n\n")
        ),
    ],
)
def test_another_tag_and_a_version_without_entries_are_refused(tmp_path, version, entries, message):
    with pytest.raises(ValueError, match=message):
        notes(tmp_path, "v1.3.0", version=version, changelog=f"# Changelog\n{entries}")
