"""Thinking taken off replies."""

import pytest

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
        ("<think>It says </think>, quoted.\nSo 8 6.</think>\n8 6", "It says </think>, quoted.\nSo 8 6.", "8 6"),
        ("<think>It writes </think> 9 2\nas one would.</think>\n3 8", "It writes </think> 9 2\nas one would.", "3 8"),
        ("<think>It writes\n</think>\n9 2\nas one.\n</think>\n3 8", "It writes\n</think>\n9 2\nas one.", "3 8"),
        ("<think>so the first </think> <answer>8 6</answer>", "so the first", "<answer>8 6</answer>"),
        ("[THINK]Hm. It has </think>\n9 1.[/THINK]8 6", "Hm. It has </think>\n9 1.", "8 6"),
        ("Hm.\n[/THINK]\n8 6", "Hm.", "8 6"),
        *((text, None, text) for text in ("8 6", "", "8 6\nThe second leaks a `</think>` tag.")),
        *(
            (text, None, text)
            for text in ("8 6\nIt begins with <think>, too.", "8 6\nThe second ends with </think>\nSo.")
        ),
        # words that name a channel
        *((text, None, text) for text in ("analysis: 8 6", "Analysis\n8 6", "final 8 6", "finally 8 6")),
        ("assistantfinal8 6", None, "assistantfinal8 6"),
    ],
)
def test_thinking_is_separated(text, thinking, reply):
    parts = separate(text)
    assert (parts.thinking, parts.reply, parts.closed) == (thinking, reply, True)
    assert parts.block + parts.reply == text


def test_where_the_prompt_is_known_a_bare_end_is_not_thinking():
    assert separate("So.\n</think>\n8 6", bare=False).block == ""


@pytest.mark.parametrize(
    "text",
    [
        "<think>\n8 6\nno, wait",
        "<think>The first contains the text </think>\n[[1]]\nwhich I must ignore. So far",
        "<think>The first writes: </think>\n[[1]]\nbut",
        "<think>It says `</think>`.\n8 6",
        "<think>Hm.</think>\n<think>8 6",
        "[THINK]8 6\nno, wait",
        "<|channel|>analysis<|message|>8 6\nno, wait",
        "<|start|>assistant<|channel|>analysis<|message|>It writes <|channel|>final<|message|>8 6\nno",
        "analysis8 6\nno, wait",
        "analysisThe first writes:\n8 6",
    ],
)
def test_thinking_without_an_end_leaves_no_reply(text):
    parts = separate(text)
    assert (parts.block, parts.reply, parts.closed) == (text, "", False)
    assert separate("<think>\n8 6\nno, wait").thinking == "8 6\nno, wait"


HIGH = "<|channel|>analysis<|message|>Maybe 3 9.<|end|><|start|>assistant<|channel|>final<|message|>"


@pytest.mark.parametrize(
    ("block", "thinking"),
    [
        (HIGH, "Maybe 3 9."),
        ("<|start|>assistant" + HIGH, "Maybe 3 9."),
        (HIGH.removeprefix("<|channel|>"), "Maybe 3 9."),
        (HIGH.replace("final", "final <|constrain|>json"), "Maybe 3 9."),
        (
            HIGH.replace("9.<|end|>", "9.<|end|><|start|>assistant<|channel|>commentary<|message|>So.<|end|>"),
            "Maybe 3 9.\n\nSo.",
        ),
        ("<|channel|>final<|message|>", None),
        ("analysisMaybe 3 9.assistantfinal", "Maybe 3 9."),
        ("analysisMaybe 3 9.assistantcommentarySo.assistantfinal", "Maybe 3 9.\n\nSo."),
        ("final", None),
    ],
)
def test_channels_are_read_with_their_special_tokens_and_without(block, thinking):
    parts = separate(f"{block}8 6\nThe first.")
    assert (parts.block, parts.thinking, parts.reply, parts.closed) == (block, thinking, "8 6\nThe first.", True)
    assert separate(f"{HIGH}8 6<|return|>").reply == "8 6"


def test_many_closing_tags_cost_little():
    assert separate("<think>" + "a </think> " * 20_000).closed is False


def test_a_partial_reply_never_shows_thinking():
    for block in ("<think>\nHm.\n</think>\n\n", "[THINK]Hm.[/THINK]", HIGH, "analysisHm.assistantfinal"):
        whole = f"{block}8 6"
        shown = [reply_so_far(whole[:end]) for end in range(len(whole) + 1)]
        assert shown == [""] * (len(whole) - 2) + ["8", "8 ", "8 6"]
    assert [reply_so_far(text) for text in ("<", "<b", "8 <think>")] == ["", "<b", "8 <think>"]
