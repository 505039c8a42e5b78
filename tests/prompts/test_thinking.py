"""Thinking taken off replies, and what chat templates make of it."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from judgelm.parsing.thinking import reply_so_far, separate
from judgelm.prompts.thinking import Thinking, opening_of
from judgelm.prompts.truncation import Truncator
from judgelm.records import Prompt, Span

TURNS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
HYBRID = TURNS + "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
ALWAYS = TURNS + "{{ '<think>\\n' }}"
CHAT = Prompt(spans=(Span("rate", role="system"), Span("a fox", "answer", "user")), chat=True)


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


def test_an_opened_block_is_seen_at_the_prompts_end_alone():
    assert opening_of("<assistant><think>\n") == "<think>\n"
    assert opening_of("<think>\n\n</think>\n\n") == opening_of("<think> is a tag") == opening_of("") == ""


def test_thinking_gets_half_of_the_window_at_most():
    assert Thinking(max_tokens=4096).within(2048).max_tokens == 1024
    assert (
        Thinking(max_tokens=1000).within(2048).max_tokens == Thinking(max_tokens=1000).within(None).max_tokens == 1000
    )


def tokenized(tiny_model, template, prompt=CHAT, **options):
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = template
    return Truncator(tokenizer, 512, **options).truncate(prompt, 8)


@pytest.mark.parametrize(
    ("template", "thinking", "end", "opening"),
    [
        (HYBRID, "absent", "<assistant>", ""),
        (HYBRID, "on", "<assistant>", ""),
        (HYBRID, "off", "<assistant><think>\n\n</think>\n\n", ""),
        (ALWAYS, "absent", "<assistant><think>\n", "<think>\n"),
        (ALWAYS, "on", "<assistant><think>\n", "<think>\n"),
        (ALWAYS, "off", "<assistant><think>\n\n</think>\n\n", ""),  # it knows no switch: the block is closed here
    ],
)
def test_chat_templates_are_told_whether_to_think(tiny_model, template, thinking, end, opening):
    found = tokenized(tiny_model, template, thinking=thinking)
    assert found.text == "<system>rate<user>a fox" + end
    assert found.opening == opening


@pytest.mark.parametrize(
    ("template", "prefill", "end"),
    [
        (ALWAYS, "<think>\nHm.\n</think>\n\n8", "<assistant><think>\nHm.\n</think>\n\n8"),  # not opened twice
        (HYBRID, "<think>\nHm.\n</think>\n\n8", "<assistant><think>\nHm.\n</think>\n\n8"),
        (ALWAYS, "10", "<assistant><think>\n\n</think>\n\n10"),  # a forced score never stands within thinking
    ],
)
def test_replies_that_go_on_stand_behind_the_block(tiny_model, template, prefill, end):
    prompt = Prompt(spans=CHAT.spans, chat=True, prefill=prefill)
    found = tokenized(tiny_model, template, prompt)
    assert (found.text, found.opening) == ("<system>rate<user>a fox" + end, "")
