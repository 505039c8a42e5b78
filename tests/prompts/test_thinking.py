"""Chat templates are told whether to think."""

import pytest
from transformers import AutoTokenizer

from judgelm.prompts.chat_templates import Thinking, opening_of
from judgelm.prompts.truncation import Truncator
from judgelm.records import Prompt, Span

TURNS = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
HYBRID = TURNS + "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
ALWAYS = TURNS + "{{ '<think>\\n' }}"
CHAT = Prompt(spans=(Span("rate", role="system"), Span("a fox", "answer", "user")), chat=True)


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
