"""Judging on the page in a real browser: every tab, by mouse and by keyboard, and with hostile texts."""

import hashlib
import re

import numpy as np
import pytest

from judgelm.cli.tuned_head import HEAD_FILE
from judgelm.engines.heads import write_head
from judgelm.judge import Judge
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card, HeadCard, write_card
from judgelm.records import HeadTerms
from tests.support.judged_items import TAKE_OVER
from tests.support.word_engine import WordEngine
from tests.support.writing_engine import WritingEngine

pytestmark = [pytest.mark.browser, pytest.mark.filterwarnings("default")]

REASON = "The first answer is shorter and says all that was asked for, so it is the better one. " * 3


def script(prompt):
    """Scores of as many answers as are shown, a hostile reason, and a follow-up reply."""
    if "Why?" in prompt.spans[-1].text + prompt.spans[-2].text:
        return f"Since it is shorter. {TAKE_OVER}"
    if prompt.prefill.endswith("\n"):
        return f"{REASON} {TAKE_OVER}"
    answers = sum(span.kind == "answer" for span in prompt.spans)
    return {1: "7", 3: "5 9 7"}.get(answers, "8 6")  # of a dialogue each turn has two


@pytest.fixture(scope="module")
def engine():
    return WritingEngine(script)


@pytest.fixture(scope="module")
def url(engine, serve_judge):
    judge = Judge("8 6", engine="scripted")
    judge.engine = engine
    return serve_judge(judge)


@pytest.fixture
def page(url, page_at):
    return page_at(url)


def fill(page, **texts):
    for name, text in texts.items():
        page.locator(f"#{name.replace('_', '-')} textarea").fill(text)


def judge_pair(page, text=None):
    """Judge the texts of the page, or a pair with this text."""
    if text is not None:
        fill(page, pair_question_field=text, pair_answer_1=text, pair_answer_2="b", pair_reference=text)
    page.locator("#pair-judge").click()


def tab(page, name):
    page.get_by_role("tab", name=name).click()


def test_the_reason_of_a_pair_is_streamed(page, engine):
    judge_pair(page, "a")
    growing = page.locator("#pair-judgment .jl-writing .jl-raw")
    growing.wait_for()
    first = growing.inner_text()
    page.wait_for_function("before => document.querySelector('.jl-writing .jl-raw')?.innerText !== before", arg=first)
    shown = page.locator("#pair-judgment")
    shown.get_by_text("A tie, because the orders disagree.").wait_for()  # 8 : 6 in both orders
    assert shown.get_by_text("Do not rely on it").is_visible()
    assert shown.locator("svg").count() == 2
    assert shown.locator("svg").first.get_attribute("aria-label").startswith("Probabilities of the score lines")
    assert growing.count() == 0


def test_a_judgment_can_be_discussed(page):
    judge_pair(page, "a")
    page.locator("#pair-talk").wait_for()
    question = page.locator("#pair-question textarea")
    question.fill("Why?")
    question.press("Enter")
    page.locator("#pair-log").get_by_text("Since it is shorter.").wait_for()
    page.wait_for_function("() => document.querySelector('#pair-question textarea').value === ''")  # the reply is whole
    page.wait_for_timeout(500)  # a question is accepted when the previous one has ended
    question.fill(" ")
    page.locator("#pair-ask").click()
    page.locator("#pair-log").get_by_text("the question is blank").wait_for()
    page.locator("#pair-judge").click()  # another judgment, another talk
    page.locator("#pair-log").get_by_text("Since it is shorter.").wait_for(state="hidden")


def test_the_page_opens_with_an_example(page):
    assert page.locator("#pair-question-field textarea").input_value() == "What is the capital of Australia?"
    note = page.locator("#pair-example")
    label = note.get_by_text("Canberra is the capital")
    assert label.is_hidden()  # readers see the verdict first
    page.locator("#pair-judge").click()
    shown = page.locator("#pair-judgment")
    shown.get_by_text("A tie, because the orders disagree.").wait_for()
    for text in ("Answer 1 shown first", "Answer 2 shown first", "Why this verdict may be wrong"):
        assert shown.get_by_text(text).is_visible(), text
    note.get_by_text("Label", exact=True).click()
    label.wait_for()


