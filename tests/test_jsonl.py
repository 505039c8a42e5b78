import os
import re
import resource
import signal
import sys
from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.errors import ConfigError, InputError, RunError
from judgelm.jsonl import Appender, check_no_input, encode_line, read_jsonl, repair_tail
from tests.support.processes import run_command

# A high surrogate right before a low one is one character in JSON, so it cannot come back as two.
TEXT = st.text(st.characters(exclude_categories=[]), max_size=20).filter(
    lambda text: not any("\ud800" <= a <= "\udbff" and "\udc00" <= b <= "\udfff" for a, b in pairwise(text))
)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=8,
)
ROWS = st.lists(st.dictionaries(TEXT, VALUES, max_size=4), max_size=5)


@given(rows=ROWS)
def test_rows_come_back_as_they_were_written(rows, tmp_path_factory):
    path = tmp_path_factory.mktemp("jsonl") / "out.jsonl"
    with Appender(path) as out:
        for row in rows:
            out.write(row)
    assert [row for _, row in read_jsonl(path)] == rows
    assert len(path.read_bytes().decode().splitlines()) == len(rows)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("a\u2028b\u2029", rb'{"t": "a\u2028b\u2029"}'),
        ("\ud800", rb'{"t": "\ud800"}'),
        ("é😀", '{"t": "é😀"}'.encode()),
    ],
)
def test_only_line_separators_and_surrogates_are_escaped(text, line):
    assert encode_line({"t": text}) == line + b"\n"


def test_nan_and_a_missing_folder_are_refused_and_nothing_is_written(tmp_path):
    path = tmp_path / "out.jsonl"
    with Appender(path) as out, pytest.raises(ValueError, match=r"out\.jsonl: .*JSON does not support NaN"):
        out.write({"score": float("nan")})
    assert path.read_bytes() == b""
    with pytest.raises(RunError, match=r"cannot write: No such file or directory; create the folder .*nowhere first"):
        Appender(tmp_path / "nowhere" / "out.jsonl")


def test_a_full_disk_names_path_finding_and_way_out():
    expected = r"^/dev/full: cannot write: No space left .*; free some space .*; finished judgments are kept$"
    with Appender("/dev/full") as out, pytest.raises(RunError, match=expected):
        out.write({"a": 1})


def test_a_half_written_line_is_cut_off_again(tmp_path):
    path = tmp_path / "out.jsonl"
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        with Appender(path) as out:
            out.write({"a": 1})
            # 9 bytes stand; of the next line's 9, five fit before the limit of 14.
            resource.setrlimit(resource.RLIMIT_FSIZE, (14, before[1]))
            with pytest.raises(RunError, match="File too large"):
                out.write({"b": 2})
            resource.setrlimit(resource.RLIMIT_FSIZE, before)
            assert path.read_bytes() == b'{"a": 1}\n'
            out.write({"b": 2})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert [row for _, row in read_jsonl(path)] == [{"a": 1}, {"b": 2}]


def test_written_lines_survive_kill_9(tmp_path):
    path = tmp_path / "out.jsonl"
    code = "import os, sys; from judgelm.jsonl import Appender; out = Appender(sys.argv[1])\n"
    code += "for i in range(3): out.write({'i': i})\nos.kill(os.getpid(), 9)"
    run_command(sys.executable, "-c", code, path, code=-9)
    assert [row["i"] for _, row in read_jsonl(path)] == [0, 1, 2]


