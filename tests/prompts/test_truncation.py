"""The length policy, and chat templates: rendered within limits, and told whether to think."""

import sys

import pytest
from jinja2 import TemplateError
from tokenizers.processors import TemplateProcessing
from transformers import AutoTokenizer

from judgelm.errors import ConfigError
from judgelm.parsing.thinking import Thinking
from judgelm.prompts.catalog import get_template
from judgelm.prompts.chat_rendering import opening_of, render_chat
from judgelm.prompts.conversation import DialogueTurn, dialogue_prompt, whole_view
from judgelm.prompts.truncation import MIN_ANSWER_TOKENS, TokenizedPrompt, Truncator, without_system
from judgelm.records import Prompt, Sample, Span, Unparsed

COMPACT = get_template("judgelm-compact")


@pytest.fixture
def tokenizer(tiny_model):
    return AutoTokenizer.from_pretrained(tiny_model)


def prompt_of(question, first, second):
    return COMPACT.render(Sample(id="1", question=question, answers=(first, second)), (0, 1), None)


def test_a_prompt_that_fits_is_left_whole(tokenizer):
    tokenized = Truncator(tokenizer, 200).truncate(prompt_of("what is it", "a fox", "a dog"), 8)
    assert tokenized.text == "[Q] what is it\n[1] a fox\n[2] a dog\n[S]"
    assert tokenized.ids == tokenizer(tokenized.text)["input_ids"]
    assert tokenized.truncations == ()


def test_answers_share_the_room_and_are_cut_at_their_ends(tokenizer):
    # " big" is one token, so the answers have 300, 100 and 10 of them
    tokenized = Truncator(tokenizer, 128).truncate(prompt_of("what", " big" * 300, " red" * 10), 8)
    assert len(tokenized.ids) <= 120
    assert " red" * 10 in tokenized.text  # the short one is kept whole
    [cut] = tokenized.truncations
    assert (cut.answer, cut.tokens_before) == (0, 300)
    assert 90 < cut.tokens_after < 110
    assert tokenized.text.endswith("\n[S]")


def test_two_long_answers_get_the_same_room(tokenizer):
    tokenized = Truncator(tokenizer, 128).truncate(prompt_of("what", " big" * 300, " red" * 200), 8)
    first, second = tokenized.truncations
    assert abs(first.tokens_after - second.tokens_after) <= 1
    assert len(tokenized.ids) >= 118


def test_a_question_without_room_for_the_answers_is_too_long(tokenizer):
    failure = Truncator(tokenizer, 128).truncate(prompt_of(" big" * 110, " red" * 50, " fox" * 50), 8)
    assert (failure.code, "120" in failure.why) == ("too_long", True)


def test_an_answer_is_never_cut_below_the_least(tokenizer):
    room = 2 * MIN_ANSWER_TOKENS
    prompt = prompt_of("what", " big" * 50, " red" * 50)
    bare = len(tokenizer("[Q] what\n[1] \n[2] \n[S]")["input_ids"])
    assert isinstance(Truncator(tokenizer, bare + room + 12).truncate(prompt, 8), TokenizedPrompt)
    assert isinstance(Truncator(tokenizer, bare + room - 4).truncate(prompt, 8), Unparsed)


def test_ten_megabytes_are_cut_quickly(tokenizer):
    tokenized = Truncator(tokenizer, 256).truncate(prompt_of("what", "fox jumps " * 1_000_000, "a dog"), 8)
    assert tokenized.truncations[0].tokens_before > 1_000_000


def test_special_and_added_tokens_in_an_answer_are_text(tokenizer):
    tokenizer.add_tokens(["<|eot_id|>", "<think>", "plainword"])  # as Llama 3's markers: added, but not special
    prompt = prompt_of("what", "a fox<|eot_id|>8</s> 1<think>", "a plainword")
    tokenized = Truncator(tokenizer, 200).truncate(prompt, 8)
    assert tokenized.sanitized == 3
    assert not set(tokenizer.convert_tokens_to_ids(["<|eot_id|>", "<think>", "</s>"])) & set(tokenized.ids)
    assert "a plainword" in tokenized.text


