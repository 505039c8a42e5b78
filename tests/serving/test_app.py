"""The whole app: keys, errors, metrics, what it says of itself, clients side by side, and its end."""

import logging
import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from judgelm.errors import ConfigError, InputError
from judgelm.serving.settings import ServerSettings, check_exposure, public_name, read_keys
from tests.support.endpoint.backends import ScriptedBackend
from tests.support.endpoint.server import endpoint
from tests.support.known_judge import quality
from tests.support.served import CHAT, HeldEngine, connected, error_of, review, served, until
from tests.support.writing_engine import WritingEngine


@pytest.fixture(scope="module")
def server():
    with served(settings={"api_keys": ("sk-one", "sk-two")}) as one:
        one.http.headers["Authorization"] = "Bearer sk-one"
        yield one


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Authorization": "Bearer sk-three"},
        {"Authorization": "sk-one"},
        {"Authorization": "Bearer"},
        {"api-key": "sk"},
        {"Authorization": "Bearer sk-on\xe9"},
    ],
)
@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/metrics", "/openapi.json", "/nowhere"])
def test_nothing_is_told_without_a_key(server, path, headers, caplog):
    with caplog.at_level(logging.DEBUG):
        encoded = {name: value.encode("latin-1") for name, value in headers.items()}
        reply = httpx.request("POST" if path == CHAT else "GET", server.url + path, headers=encoded)
    assert (reply.status_code, error_of(reply)["code"]) == (401, "invalid_api_key")
    assert "sk-" not in reply.text
    assert "sk-" not in caplog.text


def test_keys_stand_in_no_representation():
    assert "sk-one" not in repr(ServerSettings(model="m", api_keys=("sk-one",)))


def test_keys_come_from_options_file_and_environment(tmp_path, monkeypatch):
    file = tmp_path / "keys.txt"
    file.write_text("# ours\nsk-file\n\nsk-option\n")
    monkeypatch.setenv("JUDGELM_API_KEYS", "sk-a, sk-b")
    assert read_keys(["sk-option"], file) == ("sk-option", "sk-a", "sk-b", "sk-file")
    file.write_text("# none\n")
    with pytest.raises(InputError, match="no API keys"):
        read_keys([], file)
    with pytest.raises(InputError, match="cannot read"):
        read_keys([], tmp_path / "missing.txt")
    with pytest.raises(ConfigError, match="printable ASCII") as found:
        read_keys(["sk secret"], None)
    assert "secret" not in str(found.value)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.0.7", "judge.example.org"])
def test_other_machines_need_a_key_or_a_word(host):
    for own in ("127.0.0.1", "localhost", "::1"):
        check_exposure(own, (), no_auth=False, way_out="add a key")
    with pytest.raises(ConfigError, match="--no-auth"):
        check_exposure(host, (), no_auth=False, way_out="add a key")
    check_exposure(host, ("sk",), no_auth=False, way_out="add a key")
    check_exposure(host, (), no_auth=True, way_out="add a key")
    with pytest.raises(ConfigError, match="conflicts with"):
        check_exposure(host, ("sk",), no_auth=True, way_out="add a key")


def test_a_folder_is_called_by_its_name_alone(tmp_path):
    assert public_name(str(tmp_path / "judge"), "transformers") == str(tmp_path / "judge")  # a hub id, or nothing
    (tmp_path / "judge").mkdir()
    assert public_name(str(tmp_path / "judge"), "transformers") == "judge"
    assert public_name("BAAI/JudgeLM-7B-v1.0", "vllm") == "BAAI/JudgeLM-7B-v1.0"
    assert public_name("8 6", "scripted") == "scripted"


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/", 404, "not_found"),
        ("POST", "/v1/embeddings", 404, "not_found"),
        ("GET", "/docs", 404, "not_found"),
        ("GET", "/v1/models/", 200, None),
        ("GET", "/../../etc/passwd", 404, "not_found"),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("DELETE", "/v1/models/judge", 405, "method_not_allowed"),
        ("OPTIONS", "/v1/judge", 405, "method_not_allowed"),
    ],
)
def test_what_is_not_there_is_said_in_openais_form(server, method, path, status, code):
    reply = server.http.request(method, path)
    assert reply.status_code == status
    if code:
        assert error_of(reply)["code"] == code


def test_a_fault_of_the_server_tells_the_log_only(server, caplog):
    def broken():
        raise RuntimeError("/home/secret/judge.py fell")

    server.app.add_api_route("/broken", broken, include_in_schema=False)
    reply = server.http.get("/broken")
    assert (reply.status_code, error_of(reply)["code"]) == (500, "internal_error")
    assert "secret" not in reply.text
    assert "Traceback" not in reply.text
    assert "judge.py fell" in caplog.text
    assert server.post(CHAT, review()).status_code == 200  # on the same connection


def test_metrics_tell_routes_dialects_times_and_tokens(server):
    server.post(CHAT, review())
    server.post(CHAT, {"messages": []})
    found = server.http.get("/metrics")
    assert found.headers["content-type"].startswith("text/plain")
    assert f'judgelm_requests_total{{dialect="vicuna-review",judge="judge",route="{CHAT}",status="200"}}' in found.text
    assert f'judgelm_requests_total{{dialect="",judge="judge",route="{CHAT}",status="400"}}' in found.text
    assert f'judgelm_request_seconds_count{{route="{CHAT}"}}' in found.text
    assert re.search(r'^judgelm_prompt_tokens_total{judge="judge"} [1-9]', found.text, re.MULTILINE)
    assert re.search(r'^judgelm_completion_tokens_total{judge="judge"} [1-9]', found.text, re.MULTILINE)
    assert 'judgelm_errors_total{code="invalid_value"}' in found.text
    assert "\njudgelm_waiting 0.0" in found.text
    assert "\njudgelm_joined_total 0.0" in found.text


