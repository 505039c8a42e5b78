"""An adapter is copied out of a wheel or a folder: nothing of either is built, installed or run."""

import hashlib
import json
import runpy
import shutil
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import pytest

from judgelm import Judge
from judgelm.engines.base import EngineOptions
from judgelm.engines.model_files import split_adapter
from judgelm.errors import ModelError
from judgelm.judges.cards import ADAPTER_FILES, WEIGHTS, find_adapter
from judgelm.judges.install import find_source, install_adapter
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card, GgufBase, find_card, write_card
from tests.support.named_judges import MODULE, SMALL, cached_adapter, cached_base, wheel_entries, write_wheel
from tests.support.tiny_judges import TEMPLATE, make_adapter

CONFIG, CARD = (f"{MODULE}/{name}" for name in ("adapter_config.json", "judge.json"))


@pytest.fixture(scope="module")
def adapter(tiny_model, tmp_path_factory):
    return cached_adapter(tmp_path_factory.mktemp("other"), tiny_model)


@pytest.fixture
def entries(adapter):
    return wheel_entries(adapter)


def test_only_the_adapter_is_copied_out_of_a_wheel(entries, adapter, judge_cache, tmp_path):
    ran = tmp_path / "ran"
    entries["zz_judge.pth"] = f"import pathlib; pathlib.Path({str(ran)!r}).touch()\n".encode()
    entries["../outside.pth"] = b""
    entries[f"{MODULE}-9.9.data/scripts/judgelm"] = b"#!/bin/sh\n"
    (judge_cache / "judges/small-judge/1.0/old").mkdir(parents=True)
    install_adapter(SMALL, write_wheel(tmp_path, entries))
    folder = find_adapter(SMALL)
    assert folder == judge_cache / "judges/small-judge/9.9"
    assert not list(judge_cache.rglob("1.0"))  # the second installation replaces the first
    copied = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert copied.keys() == {*ADAPTER_FILES, "README.md"}  # PEFT wrote a README.md
    assert all(copied[name] == (adapter / name).read_bytes() for name in ADAPTER_FILES)
    assert not ran.exists()


def without(entries, name):
    return {key: content for key, content in entries.items() if key != name}


ENTRIES = f"{MODULE}/{WEIGHTS}"


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda old: without(old, ENTRIES), r"does not contain adapter_model\.safetensors"),
        (lambda old: old | {CONFIG: b" " * (5 << 20)}, r"has 5,242,880 bytes; expected at most 4,194,304"),
        (lambda old: old | {ENTRIES: bytes(13_000_000)}, "has 13,000,000 bytes; expected at most 12,000,000"),
        (lambda old: old | {"other-1.0.dist-info/METADATA": b""}, r"2 \*\.dist-info folders"),
        (lambda old: old | {CARD: b"{}"}, r"judge\.json: template: Field required"),
    ],
)
def test_a_wheel_that_no_judge_is_in_is_refused(entries, judge_cache, tmp_path, change, finding):
    wheel = write_wheel(tmp_path, change(entries))
    with pytest.raises(ModelError, match=finding):
        install_adapter(SMALL, wheel)
    assert not judge_cache.exists()


def add_again(wheel):
    with zipfile.ZipFile(wheel, "a") as archive, pytest.warns(UserWarning, match="Duplicate name"):
        archive.writestr(CARD, "{}")


def damage(wheel):
    content = bytearray(wheel.read_bytes())
    place = content.index(b"adapter_model.safetensors") + 4000
    content[place : place + 64] = bytes(64)
    wheel.write_bytes(content)


def claim_1000_bytes(wheel):
    content = wheel.read_bytes()
    assert len(content) < 1_000_000
    wheel.write_bytes(content.replace((300_000_000).to_bytes(4, "little"), (1000).to_bytes(4, "little")))


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (add_again, "duplicate file name"),
        (damage, "could not read the wheel: "),
        (lambda wheel: wheel.write_bytes(b"PK"), "could not read the wheel: File is not a zip file"),
        # a bomb: 300 MB of zeros in 300 KB, under the size that the card allows, as the directory states 1,000 bytes
        (claim_1000_bytes, "could not read the wheel: Bad CRC-32"),
    ],
)
def test_a_damaged_wheel_is_refused(entries, judge_cache, tmp_path, change, finding):
    bomb = {ENTRIES: bytes(300_000_000)} if change is claim_1000_bytes else {}
    wheel = write_wheel(tmp_path, entries | bomb)
    change(wheel)
    with pytest.raises(ModelError, match=finding):
        install_adapter(SMALL, wheel)
    assert not list(judge_cache.rglob(WEIGHTS))


@pytest.fixture
def source(adapter, tmp_path):
    """A distribution's folder, with a build backend that fails the test if it runs."""
    folder = tmp_path / "source"
    (folder / MODULE).mkdir(parents=True)
    for name in ADAPTER_FILES:
        (folder / MODULE / name).write_bytes((adapter / name).read_bytes())
    (folder / "pyproject.toml").write_text(
        "[build-system]\nrequires = []\nbuild-backend = 'evil'\nbackend-path = ['.']\n"
        "[project]\nname = 'judgelm-small-judge'\nversion = '1.2'\n"
    )
    for name in ("evil.py", "setup.py", f"{MODULE}/__init__.py"):
        (folder / name).write_text(f"import pathlib; pathlib.Path({str(tmp_path / 'ran')!r}).touch()\n")
    return folder