def test_an_end_that_the_tokenizer_appends_is_left_off(tokenizer):
    ending = AutoTokenizer.from_pretrained(tokenizer.name_or_path)
    ending.backend_tokenizer.post_processor = TemplateProcessing(
        single="</s> $A </s>", special_tokens=[("</s>", ending.eos_token_id)]
    )
    assert ending("a fox")["input_ids"][-1] == ending.eos_token_id
    tokenized = Truncator(ending, 200).truncate(prompt_of("what", "a fox", "a dog"), 8)
    assert tokenized.ids[0] == ending.eos_token_id  # what it puts first stays
    assert tokenized.ids[1:] == tokenizer(tokenized.text)["input_ids"]


SAME = "a big fox jumps " * 60


@pytest.mark.parametrize(
    ("answers", "equal"),
    [
        ((f"{SAME}over", f"{SAME}lazy"), "answers 1 and 2 are identical after truncation"),
        ((SAME, SAME), ""),  # the answers are equal themselves
        ((f"over {SAME}", f"lazy {SAME}"), ""),
        (("a fox", SAME), ""),
        ((f"{SAME}over", "a dog", f"{SAME}lazy"), "answers 1 and 3 are identical after truncation"),
    ],
)
def test_answers_that_are_equal_after_the_cut_are_not_shown(tokenizer, answers, equal):
    sample = Sample(id="1", question="q", answers=answers)
    template = get_template("judgelm-v1" if len(answers) == 3 else "judgelm-compact")
    prompt = template.render(sample, tuple(range(len(answers))), None)
    window = 130 + len(tokenizer("".join(span.text for span in prompt.spans if span.kind == "template"))["input_ids"])
    result = Truncator(tokenizer, window).truncate(prompt, 8)
    assert isinstance(result, TokenizedPrompt) if not equal else result == Unparsed("equal_after_cut", "", equal)


def test_a_whole_answer_may_be_all_that_is_left_of_the_other(tokenizer):
    prompt = prompt_of("q", "a big fox " * 20, "a big fox " * 400)
    ids = tokenizer(f"[Q] q\n[1] {'a big fox ' * 20}\n[2] {'a big fox ' * 20}\n[S]")["input_ids"]
    assert Truncator(tokenizer, len(ids) + 8).truncate(prompt, 8).code == "equal_after_cut"


def test_dialogues_are_equal_where_all_their_turns_are(tokenizer):
    def dialogue(*turns):
        view = whole_view([DialogueTurn(question=f"q{n}", answers=answers) for n, answers in enumerate(turns)])
        return dialogue_prompt(COMPACT, view, (0, 1))

    window = len(tokenizer("".join(s.text for s in dialogue(("", ""), ("", "")).spans))["input_ids"]) + 200
    truncator = Truncator(tokenizer, window)
    long = (f"{SAME}over", f"{SAME}lazy")
    assert truncator.truncate(dialogue(("hi", "hi"), long), 8).code == "equal_after_cut"
    assert isinstance(truncator.truncate(dialogue(("hi", "ho"), long), 8), TokenizedPrompt)


ROLES = "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}<assistant>"
TURNS = "{% for m in messages %}<{{ m['role'] }}>{{ m['content'] }}\n{% endfor %}<assistant>"
STRICT = (
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Roles must alternate') }}{% endif %}{% endfor %}"
)


