"""The distributions of judges with an adapter: each belongs to its card and is copied out of a folder or a wheel."""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from judgelm.data.training_questions import read_hashes
from judgelm.judges.cards import card_names, check_adapter, judge_card
from judgelm.prompts.judge_card import find_card, write_card
from tests.support.named_judges import MODULE, cached_adapter, cached_base

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "examples/small_judge"
TRAINED = [card for card in map(judge_card, card_names()) if card.adapter is not None]


@pytest.mark.parametrize("card", TRAINED, ids=lambda card: card.name)
def test_the_adapter_in_the_checkout_belongs_to_the_card(card):
    folder = ROOT / "examples" / card.name.replace("-", "_") / card.adapter.distribution.replace("-", "_")
    check_adapter(card, folder)
    own = find_card(str(folder))
    assert (own.name, own.template, own.scale) == (card.name, card.template, card.scale)
    assert (own.base.gguf_sha256, own.training["questions"]["count"]) == (
        card.base.gguf_sha256,
        len(read_hashes(folder)),
    )
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
    copy = Path(shutil.copytree(SOURCE, folder / "small_judge"))
    for name in ("adapter_model.safetensors", "adapter_config.json"):
        shutil.copy(adapter / name, copy / MODULE / name)
    card = find_card(str(adapter))
    write_card(copy / MODULE, replace(card, name="small-judge"))
    return copy


def judgelm(*arguments, cache):
    done = subprocess.run(
        [sys.executable, "-m", "judgelm", *map(str, arguments)],
        env=os.environ | {"JUDGELM_CACHE": str(cache), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)},
        cwd=cache.parent, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["folder", "wheel"])
def test_it_is_installed_from_a_folder_and_from_a_wheel(source, tiny_model, tmp_path, kind):
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
    done = judgelm("judges", "install", "small-judge", "--from", origin, cache=tmp_path / "cache")
    assert f"CC-BY-NC-4.0 (research use only, as its training judgments), from {origin}" in done.stderr
    assert "small-judge is installed" in done.stderr
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
