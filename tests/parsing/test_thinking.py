"""Thinking taken off replies."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.parsing.thinking import reply_so_far, separate


@pytest.mark.parametrize(
    ("text", "thinking", "reply"),
    [
        ("<think>\nHm.\n</think>\n\n8 6", "Hm.", "8 6"),
        ("\n<think>Hm.</think>8 6", "Hm.", "8 6"),
        ("<think>a</think>\n<think>b</think>\n8 6", "a\n\nb", "8 6"),
        ("<think>\n\n</think>\n\n8 6", None, "8 6"),  # switched off: nothing was thought
        ("So it is.\n</think>\n\n8 6", "So it is.", "8 6"),  # the chat template opened the block
        ("So it is.</think>\n\n8 6", "So it is.", "8 6"),
        ("8 6\nThe second leaks a `</think>` tag.", None, "8 6\nThe second leaks a `</think>` tag."),
        ("8 6\nIt begins with <think>, too.", None, "8 6\nIt begins with <think>, too."),
        ("<think>It says </think>, quoted.\n8 6", "It says", ", quoted.\n8 6"),  # nobody can tell this from an end
        ("8 6", None, "8 6"),
        ("", None, ""),
    ],
)
def test_thinking_is_separated(text, thinking, reply):
    found = separate(text)
    assert (found.thinking, found.reply, found.closed) == (thinking, reply, True)
    assert found.block + found.reply == text


def test_thinking_without_an_end_leaves_no_reply():
    found = separate("<think>\n8 6\nno, wait")
    assert (found.thinking, found.reply, found.closed) == ("8 6\nno, wait", "", False)


def test_where_the_prompt_is_known_a_bare_end_is_no_thinking():
    assert separate("So.\n</think>\n8 6", bare=False).block == ""


@given(st.lists(st.sampled_from(["<think>", "</think>", "\n", " ", "8", "a"]), max_size=12), st.booleans())
def test_block_and_reply_are_the_whole_text(parts, bare):
    text = "".join(parts)
    found = separate(text, bare=bare)
    assert found.block + found.reply == text
    assert separate(found.reply, bare=False).block == "" or not found.closed


def test_what_is_shown_of_a_reply_under_way_is_no_thinking():
    whole = "<think>\nHm.\n</think>\n\n8 6"
    shown = [reply_so_far(whole[:end]) for end in range(len(whole) + 1)]
    assert shown == [""] * (len(whole) - 2) + ["8", "8 ", "8 6"]
    assert [reply_so_far(text) for text in ("<", "<b", "8 <think>")] == ["", "<b", "8 <think>"]
