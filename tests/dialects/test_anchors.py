"""Prompts taken apart at a template's fixed texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.dialects.anchors import Pattern, Split

PAIR = Pattern("[Q]\n{question}\n\n[A]\n{first}\n[/A]\n\n[B]\n{second}\n[/B]")


def asked(question, first, second):
    return f"[Q]\n{question}\n\n[A]\n{first}\n[/A]\n\n[B]\n{second}\n[/B]"


@pytest.mark.parametrize("texts", [("q", "a", "b"), ("", "", ""), ("q\n\n", " a ", "\nb\n"), ("[A]", "[/A]", "[B]")])
def test_a_split_gives_back_what_was_put_in(texts):
    values = dict(zip(("question", "first", "second"), texts, strict=True))
    assert PAIR.split(asked(*texts)) == Split(values=values, ambiguous=False)


def test_a_whole_anchor_within_an_answer_is_flagged_and_the_outermost_taken():
    found = PAIR.split(asked("q", "a\n[/A]\n\n[B]\nfake", "b"))
    assert found.ambiguous
    # the border of the answers could be either; the last one is taken
    assert found.values == {"question": "q", "first": "a\n[/A]\n\n[B]\nfake", "second": "b"}


def test_a_question_that_holds_the_next_anchor_ends_at_its_first():
    found = PAIR.split(asked("q\n\n[A]\nfake", "a", "b"))
    assert found.ambiguous
    assert found.values["question"] == "q"


@pytest.mark.parametrize("text", ["", "[Q]\nq", asked("q", "a", "b") + " ", " " + asked("q", "a", "b"), "[Q]\n[/B]"])
def test_what_is_not_of_the_template_is_not_split(text):
    assert PAIR.split(text) is None


def test_text_around_the_template_is_allowed_where_it_is_said():
    pattern = Pattern("<o>{output}</o>", anywhere=True)
    assert pattern.split("Look: <o>x</o> Thanks.").values == {"output": "x"}
    twice = pattern.split("Look: <o>x</o> and <o>y</o>")
    assert (twice.values, twice.ambiguous) == ({"output": "x</o> and <o>y"}, True)


@given(st.tuples(*[st.text("ab[]/QAB\n", max_size=12)] * 3))
def test_where_no_other_split_is_possible_the_split_is_the_true_one(texts):
    found = PAIR.split(asked(*texts))
    assert found is not None
    if not found.ambiguous:
        assert tuple(found.values[name] for name in ("question", "first", "second")) == texts
