"""The request log: a line for each request, with texts only where they are asked for."""

import json
from contextlib import closing
from pathlib import Path

import pytest

from judgelm.errors import RunError
from judgelm.serving.request_log import RequestLog
from tests.support.served import CHAT, review, served, until


def lines(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def logged(path, count, *, texts=False, ask):
    with closing(RequestLog(path, texts=texts)) as log, served(request_log=log, chat=True) as server:
        replies = ask(server)
        until(lambda: path.exists() and len(lines(path)) == count)
    return replies, lines(path)


def test_each_request_has_a_line_and_its_id_in_the_reply(tmp_path):
    def ask(server):
        server.http.get("/healthz")  # probes come every few seconds and are left out
        pair = {"question": "secret", "answer_1": "a", "answer_2": "b"}
        judged = server.post(CHAT, review("secret")), server.post("/v1/judge", pair)
        return [*judged, server.http.get("/secret?key=secret")]

    replies, rows = logged(tmp_path / "log.jsonl", 3, ask=ask)
    assert [row["id"] for row in rows] == [reply.headers["x-request-id"] for reply in replies]
    assert [(row["method"], row["route"], row["status"]) for row in rows] == [
        ("POST", CHAT, 200),
        ("POST", "/v1/judge", 200),
        ("GET", "other", 404),
    ]
    assert [(row["judge"], row["dialect"], row["error"]) for row in rows] == [
        ("judge", "vicuna-review", ""),
        ("judge", "", ""),
        ("", "", "not_found"),
    ]
    assert all(row["prompt_tokens"] > 0 and row["completion_tokens"] > 0 for row in rows[:2])
    assert all(row["ms"] > 0 for row in rows)
    assert "secret" not in (tmp_path / "log.jsonl").read_text()


def test_texts_are_written_where_they_are_asked_for(tmp_path):
    stream = {"model": "m", "messages": [{"role": "user", "content": "Hello"}], "stream": True}

    def ask(server):
        return [server.post(CHAT, review("secret", "<one>\n")), server.post(CHAT, stream)]

    replies, rows = logged(tmp_path / "log.jsonl", 2, texts=True, ask=ask)
    assert json.loads(rows[0]["request"]) == review("secret", "<one>\n")
    assert [row["reply"] for row in rows] == [reply.text for reply in replies]


def test_a_rotated_file_is_begun_anew(tmp_path):
    path = tmp_path / "log.jsonl"

    def ask(server):
        server.http.get("/v1/models")
        until(lambda: len(lines(path)) == 1)
        path.rename(tmp_path / "log.jsonl.1")
        server.http.get("/v1/models")

    logged(path, 1, ask=ask)
    assert len(lines(tmp_path / "log.jsonl.1")) == 1


def test_a_line_that_cannot_be_written_costs_no_request(caplog):
    with closing(RequestLog(Path("/dev/full"))) as log, served(request_log=log) as server:
        assert server.post(CHAT, review()).status_code == 200
        assert server.post(CHAT, review("another")).status_code == 200
    assert "cannot write the request log /dev/full: [Errno 28] No space left on device" in caplog.messages


def test_a_file_that_cannot_be_opened_is_named(tmp_path):
    with pytest.raises(RunError, match=r"none/log\.jsonl: cannot write the request log"):
        RequestLog(tmp_path / "none" / "log.jsonl")
