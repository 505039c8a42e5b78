"""The texts of tokens."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from judgelm.engines.token_logprobs import LogprobStep, reply_logprobs
from judgelm.records import TokenLogprobs, tokens_between
from tests.support.family_tokenizers import tokenizer_of


def byte_level_tokenizer():
    tokenizer = tokenizer_of("chatml")
    tokenizer.backend_tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def steps_of(tokenizer, text):
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    return [LogprobStep(token, -0.5, ((token, -0.5),)) for token in ids]


@pytest.mark.parametrize("text", ["8 6\nboth", "né 日本 😀!", "é" * 40])
def test_tokens_join_to_the_reply(text):
    tokenizer = byte_level_tokenizer()
    tokens = reply_logprobs(steps_of(tokenizer, text), text, tokenizer)
    assert "".join(token.token for token in tokens) == text
    assert len(tokens) == len(steps_of(tokenizer, text))


def test_tokens_after_the_end_of_the_reply_are_left_out():
    tokenizer = byte_level_tokenizer()
    steps = [*steps_of(tokenizer, "paris is"), LogprobStep(tokenizer.eos_token_id, -0.1, ())]
    assert "".join(token.token for token in reply_logprobs(steps, "paris is", tokenizer)) == "paris is"
    assert "".join(token.token for token in reply_logprobs(steps, "par", tokenizer)) == "par"


def test_alternatives_keep_their_first_space():
    words = {"\u2581a": 0, "\u2581b": 1, "c": 2, "<unk>": 3}
    made = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    made.pre_tokenizer, made.decoder = pre_tokenizers.Metaspace(), decoders.Metaspace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made)
    steps = [LogprobStep(0, -0.1, ((0, -0.1), (2, -3.0))), LogprobStep(1, -0.2, ((1, -0.2),))]
    first, second = reply_logprobs(steps, "a b", tokenizer)
    assert (first.token, second.token) == ("a", " b")
    assert (first.candidates, second.candidates) == (((" a", -0.1), ("c", -3.0)), ((" b", -0.2),))


def test_tokens_between_two_positions():
    tokens = tuple(TokenLogprobs(token=text, logprob=-1.0) for text in ("ab", "", "cd", "ef"))
    assert [token.token for token in tokens_between(tokens, 1, 5)] == ["b", "", "cd", "e"]
    assert [token.token for token in tokens_between(tokens, 4, 9)] == ["ef"]
    assert tokens_between(tokens, 0, 0) == ()
