"""Inputs as streams: compression by content, folders and patterns, named pipes, and files of other kinds."""

import bz2
import gzip
import lzma
import os
import tarfile
import threading
from functools import partial
from itertools import product

import pyarrow
import pyarrow.parquet
import pytest

from judgelm.data.readers.files import first_row, read_json, read_rows
from judgelm.data.readers.inputs import all_input_files, input_files, is_stream
from judgelm.data.readers.rows import Row
from judgelm.errors import InputError

LINES = b"".join(b'{"n": %d}\n' % number for number in range(1000))


zstd = partial(pyarrow.compress, codec="zstd", asbytes=True)  # one frame, without the checksum that the program writes
ENDINGS = {"gzip": ".gz", "bzip2": ".bz2", "xz": ".xz", "zstd": ".zst"}
PACK = {"gzip": gzip.compress, "bzip2": bz2.compress, "xz": lzma.compress, "zstd": zstd}


def write(folder, name, content):
    (folder / name).write_bytes(content)
    return str(folder / name)


def numbers(path):
    return [row.data["n"] for row in read_rows(path)]


@pytest.mark.parametrize("name", ["a.jsonl", "a", "a.jsonl.gz", "a.jsonl.zst"])
@pytest.mark.parametrize("pack", PACK.values(), ids=PACK)
def test_compression_is_recognised_by_the_content(tmp_path, pack, name):
    assert numbers(write(tmp_path, name, pack(LINES))) == list(range(1000))


@pytest.mark.parametrize("name", PACK)
def test_the_kind_is_that_of_the_inner_name(tmp_path, name):
    path = write(tmp_path, f"a.csv{ENDINGS[name]}", PACK[name](b"\xef\xbb\xbfn,m\n1,x\n"))
    assert [row.data for row in read_rows(path)] == [{"n": "1", "m": "x"}]


@pytest.mark.parametrize("padding", [b"", b"\0" * 8])
@pytest.mark.parametrize("name", PACK)
def test_several_streams_one_after_the_other_are_one_file(tmp_path, name, padding):
    if name == "xz" or not padding:
        content = PACK[name](LINES) + padding + PACK[name](b'{"n": -1}\n')
        assert numbers(write(tmp_path, "a", content)) == [*range(1000), -1]


DAMAGE = {
    "cut": lambda packed: packed[:-9],
    "flipped": lambda packed: packed[:40] + bytes([packed[40] ^ 255]) + packed[41:],
    "second stream": lambda packed: packed + b"X" + packed[1:],
    "text behind": lambda packed: packed + b'{"n": 1}\n',
}


@pytest.mark.parametrize(("name", "damage"), [pair for pair in product(PACK, DAMAGE) if pair != ("zstd", "flipped")])
def test_damage_is_an_error_and_never_the_end(tmp_path, name, damage):
    path = write(tmp_path, "a.jsonl", DAMAGE[damage](PACK[name](LINES)))
    with pytest.raises(InputError, match=rf"a\.jsonl: damaged {name} file: .*; copy or download it again; .*{name} -t"):
        list(read_rows(path))


@pytest.mark.parametrize("ending", ENDINGS.values())
def test_a_wrong_ending_is_damage_unless_the_file_is_empty(tmp_path, ending):
    with pytest.raises(InputError, match="damaged"):
        list(read_rows(write(tmp_path, f"a.jsonl{ending}", LINES)))
    with pytest.raises(InputError, match="contains no rows"):
        list(read_rows(write(tmp_path, f"b.jsonl{ending}", b"")))


@pytest.mark.parametrize(
    ("content", "finding"),
    [
        (gzip.compress(zstd(LINES)), "compressed twice, with gzip and zstd"),
        (gzip.compress(tarfile.TarInfo("a.jsonl").tobuf()), "a tar archive; extract it first"),
        (b"\x04\x22\x4d\x18" + b"x" * 30, "compressed with lz4; decompress it with lz4 -d"),
        (b"version https://git-lfs.github.com/spec/v1\n", "a Git LFS pointer, not the file itself"),
        (b"<!DOCTYPE html><p>Sign in", "a web page; download the file itself"),
        (b"ARROW1\0\0", "an Arrow file; save the table as Parquet"),
    ],
    ids=["compressed twice", "tar", "lz4", "pointer", "web page", "arrow"],
)
def test_other_formats_are_refused_by_name(tmp_path, content, finding):
    with pytest.raises(InputError, match=f"a: .*{finding}"):
        list(read_rows(write(tmp_path, "a", content)))


