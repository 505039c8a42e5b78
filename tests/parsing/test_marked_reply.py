"""Replies with a verdict between marks."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.errors import ConfigError
from judgelm.modes.released import MarkedReply
from judgelm.records import Scores, Unparsed

LETTERS = MarkedReply(before="[[", after="]]", labels={"A": "1", "B": "2", "A=B": "tie"})
GRADE = MarkedReply(before="**Result:**", scale=(1, 5))
BOXED = MarkedReply(before="\\boxed{", after="}", separator=",", scale=(1, 10), values=2)
DEDUCTED = MarkedReply(before="reduction of ", scale=(-10, 0), deducts=True)
BARE = MarkedReply(labels={"A": "1", "B": "2"})


def code(result):
    if isinstance(result, Unparsed):
        return result.code
    return result.values if isinstance(result, Scores) else result


@pytest.mark.parametrize(
    ("read", "text", "expected"),
    [
        (LETTERS, "First ... so [[A]]", "1"),
        (LETTERS, "[[a=b]].", "tie"),
        (LETTERS, "[[A]] or rather [[B]]", "off_grammar"),
        (LETTERS, "[[A]] as I said [[A]]", "1"),
        (LETTERS, "[[rating]]", "off_grammar"),
        (LETTERS, "[[A", "off_grammar"),
        (LETTERS, "", "off_grammar"),
        (MarkedReply(before="[[", after="]]", labels={"A": "1", "B": "2"}, takes="last"), "[[A]] no, [[B]]", "2"),
        (GRADE, "**Reasoning:** well\n\n**Result:** 4", (4.0,)),
        (GRADE, "**Result:** 4/5\nthe end", (4.0,)),
        (GRADE, "**Result:** 7", "out_of_range"),
        (GRADE, "**Result:** four", "off_grammar"),
        (DEDUCTED, "2 errors, with a total score reduction of 4.5.\nError", (-4.5,)),
        (DEDUCTED, "0 errors, with a total score reduction of 0.", (0.0,)),
        (DEDUCTED, "with a total score reduction of 12", "out_of_range"),
        (BOXED, "<scores>\n\\boxed{9, 3}\n</scores>", (9.0, 3.0)),
        (BOXED, "\\boxed{9}", "off_grammar"),
        (BOXED, "\\boxed{9, 3} \\boxed{1, 2}", "off_grammar"),
        (BARE, " B.\n", "2"),
        (BARE, "B is better", "off_grammar"),
    ],
)
def test_what_a_reply_says(read, text, expected):
    assert code(read(text)) == expected


def test_a_format_has_labels_or_a_scale():
    with pytest.raises(ConfigError, match="labels or a scale"):
        MarkedReply(before="[[")


@given(st.text(alphabet="[]AB =<>\n", max_size=60))
def test_no_text_is_read_as_anything_but_a_label_or_a_failure(text):
    assert code(LETTERS(text)) in {"1", "2", "tie", "off_grammar"}


def test_a_long_reply_of_marks_is_read_in_a_moment():
    assert code(LETTERS("[[" * 200_000)) == "off_grammar"
