"""The tab for run files in a real browser: open, filter, compare, label by keyboard, and export."""

import pytest

from judgelm.data.labelled_set import read_labels
from judgelm.judge import Judge
from judgelm.serving.web.runs import open_runs
from tests.support.judged_items import TAKE_OVER, failed_judgment, pair_judgment, pair_sample, write_pairs, write_run

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("default")]

HOSTILE = f"c {TAKE_OVER}"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A run with a flip, a failure and a hostile item, what it judged, and another judge's run."""
    folder = tmp_path_factory.mktemp("runs")
    flipping = [pair_judgment("a", 1, swapped=(6.0, 8.0)), pair_judgment("b", 2, swapped=(8.0, 6.0))]
    judgments = [*flipping, pair_judgment(HOSTILE, "tie", reason=TAKE_OVER), failed_judgment("d")]
    hostile = dict.fromkeys(("question", "reference", "category"), TAKE_OVER) | {"answers": (TAKE_OVER, "b")}
    samples = [
        *(pair_sample("a", category="math"), pair_sample("b", category="code")),
        *(pair_sample(HOSTILE, **hostile), pair_sample("d")),
    ]
    others = [pair_judgment("a", 1), pair_judgment("b", 1), pair_judgment(HOSTILE, 1, reason=TAKE_OVER)]
    return {
        "run": write_run(folder / "run.jsonl", judgments),
        "texts": write_pairs(folder / "pairs.jsonl", samples),
        "other": write_run(folder / "other.jsonl", others),
    }


@pytest.fixture(scope="module")
def url(serve_judge):
    return serve_judge(Judge("8 6", engine="scripted"))


@pytest.fixture(scope="module")
def url_with_runs(serve_judge, files):
    return serve_judge(Judge("8 6", engine="scripted"), open_runs([files["run"], files["other"]], files["texts"]))


@pytest.fixture
def page(url, page_at, files):
    """The files are uploaded and opened."""
    page = page_at(url)
    upload_and_open(page, files)
    return page


def upload_and_open(page, files):
    page.get_by_role("tab", name="Browse and label").click()
    for name, path in files.items():
        upload(page, f"browse-{name}-file", path)
    page.locator("#browse-open").click()
    has(page, "browse-judgment", "The judgment is hidden")


def show_judgments(page):
    page.locator("#browse-blind input").uncheck()
    has(page, "browse-judgment", "Answer 1 is better.")


def upload(page, element, path):
    page.locator(f"#{element} input[type=file]").set_input_files(path)
    page.locator(f"#{element}").get_by_text(path.stem[:3]).first.wait_for()


def reload(page):
    page.wait_for_timeout(1000)  # Gradio reports streams that a reload cuts off as errors; let them end
    page.reload()


def has(page, element, text):
    page.locator(f"#{element}").get_by_text(text).first.wait_for()


def test_texts_and_both_judgments_are_shown_together(page):
    show_judgments(page)
    for text in ("question a", "first a", "second a"):
        assert page.locator("#browse-item").get_by_text(text).first.is_visible(), text
    for text in ("Answer 1 is better.", "other.jsonl", "Same verdict."):
        assert page.locator("#browse-judgment").get_by_text(text).first.is_visible(), text
    has(page, "browse-overview", "4 judgments: 1 first better, 1 second better, 1 tie, 1 failed")
    # both judge a, b and c; only the verdicts of a are the same
    has(page, "browse-findings", "agree on 33.3\u00a0% of the 3 items")


def test_labels_by_keyboard_and_mouse(page, files, tmp_path):
    page.locator("#browse-items input").first.focus()
    page.keyboard.press("1")
    has(page, "browse-place", "Item 2 of 4 listed")
    page.keyboard.press("1")
    has(page, "browse-place", "Item 3 of 4 listed")
    page.locator("#label-tie").click()
    has(page, "browse-place", "Item 4 of 4 listed")
    # correct on a, b and c in the given order; b flips, so the mean of both orders is a tie
    has(page, "browse-findings", "100.0\u00a0% of 3 pairs (95 % interval")
    has(page, "browse-findings", "agreement is 66.7\u00a0%")
    page.keyboard.press("k")
    has(page, "browse-place", "your label: tie")
    page.keyboard.press("u")
    has(page, "browse-place", "your label: not labelled")
    page.locator("#export-labels").click()
    with page.expect_download() as saved:
        page.locator("#labels-file a").first.click()
    saved.value.save_as(tmp_path / "labels.jsonl")
    labels = read_labels(str(tmp_path / "labels.jsonl")).labels
    assert {key: label.winner for key, label in labels.items()} == {"a": 1, "b": 1}
    upload(page, "browse-labels-file", tmp_path / "labels.jsonl")  # continue from them
    page.locator("#browse-open").click()
    has(page, "browse-findings", "of 2 pairs")
    reload(page)
    upload_and_open(page, files)
    has(page, "browse-findings", "Your labels (2)")
    has(page, "browse-place", "your label: first better")