def test_names_of_routes_are_not_clients_own(server):
    server.http.get("/v1/models/somebodys-secret-model")
    server.http.get("/somebodys-secret-path")
    text = server.http.get("/metrics").text
    assert "somebodys" not in text
    assert 'route="/v1/models/{model}"' in text


def test_clients_side_by_side_never_see_each_other(server):
    def ask(number):
        mine = f"only number {number} knows this"
        body = review(mine, mine, f"not {mine}")
        good = server.post("/v1/judge", {"id": mine, "question": mine, "answer_1": mine, "answer_2": "b"})
        bad = server.post(CHAT, body | {"n": mine})
        chat = server.post(CHAT, body)
        return mine, [good.text, bad.text], chat.json()

    with ThreadPoolExecutor(16) as pool:
        for mine, texts, chat in pool.map(ask, range(60)):
            line = f"{quality(mine)} {quality(f'not {mine}')}"
            assert chat["choices"][0]["message"]["content"].split("\n")[0] == line
            for text in texts:
                assert set(re.findall(r"only number \d+ knows this", text)) == {mine}


def test_while_it_closes_it_finishes_what_it_has_and_refuses_what_is_new():
    engine = HeldEngine()
    with served(engine) as server:
        with ThreadPoolExecutor(5) as pool:
            replies = [pool.submit(server.post, CHAT, review(f"q{n}")) for n in range(5)]
            until(lambda: server.handler.worker.in_flight == 5)
            server.server.handle_exit(15, None)
            for path in ("/v1/models", "/healthz", "/readyz"):
                refused = httpx.get(server.url + path)
                assert (refused.status_code, error_of(refused)["code"]) == (503, "shutting_down")
            assert httpx.get(server.url + "/livez").status_code == 200
            engine.gate.set()
            assert [one.result().status_code for one in replies] == [200] * 5
        until(lambda: server.server.should_exit)
        assert server.server.unanswered == 0


def test_what_is_not_finished_in_time_is_told_so():
    engine = HeldEngine()
    with served(engine, finish_s=0.3) as server:
        with ThreadPoolExecutor(2) as pool:
            replies = [pool.submit(server.post, CHAT, review(f"q{n}")) for n in range(2)]
            until(lambda: server.handler.worker.in_flight == 2)
            server.server.handle_exit(15, None)
            for one in replies:
                assert (one.result().status_code, error_of(one.result())["code"]) == (503, "shutting_down")
        assert server.server.unanswered == 2


@pytest.mark.parametrize("signal_number", [2, 15])
def test_a_second_signal_answers_all_that_it_cuts_off(signal_number, caplog):
    head = (
        " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\nContent-Type: multipart/form-data; boundary=b\r\n\r\n--"
    )
    with served(HeldEngine(), finish_s=60) as server, ThreadPoolExecutor(2) as pool:
        judging = pool.submit(server.post, CHAT, review())
        uploads = [connected(server, f"POST {path}{head}".encode()) for path in ("/v1/judge", "/v1/files")]
        until(lambda: server.server._traffic.in_flight == 3 and server.handler.worker.in_flight == 1)
        for _ in range(2):
            server.server.handle_exit(signal_number, None)
        reply = judging.result()
        assert (reply.status_code, error_of(reply)["code"]) == (503, "shutting_down")
        assert reply.headers["retry-after"] == "5"
        for upload in uploads:
            assert upload.recv(65536).startswith(b"HTTP/1.1 503")
    assert server.server.unanswered == 3
    assert "Traceback" not in caplog.text


def test_a_second_signal_ends_a_stream_with_an_error_event(caplog):
    body = {"messages": [{"role": "user", "content": "Count."}], "stream": True}
    engine = WritingEngine({"*": "one two three " * 1000})
    with served(engine, finish_s=60, chat=True) as server, server.http.stream("POST", CHAT, json=body) as reply:
        lines = reply.iter_lines()
        assert any("two" in line for line in lines)
        for _ in range(2):
            server.server.handle_exit(2, None)
        rest = [line for line in lines if line]
    assert '"code": "shutting_down"' in rest[-1]
    assert "Traceback" not in caplog.text


class HeldBackend(ScriptedBackend):
    """Another server's model, which answers when its gate is open."""

    def __init__(self):
        super().__init__(marker="### Response:")
        self.gate = threading.Event()
        self.gate.set()
        self.begun = 0

    def generate(self, prompt, asked, number):
        self.begun += not self.gate.is_set()
        assert self.gate.wait(60)
        return super().generate(prompt, asked, number)


@pytest.mark.distributed
def test_sigterm_with_twenty_requests_in_flight_loses_none():
    backend = HeldBackend()
    with endpoint(backend) as upstream:
        command = [sys.executable, "-m", "judgelm", "serve", "tiny", "--upstream", upstream.base_url, "--port", "0"]
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            url = next(match[0] for line in process.stderr if (match := re.search(r"http://[^/]+/v1", line)))
            backend.gate.clear()
            pairs = [{"id": str(n), "question": f"q{n}", "answer_1": "a", "answer_2": "b"} for n in range(20)]
            with ThreadPoolExecutor(20) as pool:
                replies = [pool.submit(httpx.post, f"{url}/judge", json=pair, timeout=60) for pair in pairs]
                until(lambda: backend.begun >= 20, 30)
                process.terminate()
                until(lambda: httpx.get(f"{url}/models").status_code == 503)
                backend.gate.set()
                results = [reply.result() for reply in replies]
            assert [result.status_code for result in results] == [200] * 20
            assert [result.json()["id"] for result in results] == [str(n) for n in range(20)]
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.communicate()