@pytest.mark.parametrize("name", ["a.parquet", "a", "a.parquet.gz"])
def test_parquet_is_read_whatever_its_name_also_compressed(tmp_path, name):
    out = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table({"n": [1, 2]}), out)
    content = out.getvalue().to_pybytes()
    assert numbers(write(tmp_path, name, gzip.compress(content) if name.endswith(".gz") else content)) == [1, 2]


def test_a_compressed_json_file_is_one_value(tmp_path):
    assert read_json(write(tmp_path, "a.json", bz2.compress(b'{"a": [1]}'))) == {"a": [1]}
    with pytest.raises(ValueError, match='key "a" appears twice'):
        read_json(write(tmp_path, "b.json", b'{"a": 1, "a": 2}'))


@pytest.fixture
def shards(tmp_path):
    write(tmp_path, "part-0.jsonl.gz", gzip.compress(b'{"n": 1}\n'))
    for number, name in enumerate(("part-1.jsonl", "_SUCCESS", ".part.jsonl", "README.md")):
        write(tmp_path, name, b'{"n": %d}\n' % (2 * number))
    (tmp_path / "sub.jsonl").mkdir()
    return tmp_path


def test_a_folder_or_a_pattern_is_read_file_by_file(shards):
    assert numbers(str(shards)) == numbers(f"{shards}/part-*") == [1, 0]
    assert [row.file for row in read_rows(str(shards))] == [f"{shards}/part-0.jsonl.gz", f"{shards}/part-1.jsonl"]
    assert numbers(write(shards, "a[1].jsonl", LINES)) == list(range(1000))  # a file with this name


@pytest.mark.parametrize(
    ("name", "finding"),
    [
        ("nothing*", "no files match this pattern"),
        ("sub.jsonl", r"no row files \(\.jsonl, "),
        (".", r"different formats \(\.jsonl, \.csv\); .*/\*\.jsonl"),
    ],
)
def test_a_folder_or_pattern_that_names_no_input_is_refused(shards, name, finding):
    write(shards, "table.csv", b"n\n1\n")
    with pytest.raises(InputError, match=finding):
        input_files(f"{shards}/{name}")


def test_a_file_given_twice_is_refused_also_under_another_name(tmp_path):
    path = write(tmp_path, "a.jsonl", LINES)
    os.link(path, tmp_path / "b.jsonl")
    for again in (path, str(tmp_path / "b.jsonl"), f"{tmp_path}/a*"):
        with pytest.raises(InputError, match="passed twice"):
            all_input_files([path, again])


@pytest.fixture
def pipe(tmp_path):
    """A named pipe, into which a thread writes once."""
    os.mkfifo(tmp_path / "pipe.jsonl")
    threading.Thread(target=write, args=(tmp_path, "pipe.jsonl", LINES), daemon=True).start()
    return str(tmp_path / "pipe.jsonl")


def test_a_named_pipe_is_read_again_from_disk_also_by_readers_that_take_turns(pipe):
    assert is_stream(pipe)
    assert first_row(pipe).data == {"n": 0}
    pairs = zip(read_rows(pipe), read_rows(pipe), strict=True)
    rows = [row.data["n"] for pair in pairs for row in pair]
    assert rows == [number for number in range(1000) for _ in range(2)]


def test_a_named_pipe_that_is_not_kept_can_be_read_once(pipe):
    assert all(isinstance(row, Row) for row in read_rows(pipe, once=True))
    with pytest.raises(InputError, match="a stream can be read only once; save it as a file first"):
        list(read_rows(pipe))
