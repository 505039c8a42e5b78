import hashlib

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.synthetic.pairs import generate
from benchmarks.tiny_model import make_base
from judgelm.errors import ConfigError


def texts():
    for row in generate(2000, seed=0, split="train"):
        yield f"[Q] {row['question_body']}\n[1] {row['answer1_body']}\n[2] {row['answer2_body']}\n[S]{row['text']}"


def make(folder, *, seed=0, **changed):
    shape = {"hidden_size": 32, "layers": 1, "heads": 2, "vocab_size": 1024, "max_positions": 128}
    make_base(texts(), folder, seed=seed, **(shape | changed))
    return folder


def digest(path):
    return hashlib.sha256(path.read_bytes()).hexdigest()


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make(tmp_path_factory.mktemp("base"))


@pytest.fixture(scope="module")
def tokenizer(folder):
    return AutoTokenizer.from_pretrained(folder)


def test_the_folder_loads_as_a_float32_llama_with_tied_embeddings(folder, tokenizer):
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.config.model_type == "llama"
    assert model.dtype == torch.float32
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    assert model.config.vocab_size == len(tokenizer)
    assert model(torch.tensor([[5, 6, 7]])).logits.shape == (1, 3, len(tokenizer))


@given(st.text())
def test_any_text_comes_back_from_its_tokens(tokenizer, text):
    # Special tokens inside a text are one token each and come back too.
    assert tokenizer.decode(tokenizer(text)["input_ids"], clean_up_tokenization_spaces=False) == text


def test_the_words_of_the_world_and_the_markers_are_single_tokens(tokenizer):
    # [Q], What, is, the, space before a digit, newline, [S]
    assert tokenizer.tokenize("[Q] What is the\n[S]") == ["[Q]", "ĠWhat", "Ġis", "Ġthe", "Ċ", "[S]"]


def test_the_score_line_is_tokenised_alike_alone_and_after_the_prompt(tokenizer):
    prompt, reply = "[2] It is opal.\n[S]", "8 6\n"
    joined = tokenizer(prompt + reply)["input_ids"]
    assert joined == tokenizer(prompt)["input_ids"] + tokenizer(reply)["input_ids"]


def test_the_same_arguments_give_the_same_files_and_leave_the_random_state_alone(folder, tmp_path):
    before = torch.random.get_rng_state()
    again = make(tmp_path)
    assert torch.equal(before, torch.random.get_rng_state())
    for name in ("model.safetensors", "tokenizer.json", "config.json"):
        assert digest(again / name) == digest(folder / name)


@pytest.mark.parametrize(("shape", "finding"), [({"vocab_size": 200}, "256 bytes"), ({"heads": 3}, "heads")])
def test_a_shape_that_cannot_be_is_refused(tmp_path, shape, finding):
    with pytest.raises(ConfigError, match=finding):
        make(tmp_path, **shape)
