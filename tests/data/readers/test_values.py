"""Values of raw rows: doubled keys, numbers that JSON lacks, Python's lists in cells, dates and bytes of Parquet."""

import datetime
import json
from decimal import Decimal

import pyarrow
import pyarrow.parquet
import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.data.label_codes import winner_field
from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import Row
from judgelm.data.readers.values import bytes_in, cell_value
from judgelm.errors import InputError


def read(tmp_path, name, text):
    (tmp_path / name).write_text(text)
    return list(read_rows(str(tmp_path / name)))


@pytest.mark.parametrize("name", ["a.jsonl", "a.json"])
@pytest.mark.parametrize(
    ("row", "reason"),
    [
        ('{"a": 1, "b": 2, "a": 3}', 'key "a" appears twice in the same object'),
        ('{"turns": [{"role": "user", "role": "user"}]}', 'key "role" appears twice in the same object'),
        ('{"a": 1, "m": {"x": [0, Infinity]}}', 'field "m.x[1]": expected a finite number, got Infinity; write null'),
        ('{"a": -1e999}', 'field "a": expected a finite number, got -Infinity'),
    ],
)
def test_a_row_with_repeated_keys_or_infinite_numbers_is_a_reject(tmp_path, name, row, reason):
    rows = ['{"a": 1}', row, '{"a": 2}']
    before, bad, after = read(tmp_path, name, "\n".join(rows) if name == "a.jsonl" else f"[{', '.join(rows)}]")
    assert (before.data, after.data, bad.raw) == ({"a": 1}, {"a": 2}, row)
    assert bad.reason.startswith(reason)


def test_the_row_after_an_incomplete_one_is_read(tmp_path):
    _, torn, good = read(tmp_path, "a.jsonl", '{"b": 1}\n{"x": {"a": 1e999, "a": 2}, \n{"a": 1.5}\n')
    assert torn.reason.startswith("invalid JSON")
    assert good.data == {"a": 1.5}


def test_nan_is_null_everywhere(tmp_path):
    [row] = read(tmp_path, "a.jsonl", '{"reference": NaN, "category": NaN, "m": [NaN, 1.5], "winner": 1.0}')
    assert row.data == {"reference": None, "category": None, "m": [None, 1.5], "winner": 1.0}
    assert (row.reference(), row.optional_text("category"), winner_field(row)) == (None, None, 1)


@pytest.mark.parametrize(
    ("cell", "value"),
    [
        ("['a', \"it's\"]", ["a", "it's"]),
        ("[{'role': 'user', 'content': 'a\\nb'}]", [{"role": "user", "content": "a\nb"}]),
        ("{'a': {'b': [1, 2.5, None, True]}}", {"a": {"b": [1, 2.5, None, True]}}),
        ("('7', '9')", ["7", "9"]),
        (" [None, 'a'] ", [None, "a"]),
        ("NaN", None),
        ("nan", None),
        *((text, text) for text in ('["a"]', "[9, 2]", "(3, 4)", '("Yes" he said)', "[see below]", "[...]", "{x}")),
        *(
            (text, text)
            for text in ("[]", "[__import__('os')]", "null", "None", "", "[x for x in y]", "['a'] and more")
        ),
    ],
)
def test_a_cell_is_a_list_only_in_pythons_notation(cell, value):
    assert cell_value(cell) == value


@pytest.mark.parametrize(
    ("cell", "reason"),
    [
        ("['a' 'b']", "a numpy list with no commas"),
        ("[\"it's\"\n 'b']", "a numpy list with no commas"),
        ("[{'role': 'user'}\n {'role': 'user'}]", "looks like a Python list but cannot be parsed"),
        ("[nan, 'a']", "cannot be parsed: malformed node"),
        ("['a', b'x']", "of type bytes, not JSON-serializable: b'x'"),
        ("['" + "x" * 1_000_000 + "']", "longer than 1,000,000 characters"),
        ("[" * 5000 + "'a'" + "]" * 5000, "cannot be parsed"),
        ("[" * 40 + "'a'" + "]" * 40, "nested more than 30 levels"),
    ],
)
def test_a_cell_like_pythons_notation_that_cannot_be_read_is_refused(cell, reason):
    with pytest.raises(ValueError, match=f"{reason}.*; save the table as JSON lines or Parquet"):
        cell_value(cell)


