"""Excel workbooks, read as the CSV file of their one sheet."""

import datetime
import re
import zipfile

import pytest

from judgelm.data.readers.files import read_rows
from judgelm.data.readers.rows import Reject
from judgelm.errors import InputError

openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed: pip install -e '.[xlsx]'")

HEAD = ["id", "question", "answer_1", None]


def workbook(tmp_path, merged=(), far=None, **sheets):
    """Writes sheets of rows, whose cells may be merged or far away."""
    book = openpyxl.Workbook()
    book.remove(book.active)
    for name, rows in sheets.items():
        sheet = book.create_sheet(name)
        for row in rows:
            sheet.append(row)
        for cells in merged:
            sheet.merge_cells(cells)
        if far is not None:
            sheet[far] = "x"
    book.save(tmp_path / "a.xlsx")
    return str(tmp_path / "a.xlsx")


def test_cells_are_texts_lines_are_rows_and_a_row_longer_than_the_header_is_a_reject(tmp_path):
    rows = [HEAD, [1, "What?\nReally?", 4.5], [None] * 3, ["b", "Ünïcode", datetime.date(2024, 1, 2), None]]
    *good, long = read_rows(workbook(tmp_path, pairs=[*rows, [2, "q", "a", "more"]], empty=[]))
    assert (isinstance(long, Reject), long.line) == (True, 5)
    assert [(row.line, row.data) for row in good] == [
        (2, {"id": "1", "question": "What?\nReally?", "answer_1": "4.5"}),
        (4, {"id": "b", "question": "Ünïcode", "answer_1": "2024-01-02 00:00:00"}),
    ]


def test_a_merged_cell_is_in_each_of_its_rows_that_has_other_cells_with_one_warning(tmp_path, caplog):
    rows = [[*HEAD[:3], "category"], [1, "q", "a", "x"], [2, None, "b"], [None], [3, None, "c"], [4, "r", "d"]]
    path = workbook(tmp_path, pairs=rows, merged=("B2:B5", "D2:D6"))
    texts = [(row.line, row.data["question"], row.data["category"]) for row in read_rows(path)]
    assert texts == [(2, "q", "x"), (3, "q", "x"), (5, "q", "x"), (6, "r", "x")]
    list(read_rows(path))
    [record] = caplog.records
    assert record.getMessage().startswith(f"{path}: 2 merged cells span several rows")


def test_the_last_header_line_of_a_sheet_counts_and_short_rows_are_filled(tmp_path):
    head = [["id", "question", "answers", None], [None, None, "answer_1", "answer_2"]]
    rows = [["Round 1"], [None], *head, [1, "q", "a"]]
    path = workbook(tmp_path, pairs=rows, merged=("A1:D1", "A3:A4", "B3:B4", "C3:D3"))
    [row] = read_rows(path, known={"id", "question", "answers", "answer_1", "answer_2"})
    assert (row.line, row.data) == (5, {"id": "1", "question": "q", "answer_1": "a", "answer_2": ""})


@pytest.mark.parametrize(
    ("sheets", "finding"),
    [
        ({"one": [HEAD, [1, "q", "a"]], "two": [["x"]]}, "expected one non-empty sheet, got one, two"),
        ({"one": []}, "expected one non-empty sheet, got none"),
        ({"one": [HEAD, [1, "q", "=1+1"]]}, "cell C2: the formula has no stored value"),
        ({"one": [["id", "id"], [1, 2]]}, "id"),
        ({"one": [HEAD, [1, "q", "a"]], "far": "XFD1"}, r"a.xlsx:1: 16380 columns have no name"),
    ],
)
def test_unusable_workbooks_are_refused(tmp_path, sheets, finding):
    with pytest.raises(InputError, match=finding):
        list(read_rows(workbook(tmp_path, **sheets)))


def changed(tmp_path, part, change):
    """A workbook of one pair in which a part is replaced."""
    path = workbook(tmp_path, pairs=[HEAD, [1, "q", "a"]])
    with zipfile.ZipFile(path) as source:
        parts = {name: source.read(name) for name in source.namelist()}
    parts["xl/sharedStrings.xml"] = SHARED
    parts[TYPES] = parts[TYPES].replace(b"</Types>", SHARED_TYPE + b"</Types>")
    with zipfile.ZipFile(path, "w") as target:
        for name, content in parts.items():
            target.writestr(name, change(content) if name.endswith(part) else content)
    return path


SHARED = b'<sst xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"><si><t>x</t></si></sst>'
TYPES = "[Content_Types].xml"
SHARED_TYPE = (
    b'<Override PartName="/xl/sharedStrings.xml" '
    b'ContentType="application/vnd.openxmlformats-officedocument.spreadsheetml.sharedStrings+xml"/>'
)
DIMENSION = re.compile(rb'<dimension ref="[^"]*"')


@pytest.mark.timeout(60)
@pytest.mark.parametrize(
    ("rows", "outcome"), [([[1, "q", "a"]], [(2, False), (1 << 20, True)]), ([], [(1 << 20, True)])]
)
def test_a_far_cell_is_one_reject(tmp_path, rows, outcome):
    read = read_rows(workbook(tmp_path, pairs=[HEAD, *rows], far="XFD1048576"))
    assert [(row.line, isinstance(row, Reject)) for row in read] == outcome


def test_the_size_stated_by_a_sheet_is_ignored(tmp_path):
    path = changed(tmp_path, "sheet1.xml", lambda xml: DIMENSION.sub(b'<dimension ref="A1:XFD1048576"', xml))
    assert [row.line for row in read_rows(path)] == [2]


LAUGHS = b'<!DOCTYPE w [<!ENTITY a "aaaaaaaaaa">' + b"".join(
    b'<!ENTITY %c "%s">' % (letter, b"&%c;" % (letter - 1) * 10) for letter in b"bcdefghij"
)


@pytest.mark.parametrize(
    ("part", "change"),
    [
        ("sheet1.xml", lambda xml: xml[: len(xml) // 2]),
        ("sheet1.xml", lambda xml: xml.replace(b"</row>", b"</cell>")),
        ("sheet1.xml", lambda xml: xml.replace(b'r="A2"', b'r="!!"')),
        ("sheet1.xml", lambda xml: xml.replace(b'<row r="2"', b'<row r="99999999999"')),
        ("sheet1.xml", lambda xml: xml.replace(b"<worksheet", LAUGHS + b"]><worksheet").replace(b"<v>1<", b"<v>&j;<")),
        ("sharedStrings.xml", lambda xml: xml[: len(xml) // 2]),
        ("styles.xml", lambda xml: xml[: len(xml) // 2]),
        ("styles.xml", lambda xml: xml.replace(b'val="', b'val="zz')),
        ("workbook.xml", lambda xml: xml[:100]),
    ],
    ids=range(9),
)
def test_a_damaged_part_is_refused(tmp_path, part, change):
    with pytest.raises(InputError, match="damaged, or not an Excel workbook: "):
        list(read_rows(changed(tmp_path, part, change)))
