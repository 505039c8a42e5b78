"""The report in a real browser: its one script runs under its own policy, and nobody else's does."""

import pytest

from tests.support.headless import CHROMIUM, dom

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH")]


def test_list_controls_work(run, tmp_path):
    # without the script the controls stay hidden and the status empty
    assert ">2 listed pairs</small>" in dom(run.html(), tmp_path)


def test_foreign_script_is_refused(run, tmp_path):
    html = run.html().replace("</body>", "<script>document.title = 'taken over'</script></body>")
    assert "<title>taken over" not in dom(html, tmp_path)
