"""Take the pictures of the documentation in headless Chromium: `judgelm web` and a report.

    python docs/screenshots.py [JUDGE]

Writes docs/images/*.png; JUDGE is the small judge unless given. It judges the everyday pairs in both orders and in
one, opens the page with both runs, and labels the first items blind as their file does. The report's judge is
qwen-1.5b. Needs both judges, the extras `web`, `report`, and `dev`, and Chromium (`tests/install_chromium.sh`).
"""

import json
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Locator, Page, sync_playwright

from judgelm.package import EVERYDAY_PAIRS

IMAGES = Path(__file__).parent / "images"
MAX_BYTES = 150_000
COLOURS = 128
LABELS = 20
START_S = 120
REPORT_JUDGE = "qwen-1.5b"
REPORT_PAIRS = 4
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
KEYS = {1: "1", 2: "2", "tie": "0"}
JUDGELM = [sys.executable, "-m", "judgelm"]
BATCH = [sys.executable, "-c", "from judgelm.cli.batch import main; main()"]


def judge_pairs(judge: list[str], folder: Path) -> list[str]:
    """Judge the everyday pairs in both orders and in one; returns the options that open the runs."""
    pairs = folder / "pairs.jsonl"
    shutil.copyfile(EVERYDAY_PAIRS, pairs)
    model = ["--model", judge[0]]
    options = ["--pairs", pairs.name]  # relative, since the page names the file of the labels
    for name, orders in (("both-orders", ["--both-orders"]), ("one-order", [])):
        run = folder / f"{name}.jsonl"
        subprocess.run([*BATCH, pairs, "-o", run, *model, *orders, "--distribution", "--quiet"], check=True)
        options += ["--run", run.name]
    return options


@contextmanager
def served_page(judge: list[str], options: list[str], folder: Path) -> Iterator[str]:
    """`judgelm web` at a free port; gives its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = subprocess.Popen([*JUDGELM, "web", *judge, *options, "--port", str(port), "--quiet"], cwd=folder)
    try:
        until = time.monotonic() + START_S
        while socket.socket().connect_ex(("127.0.0.1", port)) != 0:
            if process.poll() is not None or time.monotonic() > until:
                raise SystemExit("judgelm web did not start; see what it printed")
            time.sleep(0.2)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait()


@contextmanager
def opened(browser: Browser, url: str, tab: str, *, width: int = 1100, dark: bool = False) -> Iterator[Page]:
    """A tab of the page in a new window, `width` pixels wide."""
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme="dark" if dark else "light")
    page = context.new_page()
    page.goto(url)
    page.get_by_role("tab", name=tab).click()
    page.locator("#browse-item .jl-text").first.wait_for(state="attached")  # the runs are open
    yield page
    context.close()


def section(page: Page, top: Locator, bottom: Locator, margin: int = 12) -> Image.Image:
    """The page from the top of an element to the end of another."""
    page.evaluate("scrollTo(0, 0)")
    page.wait_for_timeout(800)  # focus rings and transitions end
    first, last = top.bounding_box(), bottom.bounding_box()
    assert first is not None, "the element at the top is visible"
    assert last is not None, "the element at the bottom is visible"
    picture = Image.open(BytesIO(page.screenshot(full_page=True)))
    upper = max(0, int(first["y"]) - margin)
    lower = min(picture.height, int(last["y"] + last["height"]) + margin)
    return picture.crop((0, upper, picture.width, lower)).convert("RGB")


def save(page: Page, name: str, *, top: Locator, bottom: Locator, margin: int = 12) -> None:
    """Save a section of the web page."""
    write(section(page, top, bottom, margin), f"web-{name}")


def write(picture: Image.Image, name: str) -> None:
    """Save a picture with few colours; refuse a large file."""
    path = IMAGES / f"{name}.png"
    picture.quantize(COLOURS).save(path, optimize=True)
    size = path.stat().st_size
    sys.stdout.write(f"{path.name}: {picture.width} x {picture.height} pixels, {size:,} bytes\n")
    if size > MAX_BYTES:
        raise SystemExit(f"{path}: {size:,} bytes, more than {MAX_BYTES:,}; show less of the page")


def judge_example(page: Page) -> None:
    """Judge the example that the page opens with."""
    page.locator("#pair-judge").click()
    page.locator("#pair-talk").wait_for()


def label_blind(page: Page, count: int) -> None:
    """Label the first items by keyboard with the judgments hidden, as the pairs' file does."""
    rows = [json.loads(line) for line in EVERYDAY_PAIRS.read_text(encoding="utf-8").splitlines()]
    page.locator("#browse-judgment").get_by_text("The judgment is hidden").wait_for()
    page.locator("#browse-items input").first.focus()
    for index, row in enumerate(rows[:count], 1):
        page.keyboard.press(KEYS[row["winner"]])
        page.locator("#browse-place").get_by_text(f"Item {index + 1} of").wait_for()


