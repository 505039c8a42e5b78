"""The whole app: keys, errors, metrics, request log, concurrent clients and shutdown."""

import json
import logging
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from judgelm.errors import RunError
from judgelm.serving.request_log import RequestLog
from tests.support.jsonl_files import rows_of
from tests.support.known_judge import quality
from tests.support.served import CHAT, HeldEngine, connected, error_of, review, served, until
from tests.support.writing_engine import WritingEngine


@pytest.fixture(scope="module")
def server():
    with served(settings={"api_keys": ("sk-one", "sk-two")}) as server:
        server.http.headers["Authorization"] = "Bearer sk-one"
        yield server


@pytest.mark.parametrize(
    "headers",
    [
        *({}, {"Authorization": "Bearer sk-three"}, {"Authorization": "sk-one"}, {"Authorization": "Bearer"}),
        *({"api-key": "sk"}, {"Authorization": "Bearer sk-on\xe9"}),
    ],
)
@pytest.mark.parametrize("path", [CHAT, "/v1/models", "/metrics", "/openapi.json", "/nowhere"])
def test_every_route_needs_a_key(server, path, headers, caplog):
    with caplog.at_level(logging.DEBUG):
        encoded = {name: value.encode("latin-1") for name, value in headers.items()}
        reply = httpx.request("POST" if path == CHAT else "GET", server.url + path, headers=encoded)
    assert (reply.status_code, error_of(reply)["code"]) == (401, "invalid_api_key")
    assert "sk-" not in reply.text + caplog.text


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        *((method, path, 404, "not_found") for method, path in (("GET", "/"), ("POST", "/v1/embeddings"))),
        *(("GET", path, 404, "not_found") for path in ("/docs", "/../../etc/passwd")),
        ("GET", "/v1/models/", 200, None),
        ("GET", CHAT, 405, "method_not_allowed"),
        ("DELETE", "/v1/models/judge", 405, "method_not_allowed"),
        ("OPTIONS", "/v1/judge", 405, "method_not_allowed"),
    ],
)
def test_unknown_routes_and_methods_have_openais_errors(server, method, path, status, code):
    reply = server.http.request(method, path)
    assert reply.status_code == status
    if code:
        assert error_of(reply)["code"] == code


def test_an_internal_error_is_only_logged(server, caplog):
    def broken():
        raise RuntimeError("/home/secret/judge.py fell")

    server.app.add_api_route("/broken", broken, include_in_schema=False)
    reply = server.http.get("/broken")
    assert (reply.status_code, error_of(reply)["code"]) == (500, "internal_error")
    assert ("secret" in reply.text, "Traceback" in reply.text, "judge.py fell" in caplog.text) == (False, False, True)
    assert server.post(CHAT, review()).status_code == 200  # on the same connection


def test_metrics_have_routes_dialects_times_and_tokens(server):
    server.post(CHAT, review())
    server.post(CHAT, {"messages": []})
    for path in ("/v1/models/somebodys-secret-model", "/somebodys-secret-path"):
        server.http.get(path)
    reply = server.http.get("/metrics")
    assert reply.headers["content-type"].startswith("text/plain")
    for metric in (
        f'judgelm_requests_total{{dialect="vicuna-review",judge="judge",route="{CHAT}",status="200"}}',
        f'judgelm_requests_total{{dialect="",judge="judge",route="{CHAT}",status="400"}}',
        f'judgelm_request_seconds_count{{route="{CHAT}"}}',
        *('judgelm_errors_total{code="invalid_value"}', "\njudgelm_waiting 0.0", "\njudgelm_joined_total 0.0"),
        'route="/v1/models/{model}"',
    ):
        assert metric in reply.text
    for kind in ("prompt", "completion"):
        assert re.search(rf'^judgelm_{kind}_tokens_total{{judge="judge"}} [1-9]', reply.text, re.MULTILINE)
    assert "somebodys" not in reply.text


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


def test_shutdown_finishes_current_requests_and_refuses_new_ones():
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
            assert [reply.result().status_code for reply in replies] == [200] * 5
        until(lambda: server.server.should_exit)
        assert server.server.unanswered == 0


def test_requests_that_are_not_finished_in_time_get_an_error():
    with served(HeldEngine(), finish_s=0.3) as server:
        with ThreadPoolExecutor(2) as pool:
            futures = [pool.submit(server.post, CHAT, review(f"q{n}")) for n in range(2)]
            until(lambda: server.handler.worker.in_flight == 2)
            server.server.handle_exit(15, None)
            for reply in (future.result() for future in futures):
                assert (reply.status_code, error_of(reply)["code"]) == (503, "shutting_down")
        assert server.server.unanswered == 2


