"""Reports of runs and of studies as people see them: legible, printable, narrow, sorted by mouse and by keyboard."""

import contextlib
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from judgelm.metrics.resampling import Estimate
from judgelm.records import Judgment, Label, PairVerdict, Sample, Shown, Unparsed
from judgelm.reports.html import render_report
from judgelm.studies.evaluation import EvaluationOptions, evaluate
from judgelm.studies.result import Column, Forest, ForestRow, HeatMap, StudyResult, Table
from tests.support.headless import CHROMIUM
from tests.support.studies import render_study

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH")]

HOSTILE = (
    "</script></style></textarea><script>window.taken = 1</script><img src=x onerror='window.taken = 1'>"
    "<svg onload='window.taken = 1'><a href='javascript:window.taken = 1'>\u202e https://example.com/pixel.png"
)
LONG = "y" * 400
PAGES = ("run", "study")
WINDOWS = pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])

CONTRAST = """() => {
  const channels = (text) => text.match(/[0-9.]+/g).map(Number);
  const light = (rgb) => {
    const [r, g, b] = rgb.slice(0, 3).map((c) => c / 255).map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ground = (element) => {
    for (let one = element; one; one = one.parentElement) {
      const found = channels(getComputedStyle(one).backgroundColor);
      if (found.length === 3 || found[3] === 1) return found;
    }
    return [255, 255, 255];
  };
  const seen = Array.from(document.body.querySelectorAll(":not(svg, svg *, script, :disabled)"));
  return seen
    .filter((one) => one.checkVisibility() && Array.from(one.childNodes).some((n) => n.nodeType === 3 && n.data.trim()))
    .map((one) => {
      const [ink, behind] = [light(channels(getComputedStyle(one).color)), light(ground(one))];
      const ratio = (Math.max(ink, behind) + 0.05) / (Math.min(ink, behind) + 0.05);
      return [ratio, `${one.tagName}.${one.className}: ${one.textContent.slice(0, 30)}`];
    })
    .filter(([ratio]) => ratio < 4.5);
}"""  # noqa: E501


def judgment(number):
    """The first is better by 0, 1, ... points, in another order than the file's; one has no scores."""
    margin = number * 7 % 59 / 10
    scores = (9.0, 9.0 - margin)
    shown = (Shown(order=(0, 1), text=f"9 {9 - margin:g}\n{HOSTILE}", scores=scores),)
    result = Judgment(
        sample_id=f"pair {number}", mode="pair", verdict=PairVerdict(winner=1), shown=shown, scores=scores,
        probability=None if number % 3 else 0.5 + margin / 20,
    )  # fmt: skip
    if number != 58:
        return result
    failure = Unparsed("off_grammar", HOSTILE, f"expected numbers {HOSTILE}")
    return replace(result, verdict=None, scores=None, failure=failure, shown=())


@pytest.fixture(scope="module")
def run_page():
    """59 pairs whose label is the second answer, and one that is right."""
    judgments = {f"pair {number}": judgment(number) for number in range(60)}
    labels = {key: Label(sample_id=key, winner=1 if key == "pair 59" else 2) for key in judgments}
    samples = {
        key: Sample(
            id=key, question=f"{LONG if key == 'pair 3' else 'Why'} {HOSTILE}", answers=(HOSTILE, LONG + HOSTILE),
            reference=HOSTILE,
        )
        for key in judgments
    }  # fmt: skip
    groups = {f"kind {HOSTILE}": {key: f"{LONG} {HOSTILE}" for key in judgments}}
    return render_report(
        evaluate(judgments, labels, groups=groups, options=EvaluationOptions()),
        judgments=judgments, samples=samples, labels=labels, title=f"Run {HOSTILE}",
        manifest={"model": f"judge {HOSTILE}", "note": LONG + HOSTILE},
    )  # fmt: skip


@pytest.fixture(scope="module")
def study_page():
    """A table longer than a page of it, a wide one, and figures of two kinds."""
    columns = (
        Column(key="judge", heading=f"Judge {HOSTILE}"),
        Column(key="share", heading="Share", kind="share"),
        Column(key="n", heading="n", kind="count"),
    )
    shares = [None if place == 5 else place * 7 % 60 / 60 for place in range(60)]
    rows = tuple((f"judge {place} {HOSTILE}", share, place) for place, share in enumerate(shares))
    many = Table(name="many", title=f"Many {HOSTILE}", columns=columns, rows=rows, note=LONG)
    wide = Table(
        name="wide", title="Wide", rows=((LONG, *[0.123456] * 14),),
        columns=tuple(Column(key=f"c{place}", heading=f"Column {place}", kind="number") for place in range(15)),
    )  # fmt: skip
    share = Estimate(value=0.1, low=-0.1, high=0.3, n=10)
    figures = (
        Forest(name="forest", title=f"Forest {HOSTILE}", x_label="x", rows=(ForestRow(label=HOSTILE, estimate=share),)),
        HeatMap(
            name="heat", title="Heat", x_label="model", y_label="judge", value_label="score", rows=("a", HOSTILE),
            columns=("a", "b"), values=((0.1, 0.2), (0.3, None)), marked=frozenset({(0, 0)}),
        ),
    )  # fmt: skip
    return render_study(
        StudyResult(
            study="demo", title=f"Study {HOSTILE}", protocol=LONG, findings=(HOSTILE,), warnings=(LONG,),
            counts={"rows": 60}, tables=(many, wide), figures=figures,
        )
    )  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    pytest.importorskip("playwright", reason="playwright is not installed: pip install -e '.[dev]'")
    from tests.support.browser import chromium

    with chromium() as result:
        yield result


