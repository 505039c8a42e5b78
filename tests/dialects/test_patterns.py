"""Prompts taken apart at a template's fixed texts."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.dialects.splits import Pattern, TemplateSplit

PAIR = Pattern("[Q]\n{question}\n\n[A]\n{first}\n[/A]\n\n[B]\n{second}\n[/B]")


def asked(question, first, second):
    return f"[Q]\n{question}\n\n[A]\n{first}\n[/A]\n\n[B]\n{second}\n[/B]"


@pytest.mark.parametrize("texts", [("q", "a", "b"), ("", "", ""), ("q\n\n", " a ", "\nb\n"), ("[A]", "[/A]", "[B]")])
def test_a_split_gives_back_what_was_put_in(texts):
    values = dict(zip(("question", "first", "second"), texts, strict=True))
    assert PAIR.split(asked(*texts)) == TemplateSplit(values=values, ambiguous=False)


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


@pytest.mark.parametrize(
    ("text", "output", "ambiguous"),
    [
        ("<o></o>", "", False),
        ("<o>x<o>y</o>", "x<o>y", True),
        ("<o>x</o>y</o>", "x</o>y", True),
        ("</o><o>x</o>", "x", True),
    ],
)
def test_a_repeated_border_leaves_doubt_where_text_may_stand_around(text, output, ambiguous):
    assert Pattern("<o>{output}</o>", anywhere=True).split(text) == TemplateSplit(
        values={"output": output}, ambiguous=ambiguous
    )


@pytest.mark.parametrize("text", ["x</o>", "<o>x", "</o>x<o>", "<o>/o>", ""])
def test_text_around_needs_both_borders_in_their_order(text):
    assert Pattern("<o>{output}</o>", anywhere=True).split(text) is None


def test_anchors_that_overlap_themselves_are_found_at_each_place():
    # "|||" holds the anchor "||" at two places
    assert Pattern("({x}||{y})").split("(|||)") == TemplateSplit(values={"x": "", "y": "|"}, ambiguous=True)
    # two anchors of "||" need four bars, three are not enough
    assert Pattern("({x}||{y}||{z})").split("(|||)") is None
    assert Pattern("({x}||{y}||{z})").split("(||||)") == TemplateSplit(
        values={"x": "", "y": "", "z": ""}, ambiguous=False
    )


def test_first_anchors_stand_first_and_last_anchors_last():
    found = Pattern("{a}1{b}2{c}3{d}").split("a1a1b2b2c3c3d")
    assert found == TemplateSplit(values={"a": "a", "b": "a1b", "c": "b2c3c", "d": "d"}, ambiguous=True)


def test_an_anchor_is_looked_for_between_its_neighbours_alone():
    # the "3" behind the "4", and the bars of both borders, are no anchors of their own
    found = Pattern("{a}1{b}2{c}3{d}4{e}").split("a1b2c3d43")
    assert found == TemplateSplit(values={"a": "a", "b": "b", "c": "c", "d": "d", "e": "3"}, ambiguous=False)
    assert Pattern("|{a}|{b}|").split("|x|") is None
    assert Pattern("|{a}|{b}|").split("|x|y|") == TemplateSplit(values={"a": "x", "b": "y"}, ambiguous=False)


def test_borders_may_touch_and_never_overlap():
    assert Pattern("ab{x}ba").split("abba").values == {"x": ""}
    assert Pattern("ab{x}ba").split("aba") is None
    assert Pattern("{x}b").split("b").values == {"x": ""}


def test_other_braces_stand_for_themselves():
    assert Pattern('{"score": {score_1}, {X}}').split('{"score": 7, {X}}').values == {"score_1": "7"}


@given(st.tuples(*[st.text("ab[]/QAB\n", max_size=12)] * 3))
def test_where_no_other_split_is_possible_the_split_is_the_true_one(texts):
    found = PAIR.split(asked(*texts))
    assert found is not None
    if not found.ambiguous:
        assert tuple(found.values[name] for name in ("question", "first", "second")) == texts