@pytest.mark.parametrize("signal_number", [2, 15])
def test_a_second_signal_answers_interrupted_requests(signal_number, caplog):
    head = " HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99\r\n\r\n{"
    with served(HeldEngine(), finish_s=60) as server, ThreadPoolExecutor(2) as pool:
        judging = pool.submit(server.post, CHAT, review())
        uploads = [connected(server, f"POST {path}{head}".encode()) for path in ("/v1/judge", "/v1/responses")]
        until(lambda: server.server._traffic.in_flight == 3 and server.handler.worker.in_flight == 1)
        for _ in range(2):
            server.server.handle_exit(signal_number, None)
        reply = judging.result()
        assert (reply.status_code, error_of(reply)["code"]) == (503, "shutting_down")
        assert reply.headers["retry-after"] == "5"
        for upload in uploads:
            assert upload.recv(65536).startswith(b"HTTP/1.1 503")
    assert (server.server.unanswered, "Traceback" in caplog.text) == (3, False)


def test_a_second_signal_ends_a_stream_with_an_error_event(caplog):
    body = {"messages": [{"role": "user", "content": "Count."}], "stream": True}
    engine = WritingEngine({"*": "one two three " * 1000})
    with served(engine, finish_s=60, unknown="answer") as server, server.http.stream("POST", CHAT, json=body) as reply:
        lines = reply.iter_lines()
        assert any("two" in line for line in lines)
        for _ in range(2):
            server.server.handle_exit(2, None)
        rest = [line for line in lines if line]
    assert '"code": "shutting_down"' in rest[-1]
    assert "Traceback" not in caplog.text


def test_sixty_four_clients_lose_and_mix_up_nothing():
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "benchmarks.server_load", "--clients", "64", "--requests", "1000"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200, cwd=root)
    assert done.returncode == 0, done.stderr
    expected = {"requests": 1000, "answered": 1000, "errors": 0, "wrong": 0, "lost": 0, "exit_code": 0}
    report = json.loads(done.stdout)
    assert {name: report[name] for name in expected} == expected


def logged(path, count, *, texts=False, ask):
    with closing(RequestLog(path, texts=texts)) as log, served(request_log=log, unknown="answer") as server:
        replies = ask(server)
        until(lambda: path.exists() and len(rows_of(path)) == count)
    return replies, rows_of(path)


def test_each_request_has_a_line_and_its_id_in_the_reply(tmp_path):
    def ask(server):
        server.http.get("/healthz")  # probes come every few seconds and are left out
        pair = {"question": "secret", "answer_1": "a", "answer_2": "b"}
        judged = server.post(CHAT, review("secret")), server.post("/v1/judge", pair)
        return [*judged, server.http.get("/secret?key=secret")]

    replies, rows = logged(tmp_path / "log.jsonl", 3, ask=ask)
    assert [row["id"] for row in rows] == [reply.headers["x-request-id"] for reply in replies]
    names = ("method", "route", "status", "judge", "dialect", "error")
    assert [tuple(row[name] for name in names) for row in rows] == [
        ("POST", CHAT, 200, "judge", "vicuna-review", ""),
        ("POST", "/v1/judge", 200, "judge", "", ""),
        ("GET", "other", 404, "", "", "not_found"),
    ]
    assert all(row["prompt_tokens"] > 0 and row["completion_tokens"] > 0 for row in rows[:2])
    assert all(row["ms"] > 0 for row in rows)
    assert "secret" not in (tmp_path / "log.jsonl").read_text()


def test_texts_are_logged_on_request(tmp_path):
    stream = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "stream": True}

    def ask(server):
        return [server.post(CHAT, body) for body in (review("secret", "<one>\n"), stream)]

    replies, rows = logged(tmp_path / "log.jsonl", 2, texts=True, ask=ask)
    assert json.loads(rows[0]["request"]) == review("secret", "<one>\n")
    assert [row["reply"] for row in rows] == [reply.text for reply in replies]


def test_a_rotated_file_is_created_again(tmp_path):
    path = tmp_path / "log.jsonl"

    def ask(server):
        server.http.get("/v1/models")
        until(lambda: len(rows_of(path)) == 1)
        path.rename(tmp_path / "log.jsonl.1")
        server.http.get("/v1/models")

    logged(path, 1, ask=ask)
    assert len(rows_of(tmp_path / "log.jsonl.1")) == 1


def test_requests_succeed_if_the_log_cannot_be_written(caplog):
    with closing(RequestLog(Path("/dev/full"))) as log, served(request_log=log) as server:
        assert [server.post(CHAT, review(question)).status_code for question in "ab"] == [200, 200]
    assert any("/dev/full: [Errno 28]" in message for message in caplog.messages)


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(RunError, match=r"none/log\.jsonl: cannot write the request log"):
        RequestLog(tmp_path / "none" / "log.jsonl")