def test_a_folder_is_read_and_not_built(source, judge_cache, tmp_path):
    install_adapter(SMALL, find_source(SMALL, source))
    assert find_adapter(SMALL) == judge_cache / "judges/small-judge/1.2"
    assert not (tmp_path / "ran").exists()


def link_card(source):
    (source / MODULE / "judge.json").unlink()
    (source / MODULE / "judge.json").symlink_to("/etc/passwd")


def project(fields):
    return lambda source: (source / "pyproject.toml").write_text(f"[project]\n{fields}\n")


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (link_card, r"does not contain judge\.json"),
        (lambda source: (source / "pyproject.toml").write_text("[project\n"), r"pyproject\.toml: cannot read"),
        (project("name = 'x'"), "expected judgelm-small-judge, got 'x'"),
        (project("name = 'judgelm.small_judge'\nversion = '../1'"), r"'\.\./1' is not a valid version"),
        (
            lambda source: (source / MODULE / WEIGHTS).write_bytes(bytes(13_000_000)),
            "13,000,000 bytes; expected at most",
        ),
    ],
)
def test_a_folder_that_holds_no_adapter_is_refused(source, judge_cache, change, finding):
    change(source)
    with pytest.raises(ModelError, match=finding):
        install_adapter(SMALL, source)
    assert not judge_cache.exists()


@pytest.fixture
def index(entries, tmp_path, monkeypatch):
    """The only index there is: a folder, with a wheel of version 9.9."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return write_wheel(folder, entries)


def test_from_the_index_only_the_weights_of_the_card_are_taken(index, adapter, judge_cache):
    with pytest.raises(ModelError, match="does not match the card"):
        install_adapter(SMALL, "judgelm-small-judge==9.9")
    assert not judge_cache.exists()
    sha256 = hashlib.sha256((adapter / WEIGHTS).read_bytes()).hexdigest()
    stated = replace(SMALL, adapter=replace(SMALL.adapter, weights_sha256=sha256))
    install_adapter(stated, "judgelm-small-judge==9.9")
    assert find_adapter(SMALL).name == "9.9"


def test_without_the_distribution_in_the_index_the_error_names_the_folder_of_a_clone(index):
    with pytest.raises(ModelError, match=r"pip failed: .*install small-judge --from examples/small_judge$"):
        install_adapter(SMALL, "judgelm-small-judge==99.0")


ROOT = Path(__file__).parents[2]
SHA = "ab" * 32
BASE = GgufBase(gguf_sha256=SHA, file="tiny.gguf")
JUDGE_CARD = Card(template=TEMPLATE, template_sha=get_template(TEMPLATE).sha, base=BASE)


@pytest.fixture
def adapter_on_gguf(tiny_model, tmp_path, monkeypatch):
    """An adapter whose own configuration names a base that is nowhere; the cache is empty."""
    monkeypatch.setenv("JUDGELM_CACHE", str(tmp_path / "cache"))
    folder = make_adapter(tiny_model, tmp_path / "adapter", seed=1)
    path = folder / "adapter_config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"base_model_name_or_path": "/the/trainer's/base"}))
    write_card(folder, JUDGE_CARD)
    return folder


def test_the_base_is_the_checkpoint_in_the_cache(adapter_on_gguf, tiny_model, tmp_path):
    base = Path(shutil.copytree(tiny_model, tmp_path / "cache/gguf" / SHA))
    assert split_adapter(EngineOptions(model=str(adapter_on_gguf))) == (str(base), str(adapter_on_gguf))
    with Judge(str(adapter_on_gguf), engine="transformers") as judge:
        described = judge.engine.describe()["model"]
    assert (described["path"], described["adapter"]) == (str(base), str(adapter_on_gguf))


def test_a_base_that_is_not_in_the_cache_is_named(adapter_on_gguf):
    with pytest.raises(ModelError, match=r"the base model tiny.gguf \(sha256 abababababab...\) is not in"):
        split_adapter(EngineOptions(model=str(adapter_on_gguf)))


def test_an_adapter_is_refused_on_the_checkpoint_of_another_file(adapter_on_gguf, tiny_model, tmp_path):
    other = cached_base(tmp_path / "cache", tiny_model)
    with pytest.raises(ModelError, match=r"trained on the GGUF file tiny.gguf \(sha256 abababababab...\), not on"):
        split_adapter(EngineOptions(model=str(other), adapter=str(adapter_on_gguf)))
    # on request it goes on weights that are no file of GGUF's, such as the hub's own
    assert split_adapter(EngineOptions(model=str(tiny_model), adapter=str(adapter_on_gguf)))[0] == str(tiny_model)


def test_a_merged_judge_needs_the_file_no_longer(adapter_on_gguf, tiny_model, tmp_path, monkeypatch):
    shutil.copytree(tiny_model, tmp_path / "cache/gguf" / SHA)
    write_card(adapter_on_gguf, replace(JUDGE_CARD, name="small-judge"))
    monkeypatch.setattr(sys, "argv", ["merge_lora.py", str(adapter_on_gguf), "-o", str(tmp_path / "merged")])
    runpy.run_path(str(ROOT / "train/merge_lora.py"), run_name="__main__")
    card = find_card(str(tmp_path / "merged"))
    assert (card.name, card.base) == (None, None)
    assert card.training["merged"]["base"] == str(tmp_path / "cache/gguf" / SHA)