def test_another_example_clears_the_judgment(page):
    page.locator("#pair-judge").click()
    page.locator("#pair-talk").wait_for()
    page.locator("#pair-another").click()
    page.locator("#pair-example").get_by_text("Example 2 of 60").wait_for()
    page.locator("#pair-judgment .jl-verdict").wait_for(state="hidden")
    assert page.locator("#pair-talk").is_hidden()
    assert "train travels" in page.locator("#pair-question-field textarea").input_value()
    page.locator("#pair-question-field textarea").press("x")  # now the user's text
    page.locator("#pair-example").get_by_text("Example 2 of 60").wait_for(state="hidden")
    page.locator("#pair-clear").click()
    page.wait_for_function("() => document.querySelector('#pair-question-field textarea').value === ''")
    page.locator("#pair-another").click()
    page.locator("#pair-example").get_by_text("Example 2 of 60").wait_for()


def test_stop_ends_a_judgment(page, engine):
    engine.pause = True
    try:
        judge_pair(page, "a")
        page.locator("#pair-judgment .jl-busy").wait_for()
        page.locator("#pair-stop").click()
        page.locator("#pair-judgment .jl-busy").wait_for(state="hidden")
    finally:
        engine.pause = False
    page.wait_for_timeout(500)
    assert page.locator("#pair-judgment .jl-verdict").count() == 0


def test_hostile_texts_are_not_rendered(page):
    judge_pair(page, TAKE_OVER)
    page.locator("#pair-talk").wait_for()
    fill(page, pair_question=f"Why? {TAKE_OVER}")
    page.locator("#pair-ask").click()
    log = page.locator("#pair-log")
    log.get_by_text("Since it is shorter.").wait_for()
    assert TAKE_OVER in log.inner_text()  # shown as text
    assert page.locator("#pair-judgment img, #pair-log img, #pair-judgment script, #pair-log script").count() == 0


def test_a_single_answer_with_reference_and_without(page):
    tab(page, "Single answer")
    fill(page, single_question="q", single_answer="a")
    page.locator("#single-judge").click()
    shown = page.locator("#single-judgment")
    shown.get_by_text("The grade is 7.").wait_for()
    assert shown.locator("svg[aria-label^='Probabilities of the scores']").count() == 1
    fill(page, single_reference="r", single_anchor="c")
    page.locator("#single-judge").click()
    shown.get_by_text("a reference or another answer").wait_for()
    fill(page, single_anchor="")
    page.locator("#single-judge").click()
    shown.locator(".jl-verdict").wait_for()


def test_a_judge_with_vision_gets_the_image(page, tmp_path):
    from tests.support.tiny_vision import write_image

    tab(page, "Image")
    page.locator("#image-judge").click()  # the example
    page.locator("#image-judgment .jl-verdict").wait_for()
    fill(page, image_question="q", image_answer="a", image_reference="r")
    page.get_by_role("button", name="Remove Image").click()
    page.locator("#image-judge").click()
    page.get_by_text("no image; choose one").wait_for()
    page.locator("#image-file input[type=file]").set_input_files(write_image(tmp_path / "cat.png", 1))
    page.locator("#image-file img").wait_for()
    page.locator("#image-judge").click()
    page.locator("#image-judgment .jl-verdict").wait_for()


def test_a_pair_is_judged_by_keyboard_alone(page):
    page.locator("#pair-question-field textarea").focus()
    for text in ("q", "a", "b"):
        page.keyboard.type(text)
        page.keyboard.press("Tab")
    page.keyboard.type("the reference")
    page.keyboard.press("Shift+Enter")
    page.locator("#pair-judgment .jl-verdict").wait_for()
    assert page.locator("#pair-reference textarea").input_value() == "the reference"


