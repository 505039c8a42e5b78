"""The report in a real browser: its one script runs under its own policy, and nobody else's does."""

import shutil
import subprocess

import pytest

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-sync",
    "--disable-background-networking",
    "--disable-component-update",
    "--dump-dom",
]

pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on the PATH")]


def dom(html, folder):
    page = folder / "report.html"
    page.write_text(html, encoding="utf-8")
    command = [CHROMIUM, *FLAGS, f"--user-data-dir={folder / 'profile'}", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout


def test_list_controls_work(run, tmp_path):
    # without the script the controls stay hidden and the status empty
    assert "2 of 2 listed pairs shown" in dom(run.html(), tmp_path)


def test_foreign_script_is_refused(run, tmp_path):
    html = run.html().replace("</body>", "<script>document.title = 'taken over'</script></body>")
    assert "<title>taken over" not in dom(html, tmp_path)
