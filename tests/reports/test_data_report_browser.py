"""The data set's report in a real browser: no script runs, and no page is wider than its window."""

import json
import re

import pytest

from benchmarks.synthetic.pairs import generate
from judgelm.data.builder.options import build_options
from judgelm.data.builder.pipeline import build
from judgelm.reports.data_set import render_data_report
from tests.support.headless import CHROMIUM, dom

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH")]

TAKE_OVER = "<script>document.title = 'taken over'</script>"
MEASURE = "<script>document.title = `${document.documentElement.scrollWidth} of ${innerWidth}`</script>"


@pytest.fixture(scope="module")
def html(tmp_path_factory):
    """A set whose ids, models and texts are hostile and long."""
    folder = tmp_path_factory.mktemp("built")
    long = "x" * 300
    with (folder / "rows.jsonl").open("w", encoding="utf-8") as file:
        for row in generate(60, seed=0, split="train"):
            row |= {"question_id": f"{row['question_id']}{long}", "answer1_model_id": f"{long}{TAKE_OVER}"}
            file.write(json.dumps(row | {"answer2_body": f"{row['answer2_body']} {TAKE_OVER}{long}"}) + "\n")
    source = {"path": str(folder / "rows.jsonl"), "name": f"source {TAKE_OVER}{long}"}
    options = build_options({"inputs": [source], "out": str(folder / "out"), "subsets": (10, 1000)}, "test")
    return render_data_report(build(options), options, title=f"Set {TAKE_OVER}")


def test_no_script_runs(html, tmp_path):
    assert "<title>taken over" not in dom(html.replace("</body>", f"{TAKE_OVER}</body>"), tmp_path)


def test_everything_is_there(html, tmp_path):
    found = dom(html, tmp_path)
    assert found.count("<section") == html.count("<section") == 12
    assert found.count('<details class="pair"') == 20
    assert "<mark>" in found


@pytest.mark.parametrize("width", [500, 1200])
def test_nothing_is_wider_than_the_window(html, tmp_path, width):
    measured = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", html)
    title = re.search(r"<title>(\d+) of (\d+)", dom(measured.replace("</body>", f"{MEASURE}</body>"), tmp_path, width))
    assert int(title[1]) <= int(title[2])
