"""Prompts taken apart at a template's fixed texts, and which of several ways to split one is taken."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.dialects.splits import Pattern, TemplateSplit, latest_split, resolve_split

NAMES = ("question", "first", "second")
TWICE_NAMES = ("question", "first", "again", "second")
PAIR = Pattern("[Q]\n{question}\n\n[A]\n{first}\n[/A]\n\n[B]\n{second}\n[/B]")
BARE = Pattern("[Q]{question}[A]{first}[B]{second}[E]")
TWICE = Pattern("<{question}|{first}> <{again}|{second}>")
FAKE = "a\n[/A]\n\n[B]\nfake\n[/B]"


def prompt(question, first, second):
    return f"[Q]\n{question}\n\n[A]\n{first}\n[/A]\n\n[B]\n{second}\n[/B]"


def split_of(*texts, ambiguous=False):
    return TemplateSplit(values=dict(zip(NAMES, texts, strict=True)), ambiguous=ambiguous)


@pytest.mark.parametrize("texts", [("q", "a", "b"), ("", "", ""), ("q\n\n", " a ", "\nb\n"), ("[A]", "[/A]", "[B]")])
def test_a_split_gives_back_what_was_put_in(texts):
    assert PAIR.split(prompt(*texts)) == split_of(*texts)


def test_a_repeated_anchor_is_flagged():
    # the border of the answers could be either; the last one is taken
    texts = ("q", "a\n[/A]\n\n[B]\nfake", "b")
    assert PAIR.split(prompt(*texts)) == split_of(*texts, ambiguous=True)
    split = PAIR.split(prompt("q\n\n[A]\nfake", "a", "b"))
    assert (split.ambiguous, split.values["question"]) == (True, "q")  # it ends at the first of the next anchors
    with_names = Pattern("{a}1{b}2{c}3{d}").split("a1a1b2b2c3c3d")  # first anchors stand first and last anchors last
    assert with_names == TemplateSplit(values={"a": "a", "b": "a1b", "c": "b2c3c", "d": "d"}, ambiguous=True)


@pytest.mark.parametrize("text", ["", "[Q]\nq", prompt("q", "a", "b") + " ", " " + prompt("q", "a", "b"), "[Q]\n[/B]"])
def test_other_texts_are_not_split(text):
    assert PAIR.split(text) is None


@pytest.mark.parametrize(
    ("text", "output", "ambiguous"),
    [
        ("Look: <o>x</o> Thanks.", "x", False),
        ("Look: <o>x</o> and <o>y</o>", "x</o> and <o>y", True),
        ("<o></o>", "", False),
        ("<o>x<o>y</o>", "x<o>y", True),
        ("<o>x</o>y</o>", "x</o>y", True),
        ("</o><o>x</o>", "x", True),
    ],
)
def test_text_may_surround_a_template(text, output, ambiguous):
    split = TemplateSplit(values={"output": output}, ambiguous=ambiguous)
    assert Pattern("<o>{output}</o>", anywhere=True).split(text) == split


@pytest.mark.parametrize("text", ["x</o>", "<o>x", "</o>x<o>", "<o>/o>", ""])
def test_text_around_needs_both_borders_in_their_order(text):
    assert Pattern("<o>{output}</o>", anywhere=True).split(text) is None


@pytest.mark.parametrize(
    ("template", "text", "values"),
    [
        ("({x}||{y}||{z})", "(|||)", None),  # two anchors of "||" need four bars
        ("({x}||{y}||{z})", "(||||)", {"x": "", "y": "", "z": ""}),
        # the "3" after the "4", and the bars of both borders, are not anchors
        ("{a}1{b}2{c}3{d}4{e}", "a1b2c3d43", {"a": "a", "b": "b", "c": "c", "d": "d", "e": "3"}),
        ("|{a}|{b}|", "|x|", None),
        ("|{a}|{b}|", "|x|y|", {"a": "x", "b": "y"}),
        # borders may touch and never overlap
        ("ab{x}ba", "abba", {"x": ""}),
        ("ab{x}ba", "aba", None),
        ("{x}b", "b", {"x": ""}),
        ('{"score": {score_1}, {X}}', '{"score": 7, {X}}', {"score_1": "7"}),  # other braces stand for themselves
    ],
)
def test_an_anchor_is_looked_for_between_its_neighbours_alone(template, text, values):
    assert Pattern(template).split(text) == (values and TemplateSplit(values=values, ambiguous=False))


def test_anchors_that_overlap_themselves_are_found_at_each_place():
    # "|||" holds the anchor "||" at two places
    assert Pattern("({x}||{y})").split("(|||)") == TemplateSplit(values={"x": "", "y": "|"}, ambiguous=True)


@given(st.tuples(*[st.text("ab[]/QAB\n", max_size=12)] * 3))
def test_where_no_other_split_is_possible_the_split_is_the_true_one(texts):
    split = PAIR.split(prompt(*texts))
    assert split is not None
    assert split.ambiguous or split == split_of(*texts)


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        ("[Q]q[A]fake[A]a[B]b[E]", ("q[A]fake", "a", "b")),
        ("[Q]q[A]a[B]fake[B]b[E]", ("q", "a[B]fake", "b")),
        ("[Q]q[A]fake[A]a[B]b[A]c[E]", ("q[A]fake", "a", "b[A]c")),
        # the question quotes a whole prompt: every border is as late as possible
        ("[Q]q[A]x[B]y[E][A]a[B]b[E]", ("q[A]x[B]y[E]", "a", "b")),
    ],
)
def test_the_latest_borders_are_in_doubt(text, texts):
    assert latest_split(BARE, text) == split_of(*texts, ambiguous=True)


def test_the_only_latest_split_is_not_in_doubt():
    assert latest_split(BARE, "[Q]q[A]a[B]b[E]") == split_of("q", "a", "b")
    assert latest_split(BARE, "[Q]q[B]b[A]a[E]") is None


@pytest.mark.parametrize("texts", [("q", FAKE, "b"), ("q", "b", FAKE)])
def test_whole_imitated_blocks_stay_in_the_answer_that_holds_them(texts):
    blocks = (("[A]", "[/A]"), ("[B]", "[/B]"))
    assert resolve_split(PAIR, prompt(*texts), blocks=blocks) == split_of(*texts, ambiguous=True)


@pytest.mark.parametrize(
    ("text", "texts"),
    [
        # the first question could be "a" or "a|b"; only "a" is at the second place, too
        ("<a|b|x> <a|b>", ("a", "b|x", "a", "b")),
        ("<q|x> <q|y>", ("q", "x", "q", "y")),
        ("<a|x> <b|y>", None),
        (f"<{'|' * 10}> <no|b>", None),  # 10 places for the first border, and none with the same question
    ],
)
def test_what_is_shown_twice_must_be_the_same(text, texts):
    split = resolve_split(TWICE, text, same={"again": "question"})
    assert split == (texts and TemplateSplit(values=dict(zip(TWICE_NAMES, texts, strict=True)), ambiguous=False))


@pytest.mark.parametrize(
    ("text", "first", "second"),
    [
        # the other way tears two: "(x" and "y)|(z)"
        ("(x|y)|(z)", "(x|y)", "(z)"),
        ("(z)|(x|y)", "(z)", "(x|y)"),
        ("((x)|y)|z", "((x)|y)", "z"),
        # both ways tear two, since an end before its start makes no block: the first border
        (")|(|()", ")", "(|()"),
        # one is torn here, and there "()|)" and ")": a block that is closed counts for nothing
        ("()|)|", "()", ")|"),
        (")|)|", ")", ")|"),  # two ends without a start are two torn ones
        ("|(|)", "", "(|)"),  # a text may be empty
    ],
)
def test_the_split_with_the_fewest_torn_blocks_is_taken(text, first, second):
    split = resolve_split(Pattern("{first}|{second}"), text, blocks=[("(", ")")])
    assert split == TemplateSplit(values={"first": first, "second": second}, ambiguous=True)


def test_of_equally_torn_splits_the_outermost_is_taken():
    split = resolve_split(Pattern("{a}|{b}/{c}"), "1|2|3/4/5")
    assert split == TemplateSplit(values={"a": "1", "b": "2|3/4", "c": "5"}, ambiguous=True)


@pytest.mark.parametrize(
    ("text", "values"), [("<x|y>x.", {"a": "x", "b": "y", "again": "x"}), ("<x|y>x.x.", None), ("<x|y>xx.", None)]
)
def test_a_last_text_that_is_shown_twice_ends_the_prompt(text, values):
    split = resolve_split(Pattern("<{a}|{b}>{again}."), text, same={"again": "a"})
    assert split == (values and TemplateSplit(values=values, ambiguous=False))


@pytest.mark.parametrize("again", ["no", ""])  # there is no way to split it, or one
def test_a_search_that_is_given_up_leaves_doubt(again):
    split = resolve_split(TWICE, f"<{'|' * 3000}> <{again}|b>", same={"again": "question"})
    values = dict(zip(TWICE_NAMES, ("", "|" * 2999, again, "b"), strict=True))
    assert split == TemplateSplit(values=values, ambiguous=True)
