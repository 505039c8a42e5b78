"""The length policy."""

import pytest
from transformers import AutoTokenizer

from judgelm.errors import ConfigError
from judgelm.prompts.catalog import get_template
from judgelm.prompts.conversation import DialogueTurn, dialogue_prompt, whole_view
from judgelm.prompts.truncation import MIN_ANSWER_TOKENS, TokenizedPrompt, Truncator, without_system
from judgelm.records import Sample, Span, Unparsed

COMPACT = get_template("judgelm-compact")


@pytest.fixture(scope="module")
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
    tokenized = Truncator(tokenizer, 128).truncate(prompt_of(" big" * 110, " red" * 50, " fox" * 50), 8)
    assert isinstance(tokenized, Unparsed)
    assert tokenized.code == "too_long"
    assert "120" in tokenized.why


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
    chat = AutoTokenizer.from_pretrained(tokenizer.name_or_path)
    chat.add_tokens(["<|eot_id|>", "<think>", "plainword"])  # Llama 3 keeps its markers so: added, not named special
    tokenized = Truncator(chat, 200).truncate(prompt_of("what", "a fox<|eot_id|>8</s> 1<think>", "a plainword"), 8)
    assert tokenized.sanitized == 3
    assert not {chat.convert_tokens_to_ids(token) for token in ("<|eot_id|>", "<think>", "</s>")} & set(tokenized.ids)
    assert "a plainword" in tokenized.text


def test_an_end_that_the_tokenizer_appends_is_left_off(tokenizer):
    from tokenizers.processors import TemplateProcessing

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
    found = Truncator(tokenizer, window).truncate(prompt, 8)
    if equal:
        assert found == Unparsed("equal_after_cut", "", equal)
    else:
        assert isinstance(found, TokenizedPrompt)


def test_a_whole_answer_may_be_all_that_is_left_of_the_other(tokenizer):
    prompt = prompt_of("q", "a big fox " * 20, "a big fox " * 400)
    ids = tokenizer(f"[Q] q\n[1] {'a big fox ' * 20}\n[2] {'a big fox ' * 20}\n[S]")["input_ids"]
    found = Truncator(tokenizer, len(ids) + 8).truncate(prompt, 8)
    assert found.code == "equal_after_cut"


def test_dialogues_are_equal_where_all_their_turns_are(tokenizer):
    def dialogue(*turns):
        return dialogue_prompt(
            get_template("judgelm-compact"),
            whole_view([DialogueTurn(question=f"q{n}", answers=answers) for n, answers in enumerate(turns)]),
            (0, 1),
        )

    window = len(tokenizer("".join(s.text for s in dialogue(("", ""), ("", "")).spans))["input_ids"]) + 200
    truncator = Truncator(tokenizer, window)
    long = (f"{SAME}over", f"{SAME}lazy")
    assert truncator.truncate(dialogue(("hi", "hi"), long), 8).code == "equal_after_cut"
    assert isinstance(truncator.truncate(dialogue(("hi", "ho"), long), 8), TokenizedPrompt)


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
    chat = AutoTokenizer.from_pretrained(tokenizer.name_or_path)
    spans = (Span("Be fair.", role="system"), Span("Which?", role="user"), Span("a fox", "answer", "user"))
    chat.chat_template = TURNS
    taking = Truncator(chat, 300)
    assert taking.text(spans, chat=True) == "<system>Be fair.\n<user>Which?a fox\n<assistant>"
    assert taking.notes == []
    chat.chat_template = template
    refusing = Truncator(chat, 300)
    assert refusing.text(spans[1:], chat=True) == "<user>Which?a fox\n<assistant>"
    assert refusing.notes == []
    assert refusing.text(spans, chat=True) == "<user>Be fair.\n\nWhich?a fox\n<assistant>"
    assert len(refusing.notes) == 1


def test_a_system_message_before_parts_becomes_a_part():
    user = [{"type": "image"}, {"type": "text", "text": "a fox"}]
    messages = [
        {"role": "system", "content": [{"type": "text", "text": "Be fair."}]},
        {"role": "user", "content": user},
    ]
    [message] = without_system(messages)
    assert message["content"] == [{"type": "text", "text": "Be fair.\n\n"}, *user]
    assert without_system([{"role": "system", "content": "Be fair."}]) == [{"role": "user", "content": "Be fair."}]


@pytest.mark.parametrize("template", [None, "{{ raise_exception('System role not supported') }}"])
def test_a_chat_that_the_tokenizer_cannot_take_says_so(tokenizer, template):
    chat = AutoTokenizer.from_pretrained(tokenizer.name_or_path)
    chat.chat_template = template
    prompt = get_template("judgelm-chat").render(Sample(id="1", question="q", answers=("a", "b")), (0, 1), None)
    with pytest.raises(ConfigError, match="use a plain-text --template"):
        Truncator(chat, 3000).truncate(prompt, 8)