LISTS = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=9),
    lambda part: st.lists(part, max_size=4) | st.dictionaries(st.text(max_size=5), part, max_size=4),
    max_leaves=8,
).filter(lambda value: isinstance(value, list | dict))


@given(LISTS)
def test_what_python_writes_and_what_json_writes_is_the_same_list(value):
    read_value = cell_value(repr(value))
    assert (json.loads(read_value) if isinstance(read_value, str) else read_value) == value


def test_a_list_in_a_cell_is_never_the_text_of_an_answer(tmp_path):
    [row, bad] = read(tmp_path, "a.csv", "id,answer\n1,['Quito']\n2,\"['a' 'b']\"\n")
    with pytest.raises(InputError, match=r"""a\.csv:2: field "answer": expected text, got a Python list"""):
        row.text("answer", "answer")
    assert row.text_list("answer") == Row("f", 1, {"answer": '["Quito"]'}).text_list("answer") == ("Quito",)
    assert bad.reason.startswith('field "answer": is a numpy list')


def test_values_of_parquet_are_those_of_json(tmp_path):
    nested = {"day": datetime.date(2025, 6, 1), "scores": [1.5, float("nan")]}
    columns = {"time": [datetime.datetime(2025, 6, 1, 12, 1)], "gap": [float("nan")], "price": [Decimal("3.00")]}
    columns |= {"nested": [nested], "picture": [b"\x00\x01"]}
    pyarrow.parquet.write_table(pyarrow.table(columns), tmp_path / "a.parquet")
    [row] = read_rows(str(tmp_path / "a.parquet"))
    nested = {"day": "2025-06-01", "scores": [1.5, None]}
    plain = {"time": "2025-06-01 12:01:00", "gap": None, "price": 3, "nested": nested}
    assert row.data == plain | {"picture": b"\x00\x01"}
    assert bytes_in(plain) == ""
    assert bytes_in({"a": [row.data]}).startswith('field "a[0].picture": contains bytes')
    with pytest.raises(InputError, match='"picture": expected text, got "<2 bytes>"'):
        row.text("picture", "picture")


def test_an_infinite_number_of_parquet_is_a_reject(tmp_path):
    pyarrow.parquet.write_table(pyarrow.table({"n": [1.0, float("inf")]}), tmp_path / "a.parquet")
    good, bad = read_rows(str(tmp_path / "a.parquet"))
    assert (good.data, bad.line) == ({"n": 1.0}, 2)
    assert bad.reason.startswith('field "n": expected a finite number, got Infinity')


@pytest.mark.parametrize("nested", [False, True])
def test_two_columns_of_one_name_are_refused(tmp_path, nested):
    texts = [pyarrow.array(["x"]), pyarrow.array(["y"])]
    inner = pyarrow.StructArray.from_arrays(texts, names=["a", "a"])
    table = pyarrow.Table.from_arrays([inner], names=["s"]) if nested else pyarrow.Table.from_arrays(texts, ["a", "a"])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    with pytest.raises(InputError, match=f'column "{"s." if nested else ""}a" appears 2 times; rename or remove all'):
        list(read_rows(str(tmp_path / "a.parquet")))


@pytest.mark.parametrize(
    ("value", "name"),
    [(1, "1"), (1.0, "1"), ("1", "1"), ("1.0", "1"), (" 1.00 ", "1"), ("-2.0", "-2"), ("0.0", "0"), ("q1 ", "q1")]
    + [(text, text) for text in ("1.1", "1.10", "007", "007.0", "1.0.0", "v1.0", "1e3")],
)
def test_an_id_is_the_same_in_every_file(value, name):
    assert Row("f", 1, {"id": value}).id() == name


@pytest.mark.parametrize("value", [None, "", "  "])
def test_an_empty_id_is_none(value):
    assert Row("f", 1, {"id": value, "idx": 3}).id() == "3"


@pytest.mark.parametrize("extra", ["a0", "a4", "a01", "A3", " a0"])
def test_a_numbered_field_that_would_be_left_over_is_refused(extra):
    data = {"a1": "x", "a2": "y", extra: "z"}
    with pytest.raises(InputError, match=f'field "{extra}": contains "z", but judgelm reads only a1 to a2; number'):
        Row("f", 1, data).numbered_texts("a{}", "a1, a2")
    assert Row("f", 1, data | {extra: None}).numbered_texts("a{}", "a1, a2") == ("x", "y")
