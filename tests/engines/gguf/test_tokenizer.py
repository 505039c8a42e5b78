"""The tokenizer of a GGUF file does what the file states, where transformers ignores it."""

import pytest

from judgelm.engines.gguf import check_saved, convert_tokenizer, read_header
from judgelm.errors import ModelError
from tests.support.gguf_files import write_gguf

BEGIN, ADD, PREFIX = (f"tokenizer.ggml.{key}" for key in ("bos_token_id", "add_bos_token", "add_space_prefix"))
SPLIT, TEMPLATE = "tokenizer.ggml.pre", "tokenizer.chat_template"
CHAT = "{% for message in messages %}<{{ message['content'] }}>{% endfor %}"


@pytest.fixture
def converted(tiny_model, tmp_path):
    """The tokenizer of a file with this metadata, and its repairs; it reads text from its files as in memory."""

    def convert(tokenizer="llama", **extra):
        metadata = {"tokenizer.ggml.eos_token_id": 2, "tokenizer.ggml.padding_token_id": None} | extra
        file = read_header(write_gguf(tiny_model, tmp_path / "tiny.gguf", tokenizer=tokenizer, extra=metadata))
        result, repairs = convert_tokenizer(file)
        result.save_pretrained(tmp_path / "saved")
        check_saved(result, tmp_path / "saved", file)
        return result, repairs

    return convert


@pytest.mark.parametrize(("stated", "begins"), [(True, True), (False, False), (None, True)])  # None: as llama.cpp
def test_text_begins_with_the_begin_token_where_the_file_states_it(converted, stated, begins):
    tokenizer, repairs = converted(**{BEGIN: 1, ADD: stated})
    assert tokenizer.convert_ids_to_tokens(tokenizer("ab").input_ids) == [*["<s>"] * begins, "\u2581ab"]
    assert repairs == ["begin token <s> added to texts"] * begins


def test_a_begin_token_that_is_not_named_is_refused(converted):
    with pytest.raises(ModelError, match=r"states that text begins with a begin token, but names none \(tokenizer"):
        converted(**{ADD: True})


def test_a_chat_begins_with_it_once(converted):
    for template in (CHAT, "{{ bos_token }}" + CHAT):
        tokenizer, repairs = converted(**{BEGIN: 1, ADD: True, TEMPLATE: template})
        chat = tokenizer.apply_chat_template([{"role": "user", "content": "ab"}], tokenize=False)
        assert chat == "<s><ab>"
        assert ("begin token <s> added to chats" in repairs) == (template == CHAT)


def test_a_chat_template_that_does_not_work_is_refused(converted):
    with pytest.raises(ModelError, match="its chat template does not work: "):
        converted(**{BEGIN: 1, ADD: True, TEMPLATE: "{{ messages | none }}"})


def test_a_file_without_chat_template_has_none(converted):
    assert converted(**{BEGIN: 1})[0].chat_template is None


def test_no_space_before_the_first_word_where_the_file_says_so(converted):
    tokenizer, repairs = converted(**{BEGIN: 1, ADD: False, PREFIX: False})
    assert tokenizer.convert_ids_to_tokens(tokenizer("ab ab").input_ids) == ["ab", "\u2581ab"]
    assert tokenizer.decode(tokenizer("ab ab").input_ids) == "ab ab"
    assert repairs == ["no space before the first word"]


def test_digits_stand_alone_where_the_file_says_so(converted):
    text = "a\n\n1"  # GPT-2 splits the last newline from the first where a digit follows
    plain, no_repairs = converted("gpt2", **{SPLIT: "gpt-2"})
    digits, repairs = converted("gpt2", **{SPLIT: "smollm"})
    assert [str(piece) for piece, _ in plain.backend_tokenizer.pre_tokenizer.pre_tokenize_str(text)] == ["a", *"ĊĊ1"]
    assert [piece for piece, _ in digits.backend_tokenizer.pre_tokenizer.pre_tokenize_str(text)] == ["a", "ĊĊ", "1"]
    assert (no_repairs, repairs) == ([], ["text split as smollm: each digit by itself"])


def test_an_unknown_splitting_is_said(converted):
    _, repairs = converted("gpt2", **{SPLIT: "martian"})
    assert repairs == ["text split as GPT-2, since martian is unknown to transformers: some tokens may differ"]