@pytest.mark.parametrize(
    ("before", "after", "removed"),
    [
        (b"", b"", 0),
        (b'{"a": 1}\n', b'{"a": 1}\n', 0),
        (b'{"a": 1}\n{"b": 2}', b'{"a": 1}\n{"b": 2}\n', 0),
        (b'{"a": 1}\n{"b": ', b'{"a": 1}\n', 6),
        (b'{"b": ', b"", 6),
        (b'{"a": 1}\n12', b'{"a": 1}\n', 2),
        (b'{"a": 1}\n\x00\x00\x00', b'{"a": 1}\n', 3),
        (b'{"a": 1}\n{"b": "\xc3', b'{"a": 1}\n', 8),
        (b'{"a": 1}\n' + b"[" * 200_000, b'{"a": 1}\n', 200_000),
    ],
)
def test_a_torn_tail_is_mended(tmp_path, before, after, removed):
    path = tmp_path / "out.jsonl"
    path.write_bytes(before)
    assert repair_tail(path) == removed
    assert path.read_bytes() == after


@given(rows=ROWS, cut=st.integers(min_value=0))
def test_any_cut_loses_the_torn_row_at_most(rows, cut, tmp_path_factory):
    path = tmp_path_factory.mktemp("torn") / "out.jsonl"
    whole = b"".join(encode_line(row) for row in rows)
    remaining = whole[: cut % (len(whole) + 1)]
    path.write_bytes(remaining)
    with Appender(path) as out:
        out.write({"next": 1})
    *survivors, last = [row for _, row in read_jsonl(path)]
    assert last == {"next": 1}
    assert survivors == rows[: len(survivors)]
    assert len(survivors) >= remaining.count(b"\n")


@pytest.mark.parametrize(
    ("line", "finding"),
    [
        (b'{"a": ', "run.jsonl:3: not valid JSON"),
        (b"[1]", "run.jsonl:3: expected a JSON object, got b'[1]'"),
        (b'{"a": "\xff"}', "run.jsonl:3: not valid JSON in UTF-8"),
    ],
)
def test_a_bad_line_and_a_missing_file_are_errors_with_their_place(tmp_path, line, finding):
    path = tmp_path / "run.jsonl"
    path.write_bytes(b'{"a": 1}\n\n' + line + b"\n")
    rows = read_jsonl(path)
    assert next(rows) == (1, {"a": 1})
    with pytest.raises(InputError, match=re.escape(finding)):
        next(rows)
    with pytest.raises(InputError, match=r"none\.jsonl: cannot read: No such file"):
        list(read_jsonl(tmp_path / "none.jsonl"))


@pytest.fixture
def names(tmp_path):
    """One file by its path and by other names."""
    file = tmp_path / "in.jsonl"
    file.write_text("{}\n")
    os.link(file, tmp_path / "hard.jsonl")
    (tmp_path / "soft.jsonl").symlink_to(file)
    (tmp_path / "folder").symlink_to(tmp_path)
    (tmp_path / "chain.jsonl").symlink_to(tmp_path / "soft.jsonl")
    names = (file, "hard.jsonl", "soft.jsonl", "chain.jsonl", "folder/in.jsonl", "folder/hard.jsonl", "./x/../in.jsonl")
    (tmp_path / "x").mkdir()
    return [tmp_path / name for name in names]


def test_one_file_under_two_names_and_a_link_next_to_the_output_are_refused(tmp_path, names):
    for output, read in product(names, names):
        with pytest.raises(ConfigError, match="overwrite the input"):
            check_no_input([output], [read])
    os.link(names[0], tmp_path / "out.jsonl.partial")
    with pytest.raises(ConfigError, match=r"out\.jsonl\.partial"):
        check_no_input([tmp_path / "out.jsonl"], [names[0]])


def test_other_files_and_devices_are_accepted(tmp_path, names):
    other = tmp_path / "other.jsonl"
    other.write_text("{}\n")
    check_no_input([other, tmp_path / "new.jsonl", "/dev/null"], [names[0], "missing.jsonl", "/dev/null", "-", "a\0b"])


def test_redirected_standard_streams_are_files(names, tmp_path):
    with names[0].open() as file:
        standard_input = os.dup(0)
        os.dup2(file.fileno(), 0)
        try:
            with pytest.raises(ConfigError, match="the input -"):
                check_no_input([names[1]], ["-"])
        finally:
            os.dup2(standard_input, 0)
            os.close(standard_input)
