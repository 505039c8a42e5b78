"""Whatever is sent, the server answers in form, and never with a fault of its own."""

import json
import string

import pytest
import schemathesis
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from tests.support.served import CHAT, error_of, prompt, review, served

RELAXED = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much]
CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
PATHS = [CHAT, "/v1/completions", "/v1/engines/x/chat/completions", "/v1/judge"]
FIELDS = [
    *("model", "messages", "prompt", "n", "logprobs", "top_logprobs", "tools", "tool_choice", "functions", "echo"),
    *("function_call", "response_format", "max_tokens", "max_completion_tokens", "stream", "stream_options", "stop"),
    *("temperature", "seed", "question", "answers", "answer_1", "answer_2", "reference", "mode", "options", "samples"),
    *("both_orders", "reasons", "distribution", "order_rule", "images", "image", "turns", "id", "category", "scores"),
]
INNER = ["role", "content", "type", "text", "function", "name", *FIELDS]
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["pair", "multi", "user", "system", "all", "text", prompt()]),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["role", "content", "type", "text", "function", "name", *FIELDS]), inner, max_size=4
        )
    ),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def server():
    with served(chat=True) as one:
        yield one


def conforms(server, examples):
    """Ask every operation that the server describes with bodies of its own schema, and hold it to what it says."""
    described = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    found = []
    for operation in (one.ok() for one in described.get_all_operations()):

        @settings(max_examples=examples, deadline=None, suppress_health_check=RELAXED)
        @given(case=operation.as_strategy())
        def ask(case):
            case.validate_response(case.call(), checks=CHECKS)

        ask()
        found.append(operation.path)
    assert len(found) == 28


def test_what_the_server_says_of_itself_is_true(server):
    conforms(server, 15)


@pytest.mark.slow
def test_what_the_server_says_of_itself_is_true_at_length(server):
    conforms(server, 500)


@pytest.mark.parametrize("path", PATHS)
@settings(max_examples=40, deadline=None, suppress_health_check=RELAXED)
@example(changed={"options": {"name": "pair"}})
@given(changed=st.dictionaries(st.sampled_from(FIELDS), VALUES, min_size=1, max_size=4))
def test_fields_of_wrong_types_are_no_fault_of_the_server(server, path, changed):
    usual = {"question": "q", "answer_1": "a", "answer_2": "b"} if path == "/v1/judge" else review()
    reply = server.post(path, usual | {"prompt": prompt()} | changed)
    assert reply.status_code in (200, 400, 404, 422), reply.text
    if reply.status_code != 200:
        assert error_of(reply)["message"]


@settings(max_examples=60, deadline=None, suppress_health_check=RELAXED)
@given(raw=st.binary(max_size=200) | st.text(alphabet=string.printable, max_size=200).map(str.encode))
def test_bytes_are_no_fault_of_the_server(server, raw):
    assert server.post(CHAT, raw).status_code == 400


@settings(max_examples=60, deadline=None, suppress_health_check=RELAXED)
@given(texts=st.tuples(st.text(max_size=80), st.text(max_size=80), st.text(max_size=80)))
def test_whatever_the_texts_the_reply_has_its_form(server, texts):
    body = json.loads(json.dumps(review(*texts)))
    reply = server.post(CHAT, body)
    assert reply.status_code == 200, reply.text
    assert reply.headers["x-judgelm-dialect"] in ("vicuna-review", "none")
    for name, value in reply.headers.items():
        assert (name + value).isascii()
