"""Score distributions as drawings."""

import re
import xml.etree.ElementTree as ET

import pytest

from judgelm.parsing.distribution import score_lines
from judgelm.records import GradeDistribution, PairDistribution
from judgelm.serving.web.charts import grade_bars, heat_map, score_bars

TEN = score_lines((1, 10), 1).values


def distribution(*likeliest):
    return PairDistribution(expected=(5.0, 5.0), first_better=0.5, tie=0.0, unassigned=0.0, likeliest=likeliest)


def drawing(html):
    """The SVG, parsed: it must be well formed."""
    return ET.fromstring(re.search("<svg.*?</svg>", html)[0])


def cells(html):
    return [one for one in drawing(html).iter("{http://www.w3.org/2000/svg}rect") if one.get("class") == "jl-heat"]


@pytest.mark.parametrize(("order", "x"), [((0, 1), 52 + 7 * 30), ((1, 0), 52 + 5 * 30)])
def test_a_cell_stands_at_its_scores_in_sample_order(order, x):
    # shown 8 : 6; of the order exchanged that is 6 for answer 1, in the sixth column (30 wide, behind a margin of 52)
    [cell] = cells(heat_map(distribution((8.0, 6.0, 1.0)), order, TEN))
    assert float(cell.get("x")) == x
    assert float(cell.get("y")) == 10 + 300 - (6 if order == (0, 1) else 8) * 30


def test_the_likeliest_is_the_fullest_and_has_its_number():
    html = heat_map(distribution((8.0, 6.0, 0.75), (7.0, 7.0, 0.25)), (0, 1), TEN)
    assert [float(cell.get("fill-opacity")) for cell in cells(html)] == pytest.approx([1.0, 0.08 + 0.92 / 3], abs=1e-3)
    assert ">75</text>" in html
    assert "Likeliest: 8 for answer 1 and 6 for answer 2, 75.0 %." in drawing(html).get("aria-label")
    assert "<td>8</td><td>6</td><td>75.0 %</td>" in html


def test_axes_are_named():
    html = heat_map(distribution((8.0, 6.0, 1.0)), (0, 1), TEN)
    assert "score of answer 1</text>" in html
    assert "score of answer 2</text>" in html
    assert [f">{score}</text>" in html for score in range(1, 11)] == [True] * 10


def test_a_fine_scale_names_some_of_its_scores():
    fine = score_lines((1, 10), 0.1).values
    html = heat_map(distribution((8.1, 6.0, 1.0)), (0, 1), fine)
    assert html.count("jl-tick") <= 24
    assert "answer 1: 8.1, answer 2: 6" in html


def test_nothing_assigned_is_drawn_empty():
    assert "No score line has any." in heat_map(distribution(), (0, 1), TEN)


def test_bars_stand_for_each_score():
    html = grade_bars(GradeDistribution(expected=7.0, unassigned=0.0, likeliest=((7.0, 0.8), (6.0, 0.2))), TEN)
    tall = {cell[0].text: float(cell.get("height")) for cell in cells(html)}
    assert len(tall) == 10
    assert tall["7: 80.0 %"] == pytest.approx(4 * tall["6: 20.0 %"], abs=0.2)
    assert tall["1: 0.0 %"] == 0


def test_scores_are_measured_on_the_judges_scale():
    assert "width:50.0%" in score_bars([5.5], (1, 10))