@pytest.mark.parametrize("dark", [False, True])
def test_nothing_is_wider_than_a_narrow_screen(url, page_at, dark):
    page = page_at(url, width=360, dark=dark)
    for name in ("Pair", "Single answer", "Several answers", "Conversation", "Image", "Browse and label"):
        tab(page, name)
        assert page.evaluate("document.documentElement.scrollWidth") <= 360, name
    tab(page, "Pair")
    note, button = page.locator("#pair-example").bounding_box(), page.locator("#pair-another").bounding_box()
    assert note["width"] > 200  # the button is below it
    assert button["y"] >= note["y"] + note["height"]
    judge_pair(page, "x" * 300)
    page.locator("#pair-judgment svg").first.wait_for()
    assert page.evaluate("document.documentElement.scrollWidth") <= 360
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    light = sum(int(part) for part in re.findall(r"\d+", background)[:3]) > 380
    assert light is not dark


def test_nothing_is_shown_without_the_password(serve_judge, chromium_browser):
    import httpx

    url = serve_judge(Judge("8 6", engine="scripted"), password="open sesame")
    assert httpx.get(f"{url}/config").status_code == 401
    context = chromium_browser.new_context()
    page = context.new_page()
    page.goto(url)
    name, password = page.get_by_label("username"), page.get_by_label("password")
    for given, seen in (("wrong", "Incorrect Credentials"), ("open sesame", "Question")):
        name.fill("me")
        password.fill(given)
        page.get_by_role("button", name="Login").click()
        page.get_by_text(seen).first.wait_for()
    context.close()


@pytest.fixture(scope="module")
def own_url(tmp_path_factory, serve_judge):
    """The page of a judge with a prompt file for one answer, which shows no question but another field."""
    path = tmp_path_factory.mktemp("prompt") / "mine.txt"
    path.write_text("Document:\n{context}\nAnswer:\n{answer}\nSupported?\nreply: Yes/No")
    judge = Judge("Yes", engine="scripted", prompt=path)
    judge.engine = WordEngine()
    return serve_judge(judge)


def test_a_prompt_has_its_tabs_and_fields(own_url, page_at):
    page = page_at(own_url, width=390)
    titles = [title.strip() for title in page.locator("[role=tab]:visible").all_inner_texts()]
    assert titles == ["Pair", "Single answer", "Several answers", "Browse and label"]
    assert page.get_by_role("tab", name="Single answer").get_attribute("aria-selected") == "true"
    assert not page.locator("#single-question").is_visible()
    fill(page, single_slot_context="a policy", single_answer="2 0")
    page.get_by_label("Reason").uncheck()
    page.locator("#single-judge").click()
    page.get_by_text("The label is yes.").wait_for()
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_several_answers_are_judged_with_a_prompt(own_url, page_at):
    page = page_at(own_url)
    tab(page, "Several answers")
    fill(page, several_slot_context="a policy", several_answer_1="1 0", several_answer_2="2 0")
    page.locator("#several-judge").click()
    page.get_by_text("From best to worst: answer 2, answer 1.").wait_for()


def test_a_judge_with_a_head_is_not_asked_for_what_it_cannot_do(serve_judge, page_at, tmp_path, tiny_chat):
    weights = np.random.default_rng(0).normal(size=64)
    write_head(tmp_path / HEAD_FILE, weights)
    sha256 = hashlib.sha256((tmp_path / HEAD_FILE).read_bytes()).hexdigest()
    head = HeadCard(layer=1, dtype="float32", terms=HeadTerms(kind="pair"), file=HEAD_FILE, sha256=sha256)
    template = get_template("yes-no")
    write_card(tmp_path, Card(model=str(tiny_chat), template="yes-no", template_sha=template.sha, head=head))
    page = page_at(serve_judge(Judge(str(tmp_path), device="cpu")))
    assert f"{tmp_path.name} on the transformers engine" in page.locator("#jl-head").inner_text()
    titles = [title.strip() for title in page.locator("[role=tab]:visible").all_inner_texts()]
    assert titles == ["Pair", "Several answers", "Browse and label"]
    assert not page.locator("#pair-reasons").is_visible()
    page.locator("#pair-judge").click()
    page.get_by_text(re.compile("Answer [12] is better")).first.wait_for()