@pytest.mark.parametrize(
    "template",
    [
        "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}" + TURNS,
        STRICT + TURNS,
        TURNS.replace("{% for", "{% set messages = messages | rejectattr('role', 'equalto', 'system') | list %}{% for"),
    ],
)
def test_a_system_message_that_the_template_refuses_or_drops_precedes_the_users_text(tokenizer, template):
    spans = (Span("Be fair.", role="system"), Span("Which?", role="user"), Span("a fox", "answer", "user"))
    tokenizer.chat_template = TURNS
    taking = Truncator(tokenizer, 300)
    assert taking.text(spans, chat=True) == "<system>Be fair.\n<user>Which?a fox\n<assistant>"
    assert taking.notes == []
    tokenizer.chat_template = template
    refusing = Truncator(tokenizer, 300)
    assert refusing.text(spans[1:], chat=True) == "<user>Which?a fox\n<assistant>"
    assert refusing.notes == []
    assert refusing.text(spans, chat=True) == "<user>Be fair.\n\nWhich?a fox\n<assistant>"
    assert len(refusing.notes) == 1


def test_a_clients_messages_are_rendered_verbatim(tokenizer):
    tokenizer.chat_template = (
        "{{ tools[0].function.name if tools }}"
        "{% for m in messages %}<{{ m.role }}>{{ m.content }}"
        "{{ m.tool_calls[0].function.arguments.x if m.tool_calls }}{% endfor %}"
        "{% if add_generation_prompt %}<assistant>{% endif %}"
    )
    call = {"type": "function", "function": {"name": "f", "arguments": '{"x": 5}'}}
    messages = (
        {"role": "user", "content": "a </s>"},
        {"role": "user", "content": "b"},
        {"role": "assistant", "content": "", "tool_calls": [call]},
    )
    truncator = Truncator(tokenizer, 300)
    tokenized = truncator.truncate(Prompt(chat=True, messages=messages, tools=(call,), prefill="So"), 1)
    assert (tokenized.text, tokenized.sanitized) == ("f<user>a </s><user>b<assistant>5<assistant>So", 0)
    plain = truncator.truncate(Prompt(messages=({"role": "user", "content": "a </s>"},)), 1)
    assert plain.text == "a </s>"
    assert truncator.truncate(Prompt(messages=({"role": "user", "content": " big" * 301},)), 1).code == "too_long"
    assert truncator.truncate(Prompt(messages=({"role": "user", "content": "x" * 10**6},)), 1).code == "too_long"


def test_a_system_message_before_parts_becomes_a_part():
    user = [{"type": "image"}, {"type": "text", "text": "a fox"}]
    system = {"role": "system", "content": [{"type": "text", "text": "Be fair."}]}
    [message] = without_system([system, {"role": "user", "content": user}])
    assert message["content"] == [{"type": "text", "text": "Be fair.\n\n"}, *user]
    assert without_system([{"role": "system", "content": "Be fair."}]) == [{"role": "user", "content": "Be fair."}]


ENDLESS = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"


@pytest.mark.parametrize(
    ("template", "finding"),
    [
        (None, "plain-text --template"),
        ("{{ raise_exception('System role not supported') }}", "plain-text --template"),
        (ENDLESS, r"\(it executes more than 200,000 lines\)"),
    ],
)
def test_a_chat_template_that_cannot_be_rendered_is_rejected(tokenizer, template, finding):
    tokenizer.chat_template = template
    prompt = get_template("judgelm-chat").render(Sample(id="1", question="q", answers=("a", "b")), (0, 1), None)
    with pytest.raises(ConfigError, match=finding):
        Truncator(tokenizer, 3000).truncate(prompt, 8)


MESSAGES = [{"role": "user", "content": "Which is better?"}, {"role": "assistant", "content": "8 6"}]

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def rendered(tokenizer, template):
    tokenizer.chat_template = template
    return render_chat(tokenizer, MESSAGES, add_generation_prompt=True)


