"""A trajectory written for the tests, in the forms in which agents' logs have it."""

import json


def chat(*, name="find_order", arguments='{"id": 7}', result='{"status": "shipped"}', last="It was shipped."):
    """In OpenAI's chat form."""
    call = {"id": "c1", "type": "function", "function": {"name": name, "arguments": arguments}}
    return [
        {"role": "system", "content": "You serve a shop."},
        {"role": "user", "content": "Where is order 7?"},
        {"role": "assistant", "content": "I look.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": result},
        {"role": "assistant", "content": last},
    ]


def text(**fields):
    return json.dumps(chat(**fields))


def calls(*named):
    made = [{"name": name, "args": arguments} for name, arguments in named]
    return [{"role": "assistant", "tool_calls": made}]
