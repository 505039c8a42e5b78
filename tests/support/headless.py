"""A page as headless Chromium sees it, for the browser tests."""

import shutil
import subprocess

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


def dom(html, folder, width=1200):
    """The document after the browser has read it, in a window of that width in pixels."""
    page = folder / "report.html"
    page.write_text(html, encoding="utf-8")
    command = [CHROMIUM, *FLAGS, f"--window-size={width},900", f"--user-data-dir={folder / 'profile'}", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
