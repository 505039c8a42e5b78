"""A Chromium for the session, and pages in it."""

import contextlib

import pytest

from tests.support.headless import CHROMIUM


@pytest.fixture(autouse=True)
def state_folder(tmp_path, monkeypatch):
    """Keep labels of uploaded runs in the test's folder."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture(scope="session")
def chromium_browser():
    if CHROMIUM is None:
        pytest.skip("no Chromium on the PATH")
    pytest.importorskip("playwright", reason="playwright is not installed: pip install -e '.[dev]'")
    from tests.support.browser import chromium

    with chromium() as browser:
        yield browser


@pytest.fixture(scope="session")
def serve_judge():
    """Serve the page of a judge with runs and return its address."""
    from judgelm.runs.engine_worker import EngineWorker
    from judgelm.serving.web.page import create_page
    from judgelm.serving.web.web_app import web_app
    from tests.support.browser import served

    with contextlib.ExitStack() as opened:

        def serve(judge, runs=(), **options):
            worker = EngineWorker(judge.engine)
            opened.callback(worker.close)
            return opened.enter_context(served(web_app(create_page(judge, worker, runs), **options)))

        yield serve


@pytest.fixture
def page_at(chromium_browser):
    """Open an address in a window that must have no errors at the end of the test."""
    from tests.support.browser import watched

    with contextlib.ExitStack() as opened:
        seen = []

        def open_page(url, **window):
            seen.append(opened.enter_context(watched(chromium_browser, url, **window)))
            return seen[-1].page

        yield open_page
        for window in seen:
            window.is_clean()
