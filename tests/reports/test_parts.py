"""Judgments with parts: their place in the answer, their summary, and the page."""

import pytest

from judgelm.records import Judgment, LabelVerdict, Sample, Shown, Unparsed
from judgelm.reports.html import render_verdicts
from judgelm.reports.parts import list_parts, part_probability, summarise

ANSWER = "# Tower\n\nIt is **in Paris**. It is <b>old</b>.\n\n- It has three\n  levels."


def claim(text, probability=0.9, **fields):
    scores = None if probability is None else (probability,)
    return Shown(order=(0,), text="", part=text, scores=scores, log_odds=1.0, **fields)


def judged(*shown):
    return Judgment(sample_id="1", mode="grounded", verdict=LabelVerdict(label="unsupported"), shown=shown)


def sample(answer=ANSWER, **metadata):
    return Sample(id="1", question="q?", answers=(answer,), metadata=metadata)


def test_parts_are_found_in_the_text_in_spite_of_markdown():
    shown = [claim("It is **in Paris**."), claim("It is <b>old</b>.", 0.1), claim("It has three levels.", 0.5)]
    [answer] = list_parts(judged(*shown), sample(), 0.5).answers
    marked = [(piece.text, piece.part.sign) for piece in answer.pieces if piece.part]
    assert marked == [("It is **in Paris**.", "✓"), ("It is <b>old</b>.", "✗"), ("It has three\n  levels.", "✓")]
    assert "".join(piece.text for piece in answer.pieces) == ANSWER
    assert answer.summary == (0.1, pytest.approx(0.5), pytest.approx(2 / 3))  # mean of 0.9, 0.1, 0.5


def test_parts_that_are_not_in_the_text_are_listed():
    lost = claim("It is polite.", None, failure=Unparsed("low_coverage", ""))
    [answer] = list_parts(judged(claim("It is **in Paris**."), lost), sample(), 0.5).answers
    assert [(part.text, part.sign, part.failure, part.level) for part in answer.others] == [
        ("It is polite.", "?", "low coverage", "")
    ]
    assert answer.summary is None  # a mean without the failed part would be too good


def test_a_part_shows_the_passage_that_supports_it():
    judgment = judged(claim("It is **in Paris**.", passage="b"))
    item = list_parts(judgment, sample(context=[{"id": "a", "text": "No."}, {"id": "b", "text": "In Paris."}]), 0.5)
    [part] = [piece.part for piece in item.answers[0].pieces if piece.part]
    assert (part.passage_id, part.passage) == ("b", "In Paris.")


def test_probabilities_are_only_of_yes_no_questions():
    assert part_probability(claim("a", 0.25)) == 0.25
    assert part_probability(Shown(order=(0,), text="", part="a", scores=(7.0,))) is None
    assert part_probability(Shown(order=(0,), text="", part="a", scores=(9.0,), log_odds=0.0)) == 0.5
    assert summarise([], 0.5) is None


def test_the_page_escapes_claims_and_needs_no_samples():
    judgment = judged(claim("It is <b>old</b>.", 0.1))
    options = {"labels": {}, "manifest": {"mode": {"threshold": 0.3}}, "title": "t", "summary": []}
    for samples in ({"1": sample()}, {}):
        page = render_verdicts({"1": judgment}, samples=samples, **options)
        assert ("It is &lt;b&gt;old" in page, "<b>old" in page) == (True, False)
        assert ("threshold 0.3" in page, 'class="part p0"' in page) == (True, True)
