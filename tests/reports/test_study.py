"""Studies as files, pages and figures."""

import csv
import json
import math
import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from judgelm.errors import RunError
from judgelm.metrics.resampling import Estimate
from judgelm.reports.plots import MAX_DRAWN_ROWS, draw
from judgelm.reports.study import MAX_PAGE_ROWS, page_table, shown, table_csv, table_notes, write_study
from judgelm.studies.result import Column, Forest, ForestRow, HeatMap, Lines, Series, StudyResult, Table
from tests.support.studies import render_study

NASTY = "<script>alert(1)</script>"
HALF = Estimate(value=0.5, low=0.4, high=0.6, n=90)
TABLE = Table(
    name="agreement", title="Agreement", note="Undefined where every judgment failed.", source="Table 4",
    columns=(
        Column(key="judge", heading="Judge"),
        Column(key="agreement", heading="Agreement", kind="share"),
        Column(key="failed", heading="Failed", kind="count"),
    ),
    rows=(("a, b", HALF, 1200), (NASTY, None, 0)),
)  # fmt: skip
CURVE = Lines(name="curve", title="A curve", x_label="x", y_label="y", series=(Series(name="s", x=(0, 1), y=(0, 1)),))
RESULT = StudyResult(
    study="demo", title=f"A study {NASTY}", protocol="Labels by people.", findings=("First.", "Second."),
    counts={"judged_pairs": 1200, "failed": 3}, tables=(TABLE,), figures=(CURVE,), warnings=(f"Few {NASTY}",),
)  # fmt: skip


