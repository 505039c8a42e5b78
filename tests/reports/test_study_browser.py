"""A study's page in a real browser: its one script pages, sorts and filters, and nobody else's runs."""

import re

import pytest

from judgelm.metrics.resampling import Estimate
from judgelm.studies.result import Column, Forest, ForestRow, StudyResult, Table
from tests.support.headless import CHROMIUM, dom
from tests.support.studies import render_study

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH")]

TAKE_OVER = "<script>document.title = 'taken over'</script>"
LONG = "x" * 300


@pytest.fixture(scope="module")
def html():
    """A table of 120 rows, the last of which is undefined, under hostile and long names."""
    rows = tuple((f"pair {place}{LONG if place == 7 else ''}", (place * 7 % 120) / 120, place) for place in range(119))
    table = Table(
        name="items",
        title=f"Items {TAKE_OVER} {LONG}",
        columns=(
            Column(key="id", heading=f"Pair {TAKE_OVER}"),
            Column(key="share", heading="Share", kind="share"),
            Column(key="n", heading="Number", kind="count"),
        ),
        rows=(*rows, ("undefined one", None, 119)),
    )
    found = Estimate(value=0.1, low=0.0, high=0.2, n=10)
    figure = Forest(name="forest", title=f"F {TAKE_OVER}", x_label="x", rows=(ForestRow(label=LONG, estimate=found),))
    return render_study(
        StudyResult(
            study="demo", title=f"A study {TAKE_OVER} {LONG}", protocol=LONG, findings=(LONG,), warnings=(LONG,),
            counts={"rows": 120}, tables=(table,), figures=(figure,),
        )
    )  # fmt: skip


def acted(html, folder, script, width=1200):
    """The document after a script of the test's own, for which the page's policy is taken off."""
    open_page = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", html)
    return dom(open_page.replace("</body>", f"<script>{script}</script></body>"), folder, width)


def first_cells(document):
    body = document[document.index("<tbody>") : document.index("</tbody>")]
    return re.findall(r"<tr><td><bdi>(pair \d+|undefined one)", body)


def test_no_other_script_runs(html, tmp_path):
    found = dom(html.replace("</body>", f"{TAKE_OVER}</body>"), tmp_path)
    assert "<title>taken over" not in found
    assert "1 to 50 of 120 rows" in found  # while its own did


def test_later_shows_the_next_rows(html, tmp_path):
    found = acted(html, tmp_path, "document.querySelector('.on').click()")
    assert "51 to 100 of 120 rows" in found
    assert first_cells(found)[0] == "pair 50"


@pytest.mark.parametrize(("clicks", "first"), [(1, "pair 0"), (2, "pair 17")])
def test_sorting_by_number_with_the_undefined_last(html, tmp_path, clicks, first):
    # 17 * 7 = 119 is the largest, 0 the smallest
    click = "document.querySelectorAll('thead button')[1].click();" * clicks
    found = acted(html, tmp_path, click)
    assert first_cells(found)[0] == first
    assert "undefined one" in acted(html, tmp_path, click + "document.querySelector('.on').click();" * 2)


def test_sorting_texts_by_the_numbers_in_them(html, tmp_path):
    found = acted(html, tmp_path, "document.querySelectorAll('thead button')[0].click()")
    assert first_cells(found)[:3] == ["pair 0", "pair 1", "pair 2"]
    assert first_cells(found)[10] == "pair 10"


def test_filtering(html, tmp_path):
    search = "const s = document.querySelector('input[type=search]'); s.value = 'PAIR 11';"
    found = acted(html, tmp_path, f"{search} s.dispatchEvent(new Event('input'))")
    # 11 and 110 to 118
    assert "10 of 120 rows" in found
    assert len(first_cells(found)) == 10


@pytest.mark.parametrize("width", [500, 1200])
def test_nothing_is_wider_than_the_window(html, tmp_path, width):
    measure = "document.title = `${document.documentElement.scrollWidth} of ${innerWidth}`"
    title = re.search(r"<title>(\d+) of (\d+)", acted(html, tmp_path, measure, width))
    assert int(title[1]) <= int(title[2])
