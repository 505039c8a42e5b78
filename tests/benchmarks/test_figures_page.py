"""`benchmarks.figures`: stored results as text, rows that are left out, and what is refused."""

import json
from datetime import date

import pytest

from benchmarks.figures import Page, Row, Section, render, stale_rows
from judgelm.errors import InputError

STORED = {
    "share": {"value": 0.6466, "low": 0.598, "high": 0.6961, "n": 1999},
    "loss": {"value": -0.069, "low": -0.0964, "high": -0.0428, "n": 1999},
    "auc": {"auc": 0.737, "interval": [0.608, 0.853], "n": 172},
    "rates": [46.41, 43.74, 46.52],
    "bytes": 26165409280,
}


def page(tmp_path, figures, *, unit="%", n="9 pairs", stale=False):
    (tmp_path / "results.json").write_text(json.dumps(STORED), encoding="utf-8")
    row = Row(what="a judge", figures=figures, n=n, unit=unit, stored="results.json", stale=stale,
              command="`make lab`", date=date(2026, 11, 27), machine="any", minutes=5)  # fmt: skip
    sections = [Section(title="Judges", text="Of all pairs.", rows=[row])]
    return Page(head="# Page", machines={"any": "a share"}, sections=sections, foot="The end.")


@pytest.mark.parametrize(
    ("path", "unit", "text"),
    [
        ("/share", "%", "64.7 % (59.8 to 69.6)"),
        ("/loss", "points", "-6.9 points (-9.6 to -4.3)"),
        ("/share", "points", "+64.7 points (59.8 to 69.6)"),
        ("/auc", "AUC", "0.74 AUC (0.61 to 0.85)"),
        ("/rates", "pairs/s", "46.4 pairs/s (43.7 to 46.5)"),
        ("/rates/1", "times", "43.7 times"),
        ("/bytes", "GiB", "24.4 GiB"),  # 26,165,409,280 / 2**30 = 24.37
        ("as written", "%", "as written"),
    ],
)
def test_a_figure_is_a_text_or_a_stored_value_in_its_unit(tmp_path, path, unit, text):
    line = f"| a judge | PandaLM: {text} | 9 pairs | `make lab` | 2026-11-27 | any |"
    assert line in render(page(tmp_path, {"PandaLM": path}, unit=unit), tmp_path)


@pytest.mark.parametrize(
    ("path", "n", "finding"),
    [
        ("/nothing", "9", "results.json has nothing at /nothing"),
        ("/share/value/low", "9", "has nothing at /share/value/low"),
        ("/rates/3", "9", "has nothing at /rates/3"),
        ("/rates/first", "9", "has nothing at /rates/first"),
        ("/rates", "pairs", "n is not stored with each figure"),
        ("as written", "pairs", "n is not stored with each figure"),
        ("/share/n/", "9", "has nothing at /share/n/"),
        ("/", "9", "has nothing at /"),
    ],
)
def test_a_path_without_a_figure_is_refused(tmp_path, path, n, finding):
    with pytest.raises(InputError, match=f"row 'a judge': .*{finding}"):
        render(page(tmp_path, {"": path}, n=n), tmp_path)


def test_stale_rows_are_left_out_with_their_section_and_listed(tmp_path):
    rows = page(tmp_path, {"": "/share"}, stale=True)
    assert render(rows, tmp_path) == "# Page\n\n- **any**: a share\n\nThe end.\n"
    assert stale_rows(rows) == "a judge (2026-11-27): `make lab`, 5.0 min\n"
