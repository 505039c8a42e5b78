"""Headers of GGUF files."""

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
    def read(*entries, tensors=(), data=64):
        entries = (ARCHITECTURE, *entries)
        begin = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(entries)) + b"".join((*entries, *tensors))
        path = tmp_path / "model.gguf"
        path.write_bytes(begin + bytes(-len(begin) % 32 + data))
        return read_header(path)

    return read


def test_header(header):
    file = header(number("general.alignment", 32), tensors=[tensor("b", offset=32), tensor("a", shape=(2, 2))])
    assert [(row.name, row.shape, row.size) for row in file.tensors] == [("b", (4,), 16), ("a", (2, 2), 16)]
    assert file.weights == 8


@pytest.mark.parametrize("alignment", [0, 3, 24, 1 << 31])
def test_alignment_is_a_power_of_two(header, alignment):
    with pytest.raises(ModelError, match=rf"model.gguf: .*general.alignment is {alignment}"):
        header(number("general.alignment", alignment), tensors=[tensor("a")])


DAMAGED_METADATA = {
    "alignment is a text": entry("general.alignment", Kind.STRING, text("32")),
    "alignment is a list": array("general.alignment", Kind.UINT8, 1, b"\1"),
    "parts are a list": array("split.count", Kind.UINT8, 1, b"\1"),
    "too many numbers": array("a.b", Kind.FLOAT64, 1 << 60),
    "too many texts": array("a.b", Kind.STRING, 1 << 60),
    "text beyond the end in a list": array("a.b", Kind.STRING, 2, struct.pack("<Q", 1 << 63)),
    "list of lists": array("a.b", Kind.ARRAY, 1),
    "text beyond the end": entry("a.b", Kind.STRING, struct.pack("<Q", 1 << 62)),
    "unknown kind": entry("a.b", 77, b""),
    "not UTF-8": entry("a.b", Kind.STRING, text("a")[:-1] + b"\xff"),
    "architecture is a number": number("general.architecture", 7),
}


@pytest.mark.parametrize("damaged", DAMAGED_METADATA.values(), ids=DAMAGED_METADATA)
def test_damaged_metadata(header, damaged):
    with pytest.raises(ModelError, match=r"model.gguf: truncated or damaged \("):
        header(damaged, tensors=[tensor("a")])


DAMAGED_TENSORS = {
    "no dimensions": tensor("a", shape=()),
    "five dimensions": tensor("a", shape=(1,) * 5),
    "too many dimensions": text("a") + struct.pack("<I", 1 << 31),
    "a dimension of 0": tensor("a", shape=(4, 0)),
    "too many weights": tensor("a", shape=(1 << 63, 1 << 63)),
    "beyond the end": tensor("a", offset=1 << 63),
    "unknown kind": tensor("a", kind=99),
}


@pytest.mark.parametrize("damaged", DAMAGED_TENSORS.values(), ids=DAMAGED_TENSORS)
def test_damaged_tensors(header, damaged):
    with pytest.raises(ModelError, match=r"model.gguf: truncated or damaged \("):
        header(tensors=[damaged])
