"""Score distributions as drawings."""

import re
import xml.etree.ElementTree as ET

import pytest

from judgelm.parsing.scores import score_lines
from judgelm.records import GradeDistribution, PairDistribution
from judgelm.serving.web.charts import grade_bars, heat_map, score_bars

TEN = score_lines((1, 10), 1).values


def distribution(*likeliest):
    return PairDistribution(expected=(5.0, 5.0), first_better=0.5, tie=0.0, unassigned=0.0, likeliest=likeliest)


def drawing(html):
    """The SVG, parsed: it must be well formed."""
    return ET.fromstring(re.search("<svg.*?</svg>", html, re.DOTALL)[0])


def texts(html):
    return [element.text.strip() for element in drawing(html).iter("text")]


def shape(element):
    """Left, top, width and height of a drawn rectangle."""
    points = [tuple(map(float, point)) for point in re.findall(r"[ML] ([-\d.]+) ([-\d.]+)", element.get("d"))]
    xs, ys = [x for x, _ in points], [y for _, y in points]
    return min(xs), min(ys), max(xs) - min(xs), max(ys) - min(ys)


def rectangles(html, fill):
    paths = [e for e in drawing(html).iter("path") if f"fill: {fill}" in (e.get("style") or "") and e.get("d")]
    return [shape(element) for element in paths]


FULLEST = "#08306b"  # the dark end of the shades


@pytest.mark.parametrize(("order", "scores"), [((0, 1), (8, 6)), ((1, 0), (6, 8))])
def test_a_cell_is_at_its_scores_in_sample_order(order, scores):
    # shown 8 : 6; in the swapped order that is 6 for answer 1. The axes have a column and a row for each of 1 to 10
    html = heat_map(distribution((8.0, 6.0, 1.0)), order, TEN)
    [cell] = rectangles(html, FULLEST)
    left, top, width, height = next(shape(e) for e in drawing(html).iter("path") if "fill: #ffffff" in e.get("style")
                                    and shape(e)[2] < 0.9 * float(drawing(html).get("width")[:-2]))  # fmt: skip
    column, row = (cell[0] - left) / (width / 10), (top + height - cell[1] - cell[3]) / (height / 10)
    assert (round(column) + 1, round(row) + 1) == scores


def test_the_likeliest_cell_is_darkest_and_has_its_number():
    html = heat_map(distribution((8.0, 6.0, 0.75), (7.0, 7.0, 0.25)), (0, 1), TEN)
    assert len(rectangles(html, FULLEST)) == 1
    assert {"75", "25", "n = 2 score lines", "Probability (%)"} <= set(texts(html))
    assert "Most likely: 8 for answer 1 and 6 for answer 2 (75.0 %)." in drawing(html).get("aria-label")
    assert "<td>8</td><td>6</td><td>75.0 %</td>" in html


def test_axes_are_named():
    words = texts(heat_map(distribution((8.0, 6.0, 1.0)), (0, 1), TEN))
    assert {"Score of answer 1 (points)", "Score of answer 2 (points)"} <= set(words)
    assert all(words.count(str(score)) >= 2 for score in range(1, 10))


def test_a_fine_scale_has_few_ticks():
    fine = score_lines((1, 10), 0.1).values
    html = heat_map(distribution((8.1, 6.0, 1.0)), (0, 1), fine)
    assert len(texts(html)) <= 24 + 20  # the ticks of both axes; names, and the ticks of the colours
    assert "<td>8.1</td><td>6</td><td>100.0 %</td>" in html


def test_an_empty_distribution_is_drawn():
    assert "All score lines have probability 0." in heat_map(distribution(), (0, 1), TEN)


def test_each_score_has_a_bar():
    html = grade_bars(GradeDistribution(expected=7.0, unassigned=0.0, likeliest=((7.0, 0.8), (6.0, 0.2))), TEN)
    tall = [height for *_, height in rectangles(html, "#0072b2")]
    assert len(tall) == 10  # 1 to 10, of which 6 and 7 have any probability
    assert tall[6] == pytest.approx(4 * tall[5], rel=1e-3)
    assert tall[0] == 0
    assert {"80", "20", "n = 2 scores", "Score (points)", "Probability (%)"} <= set(texts(html))


def test_scores_are_measured_on_the_judges_scale():
    assert "width:50.0%" in score_bars([5.5], (1, 10))
