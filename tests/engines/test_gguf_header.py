"""Headers of GGUF files: a damaged one is one sentence with the place, before anything is allocated or converted."""

import struct

import pytest
from gguf import GGUFValueType as Kind

from judgelm.engines.gguf.header import read_header
from judgelm.errors import ModelError

F32 = 0


def text(content):
    return struct.pack("<Q", len(content)) + content.encode()


def entry(key, kind, value):
    return text(key) + struct.pack("<I", kind) + value


def tensor(name, *, shape=(4,), kind=F32, offset=0):
    return text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)


def number(key, value):
    return entry(key, Kind.UINT32, struct.pack("<I", value))


def array(key, kind, length, content=b""):
    return entry(key, Kind.ARRAY, struct.pack("<IQ", kind, length) + content)


ARCHITECTURE = entry("general.architecture", Kind.STRING, text("llama"))


@pytest.fixture
def header(tmp_path):
    def read(*entries, tensors=(), architecture=ARCHITECTURE, data=64):
        entries = (architecture, *entries) if architecture else entries
        begin = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + b"".join((*entries, *tensors))
        path = tmp_path / "model.gguf"
        path.write_bytes(begin + bytes(-len(begin) % 32 + data))
        return read_header(path)

    return read


def test_a_whole_header(header):
    file = header(number("general.alignment", 32), tensors=[tensor("b", offset=32), tensor("a", shape=(2, 2))])
    assert [(row.name, row.shape, row.size) for row in file.tensors] == [("b", (4,), 16), ("a", (2, 2), 16)]
    assert file.weights == 8


@pytest.mark.parametrize("alignment", [0, 3, 24, 1 << 31])
def test_an_alignment_that_is_no_power_of_two(header, alignment):
    with pytest.raises(ModelError, match=rf"model.gguf: .*general.alignment is {alignment}"):
        header(number("general.alignment", alignment), tensors=[tensor("a")])


@pytest.mark.parametrize(
    ("entries", "finding"),
    [
        ([entry("general.alignment", Kind.STRING, text("32"))], "general.alignment is '32'; expected type int"),
        ([array("general.alignment", Kind.UINT8, 1, b"\1")], "general.alignment is"),
        ([array("split.count", Kind.UINT8, 1, b"\1")], "split.count is"),
        ([array("tokenizer.ggml.pre", Kind.UINT8, 1, b"\1")], "tokenizer.ggml.pre is"),
        ([number("tokenizer.ggml.add_bos_token", 1)], "tokenizer.ggml.add_bos_token is '1'; expected type bool"),
        ([number("llama.rope.scaling.type", 1)], "llama.rope.scaling.type is"),
        ([number("llama.block_count", 1 << 31)], "llama.block_count is 2,147,483,648, but there are 1 tensors"),
        ([number("a.b", 1), number("a.b", 2)], "the key a.b appears twice"),
        ([array("a.b", Kind.FLOAT64, 1 << 60)], "a.b: the list has 1,152,921,504,606,846,976 items"),
        ([array("a.b", Kind.STRING, 1 << 60)], "a.b: the list has 1,152,921,504,606,846,976 items"),
        ([array("a.b", Kind.STRING, 2, struct.pack("<Q", 1 << 63))], "truncated or damaged"),
        ([array("a.b", Kind.ARRAY, 1)], "a.b: nested list"),
        (
            [entry("a.b", Kind.STRING, struct.pack("<Q", 1 << 62))],
            "the string at byte .* has 4,611,686,018,427,387,904 bytes",
        ),
        ([entry("a.b", 77, b"")], "77 is not a valid GGUFValueType"),
        ([entry("a.b", Kind.STRING, text("a")[:-1] + b"\xff")], "can't decode byte 0xff"),
    ],
    ids=range(15),
)
def test_metadata_that_is_damaged(header, entries, finding):
    with pytest.raises(ModelError, match=rf"model.gguf: truncated or damaged \(.*{finding}|model.gguf: {finding}"):
        header(*entries, tensors=[tensor("a")])


def test_an_architecture_that_is_no_text(header):
    with pytest.raises(ModelError, match=r"general.architecture is '7'"):
        header(architecture=number("general.architecture", 7))


@pytest.mark.parametrize(
    ("tensors", "finding"),
    [
        ([tensor("a", shape=())], "a: .* 0 dimensions"),
        ([tensor("a", shape=(1,) * 5)], "a: .* 5 dimensions"),
        ([text("a") + struct.pack("<I", 1 << 31)], "a: .* 2,147,483,648 dimensions"),
        ([tensor("a", shape=(4, 0))], "a: a dimension is 0"),
        ([tensor("a", shape=(1 << 63, 1 << 63))], "the tensors would end at byte"),
        ([tensor("a", offset=1 << 63)], "the tensors would end at byte"),
        ([tensor("a", offset=7)], "a: the offset 7 is not a multiple of the alignment 32"),
        ([tensor("a"), tensor("b")], "the tensor b at byte .* overlaps"),
        ([tensor("a"), tensor("a", offset=32)], "the tensor a appears twice"),
        ([tensor("a", kind=99)], "99 is not a valid GGMLQuantizationType"),
    ],
    ids=range(10),
)
def test_tensors_that_cannot_be(header, tensors, finding):
    with pytest.raises(ModelError, match=rf"model.gguf: truncated or damaged \({finding}"):
        header(tensors=tensors)
