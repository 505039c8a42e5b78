"""Chat templates: rendered within bounds, and told whether to think."""

import sys
from functools import partial

import pytest
from jinja2 import TemplateError
from transformers import AutoTokenizer

from judgelm.errors import ConfigError
from judgelm.parsing.thinking import Thinking
from judgelm.prompts.chat_rendering import opening_of, render_chat
from judgelm.prompts.truncation import Truncator
from judgelm.records import Prompt, Span

MESSAGES = [{"role": "user", "content": "Which is better?"}, {"role": "assistant", "content": "8 6"}]

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.fixture(scope="module")
def tokenizer(tiny_model):
    return AutoTokenizer.from_pretrained(tiny_model)


@pytest.fixture
def render(tokenizer):
    def with_template(template):
        tokenizer.chat_template = template
        return partial(render_chat, tokenizer, MESSAGES, add_generation_prompt=True)

    return with_template


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (
            CHATML,
            "<|im_start|>user\nWhich is better?<|im_end|>\n<|im_start|>assistant\n8 6<|im_end|>\n"
            "<|im_start|>assistant\n",
        ),
        ("{% macro one(text, mark) %}**{{ text }}**{% endmacro %}{{ one('a', **{'mark': 2 * 3}) }}", "**a**"),
        ("{{ '-' * 40 }}", "-" * 40),
        ("{{ messages[0].content * 9 }}", "Which is better?" * 9),
    ],
)
def test_a_template_gives_what_transformers_gives(render, tokenizer, template, text):
    tracer = sys.gettrace()
    rendered = render(template)()
    assert rendered == tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True) == text
    assert sys.gettrace() is tracer


@pytest.mark.parametrize(
    ("template", "finding"),
    [
        ("{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}", "more than 200,000 lines"),
        ("{% for i in range(10**9) %}{% endfor %}", "power operator"),
        ("{{ 9 ** 9 ** 9 ** 9 }}", "power operator"),
        ("{% for i in range(1000000000) %}{% endfor %}", "Range too big"),
        ("{% macro f() %}{{ f() }}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{% macro f(n) %}{% if n %}{{ f(n-1) }}{{ f(n-1) }}{% endif %}{% endmacro %}{{ f(60) }}", "200,000 lines"),
        ("{% for i in range(30000) %}{{ messages[0].content }}{% endfor %}", "output has 480,000 characters"),
        ("{{ messages[0].content * 10000000000000 }}", "MemoryError"),
        ("{{ '%9999999999999d' % 1 }}", "Error"),
        ("{{ messages[7].content }}", "no element 7"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ messages[0].content.__class__.__mro__ }}", "access to attribute '__class__'"),
        ("{% include '/etc/passwd' %}", "no loader|TypeError"),
        ("{% for %}", "Expected an expression|expected"),
    ],
)
def test_a_template_that_needs_more_than_a_template_may_is_refused(render, template, finding):
    with pytest.raises(TemplateError, match=finding):
        render(template)()


@pytest.mark.slow  # takes up to a GB
@pytest.mark.parametrize("start", ["'ab'", "['a']"])
@pytest.mark.parametrize("doubled", ["n.t + n.t", "[n.t, n.t] | sum(start=n.t[:0])"])
def test_a_template_that_doubles_a_value_is_refused_before_it_fills_the_memory(render, start, doubled):
    template = (
        f"{{% set n = namespace(t={start}) %}}{{% for i in range(60) %}}{{% set n.t = {doubled} %}}{{% endfor %}}"
    )
    with pytest.raises(TemplateError, match=r"more than 256 MB of memory|TypeError"):
        render(template)()


def test_the_prompt_that_it_was_for_is_named(tokenizer):
    tokenizer.chat_template = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    prompt = Prompt(spans=(Span(kind="question", text="q", role="user"),), chat=True)
    with pytest.raises(ConfigError, match=r"\(it executes more than 200,000 lines\)"):
        Truncator(tokenizer, 100).truncate(prompt, 10)


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
