"""The small judge's distribution: built, installed into an environment of its own, and used without being imported."""

import json
import os
import shutil
import subprocess
import sys
import venv
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from judgelm.judges.cards import judge_card
from judgelm.judges.installed import check_adapter
from judgelm.prompts.judge_card import find_card, write_card
from tests.support.named_judges import MODULE, cached_base, package

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "examples/small_judge"
WEIGHTS = {".safetensors", ".gguf", ".bin", ".pt", ".pth"}
SMALL = judge_card("small-judge")


def test_judgelm_itself_holds_cards_and_no_weights():
    files = [path for path in (ROOT / "judgelm").rglob("*") if path.is_file()]
    assert ROOT / "judgelm/judges/cards/small-judge.yaml" in files
    assert [path for path in files if path.suffix in WEIGHTS] == []


def test_the_adapter_in_the_checkout_belongs_to_the_card():
    if not (SOURCE / MODULE / "adapter_model.safetensors").is_file():
        pytest.skip("no trained adapter in examples/small_judge yet")
    folder = SOURCE / MODULE
    check_adapter(SMALL, folder)
    own = find_card(str(folder))
    assert (own.name, own.template, own.scale) == (SMALL.name, SMALL.template, SMALL.scale)
    assert (folder / "adapter_model.safetensors").stat().st_size <= SMALL.adapter.megabytes * 1e6


@pytest.fixture(scope="module")
def source(tiny_model, tmp_path_factory):
    """The distribution's source with a tiny adapter in place of the trained one."""
    folder = tmp_path_factory.mktemp("source")
    adapter = package(folder / "site", tiny_model)
    copy = Path(shutil.copytree(SOURCE, folder / "small_judge"))
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        shutil.copy(adapter / name, copy / MODULE / name)
    card = find_card(str(adapter))
    write_card(copy / MODULE, replace(card, name="small-judge"))
    return copy


@pytest.fixture
def python(tmp_path):
    """The Python of an empty environment, beside which lie the packages of this one."""
    venv.create(tmp_path / "venv", with_pip=True)
    [site] = (tmp_path / "venv/lib").glob("python*/site-packages")
    ours = next(Path(path) for path in sys.path if (Path(path) / "typer").is_dir())
    (site / "dependencies.pth").write_text(f"{ROOT}\n{ours}\n")
    return tmp_path / "venv/bin/python"


def judgelm(python, *arguments, cache):
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [python, "-m", "judgelm", *map(str, arguments)],
        env=environment | {"JUDGELM_CACHE": str(cache), "OMP_NUM_THREADS": "1"},
        cwd=cache.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "wheel"])
def test_it_is_installed_from_a_folder_and_from_a_wheel(source, python, tiny_model, tmp_path, kind):
    cached_base(tmp_path / "cache", tiny_model)
    origin = source
    if kind == "wheel":
        build = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(tmp_path), str(source)]
        subprocess.run(build, check=True, capture_output=True)
        [origin] = tmp_path.glob("*.whl")
        names = zipfile.ZipFile(origin).namelist()
        held = {name.partition("/")[2] for name in names if name.startswith(f"{MODULE}/")}
        files = {"adapter_model.safetensors", "adapter_config.json", "judge.json", "training_questions.sha"}
        assert held == files | {"__init__.py", "README.md"}
        assert any(name.endswith("licenses/LICENSE") for name in names)
    done = judgelm(python, "judges", "install", "small-judge", "--from", origin, cache=tmp_path / "cache")
    assert f"CC-BY-NC-4.0 (research use only, as the judgments that it was trained on), from {origin}" in done.stderr
    assert "small-judge is installed" in done.stderr
    [row] = json.loads(judgelm(python, "judges", "--json", "-", cache=tmp_path / "cache").stdout)
    assert row["installed"]
    assert Path(row["adapter"]).is_relative_to(source if kind == "folder" else tmp_path / "venv")
    again = judgelm(python, "judges", "install", "small-judge", cache=tmp_path / "cache")
    assert "was installed before" in again.stderr
    pairs = tmp_path / "pairs.jsonl"
    pairs.write_text('{"id": "1", "question": "q", "answer_1": "a", "answer_2": "b"}\n')
    run = ("batch", pairs, "-o", tmp_path / "out.jsonl", "--engine", "transformers", "--max-failure-rate", 1)
    assert "small-judge 0.1.0: adapter under CC-BY-NC-4.0" in judgelm(python, *run, cache=tmp_path / "cache").stderr