def test_digits_typed_into_a_field_label_nothing(page):
    page.locator("#filter-text textarea, #filter-text input").first.click()
    page.keyboard.type("12")
    page.keyboard.press("Enter")
    has(page, "browse-item", "No items match the filters.")
    has(page, "browse-findings", "Your labels (0)")


def test_hostile_texts_are_not_rendered(page):
    show_judgments(page)
    page.locator("#browse-items label").nth(2).click()
    has(page, "browse-place", "Item 3 of 4 listed")
    has(page, "browse-judgment", "Both answers are equally good.")
    assert TAKE_OVER in page.locator("#browse-item").inner_text()
    page.locator("#filter-category input").click()
    page.get_by_role("option").nth(1).wait_for()
    assert page.locator("#browse-body img, #browse-body script").count() == 0


def test_runs_from_the_command_line_are_open_and_compared(url_with_runs, page_at):
    page = page_at(url_with_runs, width=360)
    show_judgments(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    has(page, "browse-findings", "of the 3 items")
    page.get_by_role("button", name="Files").click()
    page.locator("#browse-other-name input").click()
    page.get_by_role("option", name="no other judge").click()
    page.locator("#browse-open").click()
    page.locator("#browse-findings").get_by_text("of the 3 items").wait_for(state="hidden")


def test_judgments_are_hidden_by_default_and_the_agreement_grows_with_labels(page):
    has(page, "browse-progress", "No labels yet")
    page.keyboard.press("1")
    has(page, "browse-progress", "1 label: agreement 100.0\u00a0% (95\u00a0% interval")
    page.keyboard.press("1")
    # a and b are first better in the given order; b flips, and the given order decides
    has(page, "browse-progress", "2 labels: agreement 100.0\u00a0%")
    page.keyboard.press("2")
    has(page, "browse-progress", "3 labels: agreement 66.7\u00a0%")
    label = "Agreement with your labels by number of labels. After 3 labels"
    page.locator(f"#browse-findings svg[aria-label^='{label}']").wait_for()
    has(page, "browse-findings", "run.jsonl compared with your labels: agreement 66.7")
    has(page, "browse-findings", "other.jsonl compared with your labels: agreement 66.7")  # 1 1 1 against labels 1 1 2
    assert page.locator("#browse-judgment .jl-verdict").count() == 0  # the fourth is not labelled


def test_labels_are_there_after_a_reload_and_for_the_next_server(serve_judge, page_at, files, tmp_path):
    run = tmp_path / "run.jsonl"
    run.write_bytes(files["run"].read_bytes())

    def opened():
        return page_at(serve_judge(Judge("8 6", engine="scripted"), open_runs([run], files["texts"])))

    page = opened()
    has(page, "browse-findings", "Your labels (0)")
    page.locator("#label-second").click()
    has(page, "browse-place", "Item 2 of 4 listed")
    reload(page)
    has(page, "browse-place", "your label: second better")
    has(page, "browse-findings", "saved immediately to")
    has(opened(), "browse-place", "your label: second better")
    tmp_path.joinpath("run.labels.tmp").mkdir()  # fails like a read-only folder, also for root
    page.locator("#label-first").click()
    has(page, "browse-problem", "run.labels.jsonl: cannot save the label: Is a directory")
    assert read_labels(str(tmp_path / "run.labels.jsonl")).labels["a"].winner == 2


def test_a_workbook_is_opened_by_column_names_and_sheet(page_at, url, files, tmp_path):
    openpyxl = pytest.importorskip("openpyxl", reason="openpyxl is not installed: pip install -e '.[xlsx]'")
    book = openpyxl.Workbook()
    book.active.append(["about this file"])
    sheet = book.create_sheet("Pairs")
    for row in (["id", "Frage", "Ours", "Theirs"], ["a", "question a", "first a", "second a"]):
        sheet.append(row)
    book.save(tmp_path / "table.xlsx")
    page = page_at(url)
    page.get_by_role("tab", name="Browse and label").click()
    upload(page, "browse-run-file", files["run"])
    upload(page, "browse-texts-file", tmp_path / "table.xlsx")
    page.locator("#browse-open").click()
    has(page, "browse-open-problem", "expected one non-empty sheet, got Sheet, Pairs")
    page.locator("#browse-sheet input, #browse-sheet textarea").first.fill("Pairs")
    page.locator("#browse-open").click()
    has(page, "browse-open-problem", "--column question=Frage --column answer_1=Ours --column answer_2=Theirs")
    names = "--column question=Frage, answer_1=Ours, answer_2=Theirs"
    page.locator("#browse-columns input, #browse-columns textarea").first.fill(names)
    page.locator("#browse-open").click()
    has(page, "browse-item", "question a")
