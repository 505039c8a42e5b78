import xml.etree.ElementTree as ET
from dataclasses import replace

import pytest

from judgelm.metrics.resampling import Estimate
from judgelm.reports.plots import MAX_DRAWN_ROWS, draw
from judgelm.studies.result import Forest, ForestRow, HeatMap, Lines, Series

NASTY = '<script>alert(1)</script> "&" $x^2$ \x00\ud800 模型'


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
ALL = (LINES, FOREST, HEAT)


def texts(svg):
    """All text of an SVG document, which must be well-formed XML."""
    return [part.strip() for part in ET.fromstring(svg).itertext() if part.strip()]


def rests(figure, name):
    return next(text for text in texts(draw(figure).svg) if text.startswith(name))


@pytest.mark.parametrize("figure", ALL, ids=lambda one: one.name)
def test_every_kind_is_drawn_as_svg_and_png_with_its_axes_named(figure):
    drawn = draw(figure)
    result = texts(drawn.svg)
    assert figure.title in result
    assert all(any(label in text for text in result) for label in (figure.x_label, getattr(figure, "y_label", "")))
    assert drawn.png.startswith(b"\x89PNG")
    assert drawn.inline.startswith(f'<svg role="img" aria-label="{figure.title}"')


@pytest.mark.parametrize("figure", ALL, ids=lambda one: one.name)
def test_the_same_data_gives_the_same_bytes(figure):
    assert draw(figure) == draw(figure)


def test_n_stands_in_the_figure():
    assert rests(LINES, "first") == "first (n = 30 to 1,200 each)"
    assert rests(LINES, "second") == "second"  # plain numbers have none
    forest = texts(draw(FOREST).svg)
    assert {"0.123 (0.023 to 0.223), n = 63,222", "whiskers: 90 % and 95 % interval"} <= set(forest)
    assert {"–", "0.25", "-0.75", "1,500"} <= set(texts(draw(HEAT).svg))


@pytest.mark.parametrize(
    "figure",
    [
        replace(LINES, series=(replace(LINES.series[1], name=NASTY, labels=(NASTY, NASTY)),), title=NASTY),
        replace(FOREST, rows=(replace(FOREST.rows[0], label=NASTY, group=NASTY), FOREST.rows[1])),
        replace(HEAT, rows=(NASTY, "b"), value_label=NASTY),
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
