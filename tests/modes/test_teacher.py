"""One reply of a teacher, read: scores, reason, and what it lacks."""

import pytest

from judgelm.modes.generation import TeacherMode
from judgelm.parsing.scores import split_score_line
from judgelm.prompts.catalog import get_template
from judgelm.records import PairVerdict, Sample
from tests.support.flows import SAMPLE, broken, drive, reply


def judged(*args, **fields):
    [asked], judgment = drive(TeacherMode(), [reply(*args, **fields)])
    assert len(asked) == 1
    return judgment


def test_scores_and_reason_come_in_one_reply():
    judgment = judged("8 6\n\nAssistant 1 is right.\nAssistant 2 is not.\n")
    assert (judgment.scores, judgment.verdict) == ((8.0, 6.0), PairVerdict(winner=1))
    assert judgment.reason == "Assistant 1 is right.\nAssistant 2 is not."
    assert judgment.shown[0].text == "8 6\n\nAssistant 1 is right.\nAssistant 2 is not.\n"
    assert (judgment.prompt_tokens, judgment.completion_tokens) == (10, 3)


@pytest.mark.parametrize(
    ("text", "line", "reason"),
    [
        ("8 6\nwhy", "8 6\n", "why"),
        ("\n\n8, 6\r\nwhy\nso", "8, 6\r\n", "why\nso"),
        ("Assistant 1: 8\nAssistant 2: 6\nwhy", "Assistant 1: 8\nAssistant 2: 6\n", "why"),
        ("**8 6**\n7 9 is not meant", "**8 6**\n", "7 9 is not meant"),
        ("8 6", "8 6", ""),
        ("no\nscores", "no\n", "scores"),
        ("", "", ""),
    ],
)
def test_where_the_score_line_ends(text, line, reason):
    assert split_score_line(text, (1, 10)) == (line, reason)


@pytest.mark.parametrize(
    ("text", "finish", "code"),
    [
        ("I would say 8 and 6", "stop", "off_grammar"),
        ("11 5\nwhy", "stop", "out_of_range"),
        ("8 1", "length", "truncated"),
        ("", "stop", "off_grammar"),
        ("Let me think about", "length", "truncated"),
    ],
)
def test_a_reply_without_scores_is_a_failure_that_keeps_its_text(text, finish, code):
    judgment = judged(text, finish=finish)
    assert (judgment.failure.code, judgment.scores, judgment.verdict) == (code, None, None)
    assert judgment.shown[0].text == text


def test_half_a_reason_is_not_kept_and_the_scores_are():
    judgment = judged("8 6\nAssistant 1 is", finish="length")
    assert (judgment.scores, judgment.reason, judgment.failure) == ((8.0, 6.0), None, None)
    assert judgment.shown[0].reason_failure.code == "truncated"


def test_scores_alone_lack_a_reason():
    assert judged("8 6\n").shown[0].reason_failure.why == "nothing follows the score line"


@pytest.mark.parametrize(("reason", "code"), [("error", "engine"), ("too_long", "too_long")])
def test_what_was_not_answered_is_no_fault_of_the_teacher(reason, code):
    _, judgment = drive(TeacherMode(), [broken(reason)])
    assert judgment.failure.code == code


def test_the_reference_is_shown_where_the_sample_has_one():
    plain, referenced = (
        TeacherMode().request(Sample(id="1", question="q", answers=("a", "b"), reference=reference)).prompt
        for reference in (None, "r")
    )
    assert "[Reference Answer]" not in "".join(span.text for span in plain.spans)
    assert referenced == get_template("judgelm-paper").render(
        Sample(id="1", question="q", answers=("a", "b")), (0, 1), "r"
    )


def test_the_seed_is_the_samples_own():
    drawing = TeacherMode(temperature=0.7, seed=3)
    one, again = (drawing.request(SAMPLE).sampling for _ in range(2))
    other = drawing.request(Sample(id="2", question="q", answers=("a", "b"))).sampling
    assert one == again
    assert one.seed != other.seed