def take_all(browser: Browser, url: str) -> None:
    """All pictures; labels last, since the page keeps them."""
    for name, window in {"pair": {}, "pair-dark": {"dark": True}, "pair-360": {"width": 360}}.items():
        with opened(browser, url, "Pair", **window) as page:
            judge_example(page)
            shown = page.locator("#pair-judgment")
            save(page, name, top=page.locator("#jl-head"), bottom=shown.locator(".jl-panel").first)
            if name == "pair":
                save(page, "orders", top=shown.locator(".jl-columns"), bottom=shown.locator(".jl-columns"), margin=4)
    with opened(browser, url, "Browse and label") as page:
        page.locator("#browse-blind input").uncheck()
        page.locator("#browse-judgment .jl-verdict").wait_for()
        findings = page.locator("#browse-findings .jl-panel")
        save(page, "compare", top=page.locator("#browse-place"), bottom=findings.last)
    with opened(browser, url, "Browse and label") as page:
        label_blind(page, LABELS)
        save(page, "label", top=page.locator("#browse-filters"), bottom=page.locator("#browse-judgment"))
        save(page, "agreement", top=findings_of(page).first, bottom=findings_of(page).last)
    for name, window in {"label-dark": {"dark": True}, "label-360": {"width": 360}}.items():
        with opened(browser, url, "Browse and label", **window) as page:
            page.locator("#browse-progress").get_by_text(f"{LABELS} labels").wait_for()
            last = page.locator("#browse-judgment") if name == "label-360" else findings_of(page).first
            save(page, name, top=page.locator("#browse-place"), bottom=last)


def take_report(browser: Browser, folder: Path) -> None:
    """The report's summary with its table of verdicts, and below it the first pairs to read."""
    run, pairs, report = folder / "report.jsonl", folder / "pairs.jsonl", folder / "report.html"
    subprocess.run([*BATCH, pairs, "-o", run, "--model", REPORT_JUDGE, "--distribution", "--quiet"], check=True)
    title = ["--title", f"{REPORT_JUDGE} on 60 example pairs"]
    subprocess.run([*JUDGELM, "report", run, "--labels", pairs, "-o", report, *title, "--quiet"], check=True)
    page = browser.new_page(viewport={"width": 1000, "height": 800})
    page.goto(report.as_uri())
    upper = section(page, page.locator("h1"), page.locator("#agreement"))
    lower = section(page, page.locator("#pairs"), page.locator("#pairs tbody").nth(REPORT_PAIRS - 1))
    picture = Image.new("RGB", (upper.width, upper.height + lower.height))
    picture.paste(upper, (0, 0))
    picture.paste(lower, (0, upper.height))
    write(picture, "report")
    page.close()


def findings_of(page: Page) -> Locator:
    """The cards of the agreement with the labels and with the other judge."""
    return page.locator("#browse-findings .jl-panel")


def main() -> None:
    """Judge, serve, and take the pictures."""
    judge = [str(Path(each).resolve()) if Path(each).is_dir() else each for each in sys.argv[1:2] or ["small-judge"]]
    chromium = shutil.which("chromium") or shutil.which("google-chrome")
    with tempfile.TemporaryDirectory() as name, sync_playwright() as playwright:
        options = judge_pairs(judge, Path(name))
        with served_page(judge, options, Path(name)) as url:
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            take_all(browser, url)
            take_report(browser, Path(name))
            browser.close()


if __name__ == "__main__":
    main()