@pytest.fixture
def opened(browser, tmp_path, run_page, study_page):
    """Opens a page from its file in a window of its own, and after the test asks whether all stayed clean."""
    from tests.support.browser import watched

    with contextlib.ExitStack() as windows:
        seen = []

        def open_page(name, **window):
            path = tmp_path / f"{name}.html"
            path.write_text({"run": run_page, "study": study_page}[name], encoding="utf-8")
            seen.append(windows.enter_context(watched(browser, path.as_uri(), ready="main", **window)))
            return seen[-1].page

        yield open_page
        for one in seen:
            one.is_clean()
            assert one.requests == [one.page.url]


def unfold(page):
    page.evaluate("document.querySelectorAll('details').forEach((one) => one.open = true)")


@WINDOWS
@pytest.mark.parametrize("name", PAGES)
def test_everything_is_legible(opened, name, dark):
    page = opened(name, dark=dark)
    unfold(page)
    assert page.evaluate(CONTRAST) == []
    ground = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert (sum(map(int, re.findall(r"\d+", ground))) < 3 * 128) == dark


@pytest.mark.parametrize("name", PAGES)
def test_nothing_is_wider_than_a_telephone(opened, name):
    page = opened(name, width=360, dark=True)
    unfold(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360


@pytest.mark.parametrize("name", PAGES)
def test_print_is_dark_on_white_without_controls(opened, name):
    page = opened(name, dark=True)
    page.emulate_media(media="print")
    assert page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    assert page.evaluate("getComputedStyle(document.body).color") == "rgb(0, 0, 0)"
    for control in ("nav", ".controls input", ".pages", ".controls button"):
        assert not any(one.is_visible() for one in page.locator(control).all()), control
    assert page.locator("table.pairs").is_visible() is False
    assert page.get_by_text("The list of pairs is not part of").count() == (name == "run")
    paper = page.pdf(format="A4")
    assert paper.startswith(b"%PDF")
    assert len(re.findall(rb"/Type\s*/Page\b", paper)) >= 2


def column(page, place):
    """The cells of a sorted list's column that are shown, from the top."""
    rows = "table.grouped tbody tr:first-child" if page.locator("table.grouped").count() else "#table-many tbody tr"
    return page.locator(f"{rows} > td:nth-child({place})").all_inner_texts()


@pytest.mark.parametrize(
    ("name", "place", "least", "most"), [("run", 4, "9\xa0:\xa09", "9\xa0:\xa03.2"), ("study", 2, "0.0", "98.3")]
)
def test_a_column_is_sorted_by_keyboard_up_down_and_back(opened, name, place, least, most):
    page = opened(name)
    table = page.locator("table.sortable").first
    head = table.locator("th").nth(place - 1)
    given = column(page, place)
    head.locator("button").focus()
    for way, first in (("ascending", least), ("descending", most)):
        page.keyboard.press("Enter")
        assert head.get_attribute("aria-sort") == way
        assert table.locator("[aria-sort]").count() == 1
        assert column(page, place)[0].startswith(first)
        assert head.locator("button").evaluate("(one) => one === document.activeElement")
    page.keyboard.press("Space")
    assert head.get_attribute("aria-sort") is None
    assert column(page, place) == given


def test_the_list_of_pairs_is_sorted_by_number_with_the_unknown_last(opened):
    page = opened("run")
    page.locator("th", has_text="P(first better)").locator("button").click()
    shown = [float(one) for one in column(page, 5) if one != "–"]
    assert shown == sorted(shown)
    assert len(shown) == math.ceil(59 / 3)
    page.get_by_role("button", name="Later").click()
    assert set(column(page, 5)) == {"–"}
    assert page.get_by_role("status").inner_text() == "51 to 59 of 59 listed pairs"


def test_the_list_of_pairs_is_filtered_by_kind_and_text_and_opened_by_keyboard(opened):
    page = opened("run")
    page.get_by_role("button", name="failures").click()
    assert column(page, 1) == ["pair 58"]
    page.get_by_role("button", name="all", exact=True).click()
    page.get_by_role("searchbox").fill("YYY HOSTILE nothing of this")
    assert page.get_by_role("status").inner_text() == "0 of 59 listed pairs"
    page.get_by_role("searchbox").fill("Why </SCRIPT>")
    assert page.get_by_role("status").inner_text() == "1 to 50 of 58 of 59 listed pairs"
    page.locator("summary").first.focus()
    page.keyboard.press("Enter")
    assert page.get_by_text("Answer 1", exact=True).first.is_visible()


@pytest.mark.parametrize("name", PAGES)
def test_without_scripts_everything_is_listed(browser, tmp_path, request, name):
    path = Path(tmp_path, "page.html")
    path.write_text(request.getfixturevalue(f"{name}_page"), encoding="utf-8")
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(path.as_uri())
    assert len(column(page, 1)) == {"run": 59, "study": 60}[name]
    assert page.locator(".controls").first.is_visible() is False
    context.close()
