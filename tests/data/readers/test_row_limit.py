"""A row beyond the limit is a reject with its place, in every format, and the rows around it are read."""

import bz2
import csv
import gzip
import io
import json
import lzma
import zipfile
from functools import partial

import pyarrow
import pyarrow.parquet
import pytest

from judgelm.bounds import MAX_WHOLE_BYTES
from judgelm.data.readers import csv_tables, excel, files, json_lists, parquet
from judgelm.data.readers.files import read_json, read_rows
from judgelm.data.readers.rows import Reject
from judgelm.errors import ConfigError, InputError
from judgelm.yaml_files import read_yaml

LIMIT = 20_000
LONG = "x" * (3 * LIMIT)


@pytest.fixture(autouse=True)
def limit(monkeypatch):
    for module in (csv_tables, excel, files, json_lists, parquet):
        monkeypatch.setattr(module, "MAX_ROW_BYTES", LIMIT)


def outcome(tmp_path, name, content):
    """The lines of rows and of rejects of a file."""
    path = tmp_path / name
    path.write_bytes(content)
    rows = list(read_rows(str(path)))
    rejects = [row for row in rows if isinstance(row, Reject)]
    assert all("the size limit (64 MB" in reject.reason for reject in rejects)
    return [row.line for row in rows if row not in rejects], [reject.line for reject in rejects]


zstd = partial(pyarrow.compress, codec="zstd", asbytes=True)


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress, zstd], ids=range(5))
def test_a_long_line(tmp_path, pack):
    content = b"".join(json.dumps({"id": text}).encode() + b"\n" for text in ("a", LONG, "c"))
    assert outcome(tmp_path, "a.jsonl", pack(content)) == ([1, 3], [2])


def test_blanks_are_skipped_and_their_lines_counted(tmp_path):
    assert outcome(tmp_path, "a.jsonl", b'{"a": 1}\n' + b"\n \r\n" * 100_000 + b' {"a": 2}\n') == ([1, 200_002], [])
    assert outcome(tmp_path, "a.csv", b"a,b\n1,2\n" + b"\n\r\n" * 1000 + b"3,4\n") == ([2, 2003], [])
    assert outcome(tmp_path, "a.json", b'[{"a": 1},' + b" \n" * 100_000 + b'{"a": 2}]') == ([1, 100_001], [])


@pytest.mark.parametrize(
    "value", [{"a": LONG}, {"a": '"]}\\' * LIMIT}, {"a": [[{"b": []}]] * LIMIT}, LONG, [LONG]], ids=range(5)
)
def test_a_long_element_of_a_list(tmp_path, value):
    content = json.dumps([{"a": 1}, value, {"a": 3}]).replace("}, ", "},\n").encode()
    lines, rejects = outcome(tmp_path, "a.json", content)
    assert (len(lines), rejects, lines[0]) == (2, [2], 1)


def test_a_long_field_next_to_the_rows(tmp_path):
    content = json.dumps({"data": [{"a": 1}, {"a": LONG}], "about": {"text": LONG}, "more": 1}).encode()
    assert outcome(tmp_path, "a.json", content) == ([1], [1])


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("cell", [LONG, "a\n" * LIMIT, '"x"\n' * LIMIT])
def test_a_long_cell(tmp_path, cell, end):
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator=end).writerows([["id", "text"], ["1", "a"], ["2", cell], ["3", "c"], ["4", "d"]])
    after = 4 + cell.count("\n")
    assert outcome(tmp_path, "a.csv", text.getvalue().encode()) == ([2, after, after + 1], [3])


@pytest.mark.parametrize(
    ("text", "finding"),
    [(f'id,text\n1,a\n2,"{LONG}\n', "3: a quote is not closed"), (f"{LONG},b\n1,2\n", "1: the header is longer")],
    ids=range(2),
)
def test_a_long_unclosed_quote_or_header_is_refused(tmp_path, text, finding):
    with pytest.raises(InputError, match=f"a.csv:{finding}"):
        outcome(tmp_path, "a.csv", text.encode())


def parquet_bytes(columns, **options):
    out = pyarrow.BufferOutputStream()
    pyarrow.parquet.write_table(pyarrow.table(columns), out, **options)
    return out.getvalue().to_pybytes()


TEXTS = {"a": ["x", LONG, "z"], "b": [["1"], ["2"], []]}
REPEATED = {"a": [["x" * (LIMIT // 2)] * count for count in (1, 5, 1)]}  # Parquet stores the text once


@pytest.mark.parametrize(("columns", "options"), [(TEXTS, {"row_group_size": 1}), (REPEATED, {})], ids=range(2))
def test_a_long_row_of_parquet(tmp_path, columns, options):
    assert outcome(tmp_path, "a.parquet", parquet_bytes(columns, **options)) == ([1, 3], [2])


@pytest.mark.parametrize("nested", [False, True])
def test_parquet_is_read_by_bytes_where_it_keeps_a_text_once(tmp_path, monkeypatch, nested):
    value = ["x" * (LIMIT // 3)] * 2 if nested else "x" * (LIMIT // 3)
    (tmp_path / "a.parquet").write_bytes(parquet_bytes({"a": [value] * 5000}))
    sizes, batch_values = [], parquet._unpacked_bytes
    monkeypatch.setattr(parquet, "_unpacked_bytes", lambda array: sizes.append(len(array)) or batch_values(array))
    rows = list(read_rows(str(tmp_path / "a.parquet")))
    assert (len(rows), rows[-1].data) == (5000, {"a": value})


def sheet(rows):
    openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed: pip install -e '.[xlsx]'")
    book, out = openpyxl.Workbook(), io.BytesIO()
    for row in rows:
        book.active.append(row)
    book.save(out)
    return out.getvalue()


def test_a_long_row_of_a_sheet(tmp_path):
    long = ["x" * (LIMIT // 2)] * 3
    assert outcome(tmp_path, "a.xlsx", sheet([["a", "b", "c"], [1, 2, 3], long, [4, 5, 6]])) == ([2, 4], [3])


def test_a_sheet_of_blanks_is_refused(tmp_path):
    changed = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(sheet([["a"], [1]]))) as source, zipfile.ZipFile(changed, "w") as target:
        for name in source.namelist():
            blanks = b" " * (2 * LIMIT + (1 << 20)) if name.endswith("sheet1.xml") else b""
            target.writestr(name, source.read(name).replace(b"</sheetData>", blanks + b"</sheetData>"))
    with pytest.raises(InputError, match=r"not an Excel workbook: xl/worksheets/sheet1.xml has"):
        outcome(tmp_path, "a.xlsx", changed.getvalue())


def test_a_file_that_is_one_value_has_a_limit(tmp_path):
    (tmp_path / "a.json.gz").write_bytes(gzip.compress(b"[" + b" " * MAX_WHOLE_BYTES + b"]", 1))
    with pytest.raises(ValueError, match="larger than 256 MB"):
        read_json(str(tmp_path / "a.json.gz"))


def test_a_configuration_has_a_limit(tmp_path):
    with (tmp_path / "a.yaml").open("wb") as file:
        file.truncate(1 << 30)
    with pytest.raises(ConfigError, match="larger than 8 MB"):
        read_yaml(tmp_path / "a.yaml")
