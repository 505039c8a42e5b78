"""The server answers any request correctly, and the next request as before."""

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
from starlette.testclient import TestClient

from judgelm.judge import Judge
from judgelm.modes import MODES
from judgelm.runs.engine_worker import EngineWorker
from judgelm.serving.app import create_app
from judgelm.serving.handler import HandlerOptions, JudgeHandler
from judgelm.serving.settings import ServerSettings
from tests.support.served import CHAT, error_of, prompt, review, served


def relaxed(examples):
    relaxations = [HealthCheck.function_scoped_fixture, HealthCheck.too_slow, HealthCheck.filter_too_much]
    return settings(max_examples=examples, deadline=None, suppress_health_check=relaxations)


CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
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
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(INNER), inner, max_size=4),
    max_leaves=12,
)


@pytest.fixture(scope="module")
def server():
    with served(unknown="answer") as server:
        yield server


def conforms(server, examples):
    """Call every documented operation with bodies of its schema, and check the reply against the documentation."""
    described = schemathesis.openapi.from_url(f"{server.url}/openapi.json")
    paths = []
    for operation in (result.ok() for result in described.get_all_operations()):

        @relaxed(examples)
        @given(case=operation.as_strategy())
        def ask(case):
            case.validate_response(case.call(), checks=CHECKS)

        ask()
        paths.append(operation.path)
    assert len(paths) == 17


def test_replies_conform_to_the_openapi_document(server):
    conforms(server, 15)


@pytest.mark.slow
def test_many_replies_conform_to_the_openapi_document(server):
    conforms(server, 500)


@pytest.mark.parametrize("path", [CHAT, "/v1/completions", "/v1/engines/x/chat/completions", "/v1/judge"])
@relaxed(40)
@example(changed={"options": {"name": "pair"}})
@given(changed=st.dictionaries(st.sampled_from(FIELDS), VALUES, min_size=1, max_size=4))
def test_fields_of_wrong_types_cause_no_internal_error(server, path, changed):
    usual = {"question": "q", "answer_1": "a", "answer_2": "b"} if path == "/v1/judge" else review()
    reply = server.post(path, usual | {"prompt": prompt()} | changed)
    assert reply.status_code in (200, 400, 404, 422), reply.text
    if reply.status_code != 200:
        assert error_of(reply)["message"]


@relaxed(60)
@given(raw=st.binary(max_size=200) | st.text(alphabet=string.printable, max_size=200).map(str.encode))
def test_arbitrary_bytes_cause_no_internal_error(server, raw):
    assert server.post(CHAT, raw).status_code == 400


@relaxed(60)
@given(texts=st.tuples(st.text(max_size=80), st.text(max_size=80), st.text(max_size=80)))
def test_any_texts_get_a_valid_reply(server, texts):
    reply = server.post(CHAT, review(*texts))
    assert reply.status_code == 200, reply.text
    assert reply.headers["x-judgelm-dialect"] in ("vicuna-review", "none")
    assert all((name + value).isascii() for name, value in reply.headers.items())


PLAIN = "/v1/completions"
PAIR = {"question": "q", "answer_1": "a fox", "answer_2": "b"}
HUGE, TINY = "1" + "0" * 400, "1e-300"


@pytest.fixture(scope="module")
def client(tiny_model):
    """A server of a real model without a chat template: a broken engine would answer 503 from then on."""
    with Judge(str(tiny_model), dtype="float32", template="judgelm-compact") as judge:
        worker = EngineWorker(judge.engine)
        handler = JudgeHandler(judge, worker, HandlerOptions(unknown="answer"))
        with TestClient(create_app(handler, ServerSettings(model="tiny")), base_url="http://localhost") as client:
            client.worker = worker
            yield client
        worker.close()


def post(client, path, body, **fields):
    """The reply to a body with fields whose values are JSON texts, such as numbers that Python does not write."""
    text = json.dumps(body)[:-1] + "".join(f", {json.dumps(name)}: {value}" for name, value in fields.items()) + "}"
    return client.post(path, content=text.encode())


def is_as_before(client):
    assert (client.worker.broken, client.get("/livez").status_code) == (None, 200)
    assert client.post("/v1/judge", json=PAIR).json()["shown"][0]["text"]


@pytest.mark.parametrize("value", [TINY, "5e-324", "1e-5", "99", "1e300", "1e999", "-1e-300", "NaN", "Infinity", HUGE])
def test_a_temperature_is_used_or_refused(client, value):
    for path, body in (("/v1/judge", PAIR), (PLAIN, {"prompt": "hi", "max_tokens": 3})):
        assert post(client, path, body, temperature=value).status_code in (200, 400)
    is_as_before(client)


@pytest.mark.parametrize("name", ["seed", "max_tokens", "reason_tokens", "tie_threshold", "close_threshold", "scale"])
@pytest.mark.parametrize("value", [HUGE, f"-{HUGE}", TINY, "1e999", "-1", "NaN", "1e300", "[]"])
def test_numbers_of_a_mode_are_used_or_refused(client, name, value):
    options = '{"' + name + '": ' + value + "}"
    assert post(client, "/v1/judge", PAIR, options=options).status_code in (200, 400)
    assert client.worker.broken is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("top_p", TINY), ("max_tokens", "1e9"), ("logit_bias", '{"32": 1e300}')),
        *[("seed", value) for value in (HUGE, f"-{HUGE}", "18446744073709551616")],
        *[("stop", json.dumps(value)) for value in ([""], [["a"]])],
    ],
)
def test_fields_of_a_completion_are_used_or_refused(client, name, value):
    body = {"prompt": "hi"} | ({} if name == "max_tokens" else {"max_tokens": 3})
    reply = post(client, PLAIN, body, **{name: value})
    assert reply.status_code in (200, 400)
    assert reply.status_code == 200 or len(error_of(reply)["message"]) < 400
    assert client.worker.broken is None


@pytest.mark.parametrize("mode", MODES)
def test_a_mode_whose_prompts_the_model_cannot_take_fails_alone(client, mode):
    rows = {"image": {"images": ["data:image/png;base64,AA"]}, "multi": {"answers": ["a", "b", "c"]}}
    body = PAIR | {"mode": mode, "reference": "r", "answer": "a"} | rows.get(mode, {})
    assert client.post("/v1/judge", json=body).status_code < 500
    is_as_before(client)


def test_a_prompt_that_needs_a_chat_template_fails_alone(client):
    body = {"mode": "correctness", "question": "q", "answer": "a", "reference": "r", "options": {"chat": True}}
    failure = client.post("/v1/judge", json=body).json()["failure"]
    assert (failure["code"], "chat template" in failure["why"] + failure["text"]) == ("engine", True)
    is_as_before(client)


def test_ignored_fields_of_an_answer_are_noted(client):
    body = {"prompt": "hi", "max_tokens": 3, "top_p": 0.5, "logit_bias": {"3": 1}, "presence_penalty": 0}
    assert "fields are ignored: logit_bias" in client.post(PLAIN, json=body).headers["x-judgelm-note"]
