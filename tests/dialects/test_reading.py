"""Request bodies, as clients really send them."""

import pytest

from judgelm.dialects.contract import Message, Tool
from judgelm.dialects.reading import read_chat, read_completion
from judgelm.errors import InputError

USER = {"role": "user", "content": "q"}


def test_parts_nulls_and_lists_are_taken_as_clients_mean_them():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    asked = read_chat(
        {"messages": [{"role": "system", "content": None}, {"role": "user", "content": parts}], "n": None,
         "max_tokens": [512], "stop": None, "use_beam_search": True, "response_format": None}
    )  # fmt: skip
    assert asked.messages == (Message(role="system", text=""), Message(role="user", text="ab"))
    assert (asked.n, asked.max_tokens, asked.only("system", "user")) == (1, 512, ("", "ab"))
    assert asked.only("user") is None


def test_functions_of_both_forms_are_found_and_the_forced_one_named():
    function = {"name": "score", "parameters": {"type": "object"}}
    new = read_chat({"messages": [USER], "tools": [{"type": "function", "function": function}],
                     "tool_choice": {"type": "function", "function": {"name": "score"}}})  # fmt: skip
    old = read_chat({"messages": [USER], "functions": [function], "function_call": {"name": "score"}})
    required = read_chat({"messages": [USER], "tools": [{"function": function}], "tool_choice": "required"})
    assert {one.forced_tool for one in (new, old, required)} == {"score"}
    assert new.tools == old.tools == (Tool(name="score", parameters={"type": "object"}),)


def test_a_schema_is_found():
    wanted = {"type": "json_schema", "json_schema": {"name": "score", "schema": {"type": "object"}}}
    assert read_chat({"messages": [USER], "response_format": wanted}).schema == {"type": "object"}
    assert read_chat({"messages": [USER], "response_format": {"type": "json_object"}}).json_object


def test_a_plain_prompt_is_one_message():
    asked = read_completion({"prompt": ["q"], "max_tokens": 16, "logprobs": 5})
    assert asked.messages == (Message(role="prompt", text="q"),)
    assert (asked.plain, asked.logprobs, asked.top_logprobs) == (True, True, 5)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "messages"),
        ({"messages": []}, "at least one"),
        ({"messages": ["q"]}, "role and content"),
        ({"messages": [{"role": "user", "content": 3}]}, "content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "text parts"),
        ({"messages": [USER], "n": 0}, '"n"'),
        ({"messages": [USER], "n": True}, '"n"'),
        ({"messages": [USER], "max_tokens": "many"}, "max_tokens"),
    ],
)
def test_what_is_no_request_is_refused_by_its_field(body, message):
    with pytest.raises(InputError, match=message):
        read_chat(body)
