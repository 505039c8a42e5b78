"""Request bodies, as clients really send them."""

import pytest

from judgelm.dialects.contract import ChatRequest, Message, Tool
from judgelm.dialects.request_body import read_chat, read_completion
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
    assert new.forced_tool == old.forced_tool == required.forced_tool == "score"
    assert new.tools == old.tools == (Tool(name="score", parameters={"type": "object"}),)
    # what is not a function is skipped
    given = ["score", {"type": "function"}, {"function": {"name": 3}}, {"function": {"name": "a", "parameters": None}}]
    assert read_chat({"messages": [USER], "tools": given}).tools == (Tool(name="a"),)


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ({}, "messages"),
        ({"messages": ["q"]}, "role and content"),
        ({"messages": [{"role": "user", "content": 3}]}, "content"),
        ({"messages": [{"role": "user", "content": [{"type": "image_url"}]}]}, "text parts"),
        ({"messages": [USER], "n": True}, '"n"'),
        ({"messages": [USER], "max_tokens": "many"}, "max_tokens"),
        ({"messages": USER}, "at least one"),
        ({"messages": [USER, {"role": 3}]}, '^"messages", 1: expected'),
        ({"messages": [USER, {"role": "user", "content": ["q"]}]}, '^"messages", 1, "content": expected'),
        ({"messages": [{"role": "user", "content": [{"type": "image_url", "text": "q"}]}]}, "text parts"),
        ({"messages": [USER], "n": 129}, '"n": expected an integer from 1 to 128, got 129'),
        ({"messages": [USER], "top_logprobs": -1}, '"top_logprobs": expected an integer from 0 to 20, got -1'),
        ({"messages": [USER], "max_tokens": 0}, '"max_tokens": expected an integer from 1 to 1048576, got 0'),
        ({"messages": [USER], "max_tokens": 10**400}, "from 1 to 1048576, got 1000"),
        ({"messages": [USER], "top_p": 1.5}, '"top_p": expected a number from 0 to 1, got 1.5'),
        ({"messages": [USER], "presence_penalty": -3}, "from -2 to 2, got -3"),
        ({"messages": [USER], "logit_bias": [1]}, '"logit_bias": expected an object'),
        ({"messages": [USER], "stop": ["a"] * 17}, '"stop": expected a string or a list of at most 16 strings'),
        ({"messages": [USER], "stop": "a" * 1001}, "at most 1000 characters"),
        ({"messages": [USER], "response_format": {"type": "xml"}}, "text or json_object or json_schema"),
        ({"messages": [USER], "max_completion_tokens": 0, "max_tokens": 9}, '"max_completion_tokens": .*, got 0'),
        ({"messages": [USER], "max_tokens": [1, 2]}, r"got \[1, 2\]"),
        ({"messages": [USER], "temperature": -0.1}, '"temperature": expected a number from 0 to 2, got -0.1'),
        ({"messages": [USER], "stop": ["a", 3]}, '"stop"'),
        ({"messages": [USER], "seed": 1.5}, '"seed": expected an integer, got 1.5'),
        ({"messages": [USER], "tools": {}}, '"tools": expected a list'),
    ],
)
def test_what_is_no_request_is_refused_by_its_field(body, message):
    with pytest.raises(InputError, match=message):
        read_chat(body)


@pytest.mark.parametrize("prompt", [None, 3, [], ["one", "two"], [3]])
def test_a_plain_request_has_one_prompt(prompt):
    with pytest.raises(InputError, match=r'^"prompt": expected one string'):
        read_completion({"prompt": prompt})


def test_what_a_request_leaves_out_has_the_usual_values():
    assert read_chat({"messages": [USER]}) == ChatRequest(messages=(Message(role="user", text="q"),))
    assert read_completion({"prompt": "q"}) == ChatRequest(messages=(Message(role="prompt", text="q"),), plain=True)


def test_every_field_is_read_up_to_its_bounds():
    shared = {"n": 128, "max_tokens": 1, "temperature": 2, "stop": ["a", "", "b"], "seed": 0}
    read = {"n": 128, "max_tokens": 1, "temperature": 2.0, "stop": ("a", "b"), "seed": 0, "logprobs": True}
    assert read_chat({"messages": [USER], "logprobs": True, "top_logprobs": 20, **shared}) == ChatRequest(
        messages=(Message(role="user", text="q"),), top_logprobs=20, **read
    )
    assert read_completion({"prompt": "q", "logprobs": 20, **shared}) == ChatRequest(
        messages=(Message(role="prompt", text="q"),), plain=True, top_logprobs=20, **read
    )
    least = read_chat({"messages": [USER], "n": 1, "top_logprobs": 0, "temperature": 0, "stop": "a"})
    assert (least.n, least.top_logprobs, least.temperature, least.stop) == (1, 0, 0.0, ("a",))
    for newer, read in ((5, 5), (None, 9)):
        assert read_chat({"messages": [USER], "max_completion_tokens": newer, "max_tokens": 9}).max_tokens == read


def test_a_plain_request_is_one_message_with_the_candidates_in_place_of_the_wish():
    request = read_completion({"prompt": ["q"], "max_tokens": 16})
    assert (request.messages, request.plain) == ((Message(role="prompt", text="q"),), True)
    for logprobs, read in ((None, (False, 0)), (False, (False, 0)), (True, (True, 0)), (0, (True, 0)), (5, (True, 5))):
        request = read_completion({"prompt": "q", "logprobs": logprobs})
        assert (request.logprobs, request.top_logprobs) == read


def test_a_choice_forces_a_function_only_where_it_says_which():
    one, two = {"function": {"name": "one"}}, {"function": {"name": "two"}}

    def forced(tools, **choice):
        return read_chat({"messages": [USER], "tools": tools, **choice}).forced_tool

    assert forced([one], tool_choice="any") == forced([one], function_call="required") == "one"
    assert forced([one, two], tool_choice={"type": "tool", "name": "two"}) == "two"
    assert forced([one], tool_choice={"type": "function"}, function_call={"name": "one"}) == "one"
    assert forced([one], tool_choice="auto") is None
    assert forced([one], tool_choice={"type": "function", "function": {"name": 3}}) is None
    assert forced([one, two], tool_choice="required") is None
    assert forced([], tool_choice="required") is None


@pytest.mark.parametrize(
    ("wanted", "schema", "json_object"),
    [
        ({"type": "text"}, None, False),
        ({"type": "json_object", "json_schema": {"schema": {"type": "object"}}}, None, True),
        ({"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "array"}}}, {"type": "array"}, False),
        ({"type": "json_schema"}, {}, False),
        ({"type": "json_schema", "json_schema": {"schema": None}}, {}, False),
    ],
)
def test_a_form_has_its_schema(wanted, schema, json_object):
    request = read_chat({"messages": [USER], "response_format": wanted})
    assert (request.schema, request.json_object) == (schema, json_object)
