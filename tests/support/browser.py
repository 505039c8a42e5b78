"""A page, of a running server or of a file, in headless Chromium, and everything that must not happen there."""

import contextlib
import socket
import threading
import time
from dataclasses import dataclass, field
from urllib.parse import urlparse

import uvicorn
from playwright.sync_api import Page, sync_playwright

from tests.support.headless import CHROMIUM

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]


@dataclass
class Watched:
    """A page, its requests, the console's errors, the script errors, and requests to anybody but its own server."""

    page: Page
    host: str
    errors: list[str] = field(default_factory=list)
    requests: list[str] = field(default_factory=list)
    outside: list[str] = field(default_factory=list)

    def __post_init__(self):
        self.page.on("console", lambda message: self.errors.append(message.text) if message.type == "error" else None)
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", lambda request: self._look(request.url))

    def _look(self, url):
        self.requests.append(url)
        place = urlparse(url)
        if place.scheme not in ("data", "blob") and place.netloc != self.host:
            self.outside.append(url)

    def is_clean(self):
        assert self.errors == []
        assert self.outside == []
        assert self.page.evaluate("window.taken ?? null") is None, "a script from a text ran"


@contextlib.contextmanager
def served(app):
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        server = uvicorn.Server(uvicorn.Config(app, log_level="error", timeout_graceful_shutdown=1))
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        until = time.monotonic() + 30
        while not server.started and time.monotonic() < until:
            time.sleep(0.02)
        assert server.started, "the page's server did not start"
        yield f"http://127.0.0.1:{bound.getsockname()[1]}"
        server.should_exit = True
        thread.join(timeout=10)


@contextlib.contextmanager
def chromium():
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


@contextlib.contextmanager
def watched(browser, url, *, width=1200, height=900, dark=False, ready="#jl-tabs"):
    """The page at an address in a window of its own, when what `ready` selects is there."""
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if dark else "light", accept_downloads=True
    )
    page = context.new_page()
    page.set_default_timeout(60_000)
    found = Watched(page, urlparse(url).netloc)
    page.goto(url)
    page.locator(ready).wait_for()
    yield found
    context.close()
