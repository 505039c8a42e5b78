"""What is learned from the words with which servers refuse a request."""

import pytest

from judgelm.engines.openai.requests import RefusedError, unsupported_param, without_unsupported

BODY = {
    "model": "m",
    "messages": [],
    "max_tokens": 8,
    "temperature": 0.0,
    "stop": ["\n"],
    "n": 3,
    "logprobs": True,
    "top_logprobs": 20,
    "add_generation_prompt": False,
    "continue_final_message": True,
}


@pytest.mark.parametrize(
    "words",
    [
        "This model's maximum context length is 512 tokens. However, you requested 600 (8 in max_tokens)",
        "The decoder prompt (length 600) is longer than the maximum model length of 512.",
        "the request exceeds the available context size (512 tokens), try increasing it",
        "The input (600 tokens) is longer than the model's context length (512 tokens).",
        "`inputs` tokens + `max_new_tokens` must be <= 512. Given: 600 `inputs` tokens and 8",
        "prompt is too long: 600 tokens > 512 maximum",
    ],
)
def test_the_words_of_servers_for_a_prompt_that_is_too_long(words):
    refused = RefusedError(400, words)
    assert refused.too_long
    assert unsupported_param(refused, BODY) is None


@pytest.mark.parametrize(
    ("status", "words", "param", "lesson"),
    [
        (400, "'max_tokens' is not supported with this model. Use 'max_completion_tokens' instead.", "", "max_tokens"),
        (400, "max_tokens must be at least 16", "max_tokens", None),
        (400, "Unsupported value: 'temperature' does not support 0 with this model.", "temperature", "temperature"),
        (400, "Unsupported parameter", "stop", "stop"),
        (400, "Unrecognized request argument supplied: add_generation_prompt", "", "continuation"),
        (422, "continue_final_message: extra fields not permitted", "", "continuation"),
        (400, "Only one completion choice is allowed", "", "n"),
        (400, "Unsupported value: 'n' does not support 3", "", "n"),
        (400, "n e w s", "", None),
        (403, "You are not allowed to request logprobs from this model", "", "many_logprobs"),
        (400, "Requested sample logprobs of 20, which is greater than max allowed: 5", "", "many_logprobs"),
        (404, "temperature", "temperature", None),
        (400, "'temperature': decimal above maximum value. Expected a value <= 2", "temperature", None),
        (400, "'stop': array too long. Expected an array with maximum length 4", "stop", None),
        (400, "something else", "", None),
    ],
)
def test_which_field_to_give_up(status, words, param, lesson):
    assert unsupported_param(RefusedError(status, words, param=param), BODY) == lesson


def test_few_logprobs_are_tried_before_none():
    fewer = without_unsupported(BODY, {"many_logprobs"})
    assert fewer["top_logprobs"] == 5
    assert unsupported_param(RefusedError(400, "logprobs are not supported"), fewer) == "logprobs"
    assert without_unsupported(BODY, {"many_logprobs", "logprobs"}).keys().isdisjoint({"logprobs", "top_logprobs"})


def test_the_body_without_what_was_given_up():
    found = without_unsupported(BODY, {"max_tokens", "stop", "continuation", "n", "temperature", "logprobs"})
    assert found == {"model": "m", "messages": [], "max_completion_tokens": 8}