def names(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_everything_is_written(tmp_path):
    folder = tmp_path / "deep" / "study"
    paths = write_study(RESULT, folder)
    expected = ["figures/curve.png", "figures/curve.svg", "report.html", "study.json", "tables/agreement.csv"]
    assert names(folder) == sorted(str(path.relative_to(folder)) for path in paths) == expected
    assert paths[0] == folder / "report.html"
    assert json.loads((folder / "study.json").read_text(encoding="utf-8")) == json.loads(json.dumps(RESULT.to_json()))


def test_an_estimate_is_five_columns_of_csv(tmp_path):
    write_study(RESULT, tmp_path / "out")
    with (tmp_path / "out" / "tables" / "agreement.csv").open(encoding="utf-8", newline="") as file:
        first, second = csv.DictReader(file)
    assert first == {
        "judge": "a, b", "agreement": "0.5", "agreement_low": "0.4", "agreement_high": "0.6", "agreement_n": "90",
        "agreement_level": "0.95", "failed": "1200",
    }  # fmt: skip
    assert (second["agreement"], second["agreement_n"], second["failed"]) == ("", "", "0")


def test_no_number_is_an_empty_cell_and_never_nan():
    table = replace(TABLE, rows=(("a", replace(HALF, low=math.nan, high=math.nan), 1), ("b", math.inf, 2)))
    assert table_csv(table).splitlines()[1:] == ["a,0.5,,,90,0.95,1", "b,,,,,,2"]


@pytest.mark.parametrize(
    ("cell", "kind", "text", "small"),
    [
        (HALF, "share", "50.0\u00a0%", "40.0 to 60.0, n = 90"),
        (HALF, "number", "0.500", "0.400 to 0.600, n = 90"),
        (replace(HALF, low=math.nan), "number", "0.500", "no interval, n = 90"),
        (replace(HALF, high=math.inf), "number", "0.500", "from 0.400, no upper bound, n = 90"),
        (replace(HALF, low=-math.inf), "number", "0.500", "to 0.600, no lower bound, n = 90"),
        (None, "share", "–", ""),
        (math.nan, "number", "–", ""),
        (0, "count", "0", ""),
        (0.00012, "number", "1.2e-04", ""),
    ],
)
def test_cells_as_the_page_shows_them(cell, kind, text, small):
    result = shown(cell, kind)
    assert (result.text, result.small) == (text, small)


def test_a_study_is_not_written_over_unless_that_is_said(tmp_path):
    write_study(RESULT, tmp_path)
    before = (tmp_path / "study.json").read_bytes()
    with pytest.raises(RunError, match=r"already contains a study; .*--overwrite"):
        write_study(replace(RESULT, title="Other"), tmp_path)
    assert (tmp_path / "study.json").read_bytes() == before


def test_overwriting_leaves_nothing_of_the_old_study_and_all_of_others(tmp_path):
    (tmp_path / "study.json").write_text("{")  # a broken one
    write_study(replace(RESULT, tables=(replace(TABLE, name="old"),), figures=()), tmp_path, overwrite=True)
    (tmp_path / "tables" / "mine.csv").write_text("1")
    (tmp_path / "notes.txt").write_text("mine")
    write_study(RESULT, tmp_path, overwrite=True)
    assert names(tmp_path) == [
        "figures/curve.png", "figures/curve.svg", "notes.txt", "report.html", "study.json", "tables/agreement.csv",
        "tables/mine.csv",
    ]  # fmt: skip


def test_a_file_of_somebody_else_is_not_written_over(tmp_path):
    (tmp_path / "out").write_text("a file")
    with pytest.raises(RunError, match="is a file"):
        write_study(RESULT, tmp_path / "out")
    (tmp_path / "out").unlink()
    (tmp_path / "report.html").write_text("mine")
    with pytest.raises(RunError, match=r"already contains report\.html"):
        write_study(RESULT, tmp_path)
    assert names(tmp_path) == ["report.html"]


def test_names_in_an_old_study_cannot_lead_out_of_its_folder(tmp_path):
    (tmp_path / "keep.csv").write_text("mine")
    folder = tmp_path / "out"
    write_study(RESULT, folder)
    (folder / "study.json").write_text(json.dumps({"tables": [{"name": "../../keep"}], "figures": []}))
    write_study(RESULT, folder, overwrite=True)
    assert (tmp_path / "keep.csv").read_text() == "mine"


def test_a_name_that_leads_elsewhere_is_refused_before_anything_is_written(tmp_path):
    with pytest.raises(ValueError, match="not a valid file name"):
        write_study(replace(RESULT, tables=(replace(TABLE, name="../x"),)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_text_that_is_no_unicode_can_be_written(tmp_path):
    strange = replace(RESULT, tables=(replace(TABLE, rows=(("a\ud800b", HALF, 1),)),))
    write_study(strange, tmp_path)
    [table] = json.loads((tmp_path / "study.json").read_text(encoding="utf-8"))["tables"]
    assert table["rows"][0]["judge"] == "a\ud800b"


def test_cells_that_a_file_cannot_hold_or_a_spreadsheet_computes_are_counted():
    rows = (("=1+1", HALF, 1), ("a\0b", HALF, 1), ("-0.5", None, -3))
    study = replace(RESULT, tables=(replace(TABLE, rows=rows),))
    first = [line.partition(",")[0] for line in table_csv(study.tables[0]).splitlines()[1:]]
    assert first == ["=1+1", "a\ufffdb", "-0.5"]
    replaced, formulas = table_notes(study)
    assert "1 cell has unsupported characters" in replaced
    assert "1 cell begins with =" in formulas


def test_the_page_says_what_it_holds():
    html = render_study(RESULT)
    for text in ("judged pairs", "1,200", "Labels by people.", "Undefined where every judgment failed.", "Table 4",
                 "A dash marks an undefined", "Small print: 95 % interval.", "tables/agreement.csv"):  # fmt: skip
        assert text in html
    assert "http" not in html.replace("http-equiv", "")
    assert NASTY not in html
    assert html.count("&lt;script&gt;") >= 4  # title twice, warning, cell
    nothing = render_study(StudyResult(study="demo", title="Nothing", protocol="None."))
    assert "See the tables." in nothing


def test_a_long_table_is_cut_on_the_page_and_whole_in_its_file():
    table = replace(TABLE, rows=tuple((str(place), HALF, place) for place in range(MAX_PAGE_ROWS + 5)))
    result = page_table(table, "tables/agreement.csv")
    assert (len(result["rows"]), result["total"]) == (MAX_PAGE_ROWS, MAX_PAGE_ROWS + 5)
    assert len(table_csv(table).splitlines()) == MAX_PAGE_ROWS + 6
    html = render_study(replace(RESULT, tables=(table,)))
    assert "first 2,000 of 2,005 rows" in html


HOSTILE = '<script>alert(1)</script> "&" $x^2$ \x00\ud800 模型'


def about(value, n=100, level=0.95):
    return Estimate(value=value, low=value - 0.1, high=value + 0.1, n=n, level=level)


LINES = Lines(
    name="lines", title="Curve", x_label="Coverage (share)", y_label="Precision (share)", diagonal=True,
    series=(
        Series(name="first", x=(0.1, 0.5, 0.9), y=(about(0.2, 30), None, about(0.8, 1200))),
        Series(name="second", x=(0.1, 0.9), y=(0.3, 0.4), labels=("a", "b")),
    ),
)  # fmt: skip
FOREST = Forest(
    name="forest", title="Forest", x_label="Coefficient",
    rows=(
        ForestRow(label="judge a", estimate=about(0.123, 63222, 0.9), group="self"),
        ForestRow(label="judge b", estimate=about(-0.2), group="family"),
    ),
)  # fmt: skip
HEAT = HeatMap(
    name="heat", title="Map", x_label="Model", y_label="Judge", value_label="Mean score", rows=("a", "b"),
    columns=("c", "d"), values=((0.25, None), (-0.75, 1500.0)), marked=frozenset({(0, 0)}), centred=True,
)  # fmt: skip


def texts(svg):
    """All text of an SVG document, which must be well-formed XML."""
    return [part.strip() for part in ET.fromstring(svg).itertext() if part.strip()]


def rests(figure, name):
    return next(text for text in texts(draw(figure).svg) if text.startswith(name))


@pytest.mark.parametrize("figure", [LINES, FOREST, HEAT], ids=lambda figure: figure.name)
def test_every_kind_is_drawn_alike_each_time_as_svg_and_png_with_its_axes_named(figure):
    drawn = draw(figure)
    assert drawn == draw(figure)
    result = texts(drawn.svg)
    assert figure.title in result
    assert all(any(label in text for text in result) for label in (figure.x_label, getattr(figure, "y_label", "")))
    assert drawn.png.startswith(b"\x89PNG")
    assert drawn.inline.startswith(f'<svg role="img" aria-label="{figure.title}"')


def test_n_stands_in_the_figure():
    assert rests(LINES, "first") == "first (n = 30 to 1,200 each)"
    assert rests(LINES, "second") == "second"  # plain numbers have none
    forest = texts(draw(FOREST).svg)
    assert {"0.123 (0.023 to 0.223), n = 63,222", "whiskers: 90 % and 95 % interval"} <= set(forest)
    assert {"–", "0.25", "-0.75", "1,500"} <= set(texts(draw(HEAT).svg))


@pytest.mark.parametrize(
    "figure",
    [
        replace(LINES, series=(replace(LINES.series[1], name=HOSTILE, labels=(HOSTILE, HOSTILE)),), title=HOSTILE),
        replace(FOREST, rows=(replace(FOREST.rows[0], label=HOSTILE, group=HOSTILE), FOREST.rows[1])),
        replace(HEAT, rows=(HOSTILE, "b"), value_label=HOSTILE),
    ],
    ids=lambda one: one.name,
)
def test_names_are_text_and_nothing_else(figure):
    drawn = draw(figure)
    assert any("<script>" in text for text in texts(drawn.svg))  # as text, so it was escaped
    assert "<script" not in drawn.svg
    assert "<script" not in drawn.inline


def test_long_lists_are_cut_and_that_is_said():
    rows = tuple(ForestRow(label=f"judge {place}", estimate=about(0.1)) for place in range(MAX_DRAWN_ROWS + 20))
    result = texts(draw(replace(FOREST, rows=rows)).svg)
    assert f"(first {MAX_DRAWN_ROWS} of {MAX_DRAWN_ROWS + 20}; study.json contains all of them)" in result
    assert f"judge {MAX_DRAWN_ROWS - 1}" in result
    assert f"judge {MAX_DRAWN_ROWS}" not in result


@pytest.mark.parametrize(
    "figure",
    [
        replace(LINES, series=()),
        replace(LINES, series=(Series(name="a", x=(1.0,), y=(None,)),)),
        replace(FOREST, rows=()),
        replace(HEAT, values=((None, None), (None, None))),
        replace(HEAT, rows=(), columns=(), values=(), marked=frozenset()),
        replace(HEAT, values=((1.0, 1.0), (1.0, 1.0)), centred=False),
    ],
)
def test_little_or_nothing_to_draw_is_no_error(figure):
    assert draw(figure).png