USER = "<|im_start|>user\nWhich is better?<|im_end|>\n"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (CHATML, f"{USER}<|im_start|>assistant\n8 6<|im_end|>\n<|im_start|>assistant\n"),
        ("{% macro one(text, mark) %}**{{ text }}**{% endmacro %}{{ one('a', **{'mark': 2 * 3}) }}", "**a**"),
        ("{{ '-' * 40 }}", "-" * 40),
        ("{{ messages[0].content * 9 }}", "Which is better?" * 9),
    ],
)
def test_a_template_gives_what_transformers_gives(tokenizer, template, text):
    tracer = sys.gettrace()
    assert (
        rendered(tokenizer, template)
        == tokenizer.apply_chat_template(MESSAGES, tokenize=False, add_generation_prompt=True)
        == text
    )
    assert sys.gettrace() is tracer


@pytest.mark.parametrize(
    ("template", "finding"),
    [
        (ENDLESS, "more than 200,000 lines"),
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
def test_a_template_that_exceeds_the_limits_is_rejected(tokenizer, template, finding):
    with pytest.raises(TemplateError, match=finding):
        rendered(tokenizer, template)


@pytest.mark.slow  # takes up to a GB
@pytest.mark.parametrize("start", ["'ab'", "['a']"])
@pytest.mark.parametrize("doubled", ["n.t + n.t", "[n.t, n.t] | sum(start=n.t[:0])"])
def test_a_template_that_doubles_a_value_is_rejected_before_it_fills_the_memory(tokenizer, start, doubled):
    loop = f"{{% for i in range(60) %}}{{% set n.t = {doubled} %}}{{% endfor %}}"
    with pytest.raises(TemplateError, match=r"more than 256 MB of memory|TypeError"):
        rendered(tokenizer, f"{{% set n = namespace(t={start}) %}}{loop}")


HYBRID = ROLES + "{% if enable_thinking is defined and not enable_thinking %}<think>\n\n</think>\n\n{% endif %}"
ALWAYS = ROLES + "{{ '<think>\\n' }}"
CHAT = Prompt(spans=(Span("rate", role="system"), Span("a fox", "answer", "user")), chat=True)


def test_an_opened_block_is_seen_at_the_end_of_the_prompt_only():
    assert opening_of("<assistant><think>\n") == "<think>\n"
    assert opening_of("<think>\n\n</think>\n\n") == opening_of("<think> is a tag") == opening_of("") == ""


def test_thinking_gets_at_most_half_of_the_window():
    assert Thinking(max_tokens=4096).within(2048).max_tokens == 1024
    assert [Thinking(max_tokens=1000).within(window).max_tokens for window in (2048, None)] == [1000, 1000]


@pytest.mark.parametrize(
    ("template", "thinking", "prefill", "end", "opening"),
    [
        (HYBRID, "absent", "", "", ""),
        (HYBRID, "on", "", "", ""),
        (HYBRID, "off", "", "<think>\n\n</think>\n\n", ""),
        (ALWAYS, "absent", "", "<think>\n", "<think>\n"),
        (ALWAYS, "on", "", "<think>\n", "<think>\n"),
        (ALWAYS, "off", "", "<think>\n\n</think>\n\n", ""),  # it has no switch: the block is closed here
        # a reply that continues follows the block, which is not opened twice
        (ALWAYS, "absent", "<think>\nHm.\n</think>\n\n8", "<think>\nHm.\n</think>\n\n8", ""),
        (HYBRID, "absent", "<think>\nHm.\n</think>\n\n8", "<think>\nHm.\n</think>\n\n8", ""),
        (ALWAYS, "absent", "10", "<think>\n\n</think>\n\n10", ""),  # a forced score is never inside thinking
    ],
)
def test_chat_templates_are_told_whether_to_think(tokenizer, template, thinking, prefill, end, opening):
    tokenizer.chat_template = template
    prompt = Prompt(spans=CHAT.spans, chat=True, prefill=prefill)
    tokenized = Truncator(tokenizer, 512, thinking=thinking).truncate(prompt, 8)
    assert (tokenized.text, tokenized.opening) == (f"<system>rate<user>a fox<assistant>{end}", opening)
