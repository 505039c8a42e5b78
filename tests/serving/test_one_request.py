"""Whatever one request asks of a model, the next one is answered as before."""

import json

import pytest

from judgelm.judge import Judge
from judgelm.modes import MODES
from judgelm.serving.app import create_app
from judgelm.serving.engine_worker import EngineWorker
from judgelm.serving.handler import HandlerOptions, JudgeHandler
from judgelm.serving.settings import ServerSettings
from tests.support.served import error_of

PLAIN = "/v1/completions"
PAIR = {"question": "q", "answer_1": "a fox", "answer_2": "b"}
HUGE, TINY = "1" + "0" * 400, "1e-300"


@pytest.fixture(scope="module")
def client(tiny_model):
    """A server of a real model without a chat template: a broken engine would answer 503 from then on."""
    from starlette.testclient import TestClient

    with Judge(str(tiny_model), dtype="float32", template="judgelm-compact") as judge:
        worker = EngineWorker(judge.engine)
        handler = JudgeHandler(judge, worker, HandlerOptions(chat=True))
        with TestClient(create_app(handler, ServerSettings(model="tiny")), base_url="http://localhost") as one:
            one.worker = worker
            yield one
        worker.close()


def asked(client, path, body, **fields):
    """The reply to a body with fields whose values are JSON texts, such as numbers that Python does not write."""
    text = json.dumps(body)[:-1] + "".join(f", {json.dumps(name)}: {value}" for name, value in fields.items()) + "}"
    return client.post(path, content=text.encode())


def is_as_before(client):
    assert client.worker.broken is None
    assert client.get("/livez").status_code == 200
    shown = client.post("/v1/judge", json=PAIR).json()["shown"]
    assert shown[0]["text"]


@pytest.mark.parametrize("value", [TINY, "5e-324", "1e-5", "99", "1e300", "1e999", "-1e-300", "NaN", "Infinity", HUGE])
def test_a_temperature_is_used_or_refused(client, value):
    for path, body in (("/v1/judge", PAIR), (PLAIN, {"prompt": "hi", "max_tokens": 3})):
        assert asked(client, path, body, temperature=value).status_code in (200, 400)
    is_as_before(client)


@pytest.mark.parametrize("name", ["seed", "max_tokens", "reason_tokens", "tie_threshold", "close_threshold", "scale"])
@pytest.mark.parametrize("value", [HUGE, f"-{HUGE}", TINY, "1e999", "-1", "NaN", "1e300", "[]"])
def test_numbers_of_a_mode_are_used_or_refused(client, name, value):
    options = '{"' + name + '": ' + value + "}"
    assert asked(client, "/v1/judge", PAIR, options=options).status_code in (200, 400)
    assert client.worker.broken is None


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("top_p", TINY),
        ("max_tokens", "1e9"),
        *[("seed", value) for value in (HUGE, f"-{HUGE}", "18446744073709551616")],
        *[("stop", json.dumps(value)) for value in ([""], [["a"]])],
        ("logit_bias", '{"32": 1e300}'),
    ],
)
def test_fields_of_a_completion_are_used_or_refused(client, name, value):
    body = {"prompt": "hi"} | ({} if name == "max_tokens" else {"max_tokens": 3})
    reply = asked(client, PLAIN, body, **{name: value})
    assert reply.status_code in (200, 400)
    if reply.status_code == 400:
        assert len(error_of(reply)["message"]) < 400
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
    assert failure["code"] == "engine"
    assert "chat template" in failure["why"] + failure["text"]
    is_as_before(client)


def test_what_a_chat_ignores_is_said(client):
    body = {"prompt": "hi", "max_tokens": 3, "top_p": 0.5, "logit_bias": {"3": 1}, "presence_penalty": 0}
    assert "ignored in ordinary chats: top_p, logit_bias" in client.post(PLAIN, json=body).headers["x-judgelm-note"]
