"""Limits of requests in size and time, and requests whose clients have disconnected."""

import json
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from judgelm.serving.http_errors import HttpError, parse_json
from tests.support.served import CHAT, HeldEngine, error_of, review, served, until
from tests.support.served import connected as raw


@pytest.fixture(scope="module")
def server():
    with served(settings={"max_body_bytes": 10_000, "body_timeout_s": 0.4}) as server:
        yield server


@pytest.fixture
def held():
    """A server whose engine answers when `engine.gate` is set."""
    engine = HeldEngine()
    with served(engine, settings={"request_timeout_s": 20}, max_queue=3) as server:
        yield server
        engine.gate.set()


def request(body, length=None):
    encoded = json.dumps(body).encode()
    length = length or len(encoded)
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
    return head.encode() + encoded


def received(connection):
    """Return everything until the server closes."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def test_large_whole_and_chunked_bodies_are_refused(server):
    chunked = httpx.post(server.url + CHAT, content=(b"x" * 1000 for _ in range(100)))
    for reply in (whole := server.post(CHAT, review("q" * 20_000)), chunked):
        assert (reply.status_code, error_of(reply)["code"]) == (413, "body_too_large")
    assert whole.headers["connection"] == "close"
    assert server.post(CHAT, review()).status_code == 200


def test_late_bodies_time_out(server):
    answer = received(raw(server, request(review(), length=5000)))
    assert answer.startswith(b"HTTP/1.1 408")
    assert b'"code": "request_timeout"' in answer


def test_a_disconnect_during_the_body_is_counted(server):
    raw(server, request(review(), length=5000)).close()
    until(lambda: 'status="499"' in server.http.get("/metrics").text)
    assert server.post(CHAT, review()).status_code == 200


def trickle(connection, data, *, every_s, seconds):
    """Send byte by byte until the server closes; return its answer and the elapsed seconds."""
    began, answer = time.monotonic(), b""
    connection.settimeout(every_s)
    for byte in data:
        if time.monotonic() - began > seconds:
            raise AssertionError("the server does not close the connection")
        try:
            connection.sendall(bytes([byte]))
            if not (part := connection.recv(65536)):
                break
            answer += part
        except TimeoutError:
            continue
        except OSError:
            break
    return answer, time.monotonic() - began


HEAD = b"POST /v1/judge HTTP/1.1\r\nHost: localhost\r\n" + b"X-Slow: yes\r\n" * 1000


def test_connections_with_slow_headers_are_closed(server):
    connections = [raw(server, b"") for _ in range(3)]
    _, took_s = trickle(connections[0], HEAD, every_s=0.02, seconds=10)
    assert took_s >= 0.3
    for idle in connections[1:]:  # sent nothing
        idle.settimeout(5)
        assert idle.recv(1) == b""
    assert server.post(CHAT, review()).status_code == 200
    until(lambda: len(server.server.server_state.connections) <= 1)  # httpx keeps its own


def test_the_second_headers_of_a_connection_have_the_same_time_limit(server):
    connection = raw(server, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    time.sleep(0.6)  # longer than headers may take: an idle connection is kept
    trickle(connection, HEAD, every_s=0.02, seconds=10)


def test_endless_headers_are_refused(server):
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
    # one byte over the limit: unread bytes would reset the connection before the answer arrives
    connection = raw(server, (head + 65 * (b"X-More: " + b"y" * 1000 + b"\r\n"))[: (64 << 10) + 1])
    assert received(connection).startswith(b"HTTP/1.1 400")


GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
MEGABYTE = b"a" * (1 << 20)


def is_closed(connection, more=b"", times=20):
    """Send until the server closes, and return its answer."""
    try:
        for _ in range(times if more else 0):
            connection.sendall(more)
        return received(connection)
    except ConnectionError:
        return b""


@pytest.mark.parametrize(
    ("data", "more"),
    [
        (GET + CHUNKED + b"0\r\nX-A: ", MEGABYTE),
        (GET + CHUNKED + b"0\r\n", b"X-A: b\r\n" * 1000),
        (GET + CHUNKED + b"5;name=", MEGABYTE),
        (b"\r\n", b"\r\n" * (1 << 19)),
        (GET + b"Content-Length: 999999999999\r\n\r\n", MEGABYTE),
        (GET + b"\r\n" + b"\x00\x01 garbage\r\n\r\n", b""),
        (b"\x16\x03\x01 garbage\r\n\r\n", b""),
    ],
    ids=["trailer", "trailers", "chunk extension", "blank lines", "endless body", "garbage after", "garbage"],
)
def test_bytes_outside_requests_close_the_connection(server, data, more, caplog):
    is_closed(raw(server, data), more)
    assert server.http.get("/livez").status_code == 200
    assert "Traceback" not in caplog.text


def test_partial_pipelined_headers_do_not_break_the_answer(held):
    connection = raw(held, request(review()) + b"GET /healthz HTTP/1.1\r\nHost")
    until(lambda: held.handler.worker.in_flight == 1)
    held.handler.worker.engine.gate.set()
    assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    connection.sendall(b": localhost\r\nConnection: close\r\n\r\n")
    assert b'"status": "ok"' in received(connection)


def test_compressed_bodies_are_refused(server):
    reply = server.post(CHAT, b"\x1f\x8b", **{"Content-Encoding": "gzip"})
    assert (reply.status_code, error_of(reply)["code"]) == (415, "unsupported_encoding")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        *((body, "cannot parse") for body in (b"", b"{", b'{"a": ' + b"9" * 5000 + b"}")),
        *((body, "JSON object") for body in (b"[]", b"null", b'"text"')),
        *((b"\xff\xfe{}", "UTF-8"), (b'{"a": NaN}', "NaN is not valid"), (b'{"a": [1e999]}', "1e999 is too large")),
        *((b'{"a": ' + b"[" * 3000, "nested too deeply"), (b'{"a": "\\ud800"}', "surrogate")),
        (b'{"model": "x", "messages": [], "model": "y"}', 'key "model" appears twice'),
        (b'{"options": {"seed": 1, "\\u0073eed": 2}}', 'key "seed" appears twice'),
    ],
)
def test_invalid_json_is_refused(server, body, words):
    reply = server.post(CHAT, body)
    assert (reply.status_code, error_of(reply)["code"]) == (400, "invalid_json")
    assert words in error_of(reply)["message"]


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/completions", "/v1/judge", "/get_reward", "/v1/responses"),
        *("/v1/messages", "/v1/engines/x/chat/completions"),
    ],
)
def test_duplicate_keys_are_refused_on_every_route(server, path):
    reply = server.post(path, b'{"question": "q", "prompt": {"role": 1, "role": 2}}')
    assert (reply.status_code, error_of(reply)["code"]) == (400, "invalid_json")
    assert 'key "role" appears twice' in error_of(reply)["message"]


def test_duplicate_keys_in_a_label_are_refused(server):
    label = '{"question": "q", "reference": "4", "reference": "5"}'
    reply = server.post("/get_reward", {"query": ["p 4"], "prompts": ["p"], "labels": [label]})
    assert (reply.status_code, 'key "reference" appears twice' in error_of(reply)["message"]) == (400, True)


def test_surrogate_pairs_and_byte_order_marks_are_accepted():
    assert parse_json(b'\xef\xbb\xbf{"a": "\\ud83d\\ude00"}') == {"a": "\U0001f600"}
    with pytest.raises(HttpError):
        parse_json(b'{"\\ude00": 1}')


def test_a_deeply_nested_schema_is_not_a_server_error(server):
    nested = b'{"a":' * 900 + b"1" + b"}" * 900
    tools = b', "tools": [{"function": {"name": "f", "parameters": ' + nested + b"}}]}"
    assert server.post(CHAT, json.dumps(review()).encode()[:-1] + tools).status_code in (200, 400)


def test_late_answers_time_out():
    engine = HeldEngine()
    with served(engine, settings={"request_timeout_s": 0.3}) as server:
        reply = server.post(CHAT, review())
        assert (reply.status_code, error_of(reply)["code"]) == (504, "timeout")
        until(lambda: server.counts.dropped == 1)
        engine.gate.set()
        assert server.post(CHAT, review()).status_code == 200


@pytest.mark.parametrize("streaming", [False, True])
def test_a_disconnect_drops_the_judgment(held, streaming):
    connection = raw(held, request(review(stream=streaming)))
    until(lambda: held.handler.worker.in_flight == 1)
    connection.close()
    until(lambda: held.counts.dropped == 1)
    assert held.handler.worker.in_flight == 0
    until(lambda: held.server._traffic.in_flight == 0)


def test_a_disconnect_keeps_judgments_that_others_wait_for(held):
    connection = raw(held, request(review()))
    until(lambda: held.handler.worker.in_flight == 1)
    with ThreadPoolExecutor(1) as pool:
        other = pool.submit(held.post, CHAT, review())
        until(lambda: held.counts.joined == 1)
        connection.close()
        time.sleep(0.2)
        held.handler.worker.engine.gate.set()
    assert (other.result().status_code, held.counts.dropped) == (200, 0)


def test_a_full_queue_returns_429_with_retry_after(held):
    with ThreadPoolExecutor(3) as pool:
        replies = [pool.submit(held.post, CHAT, review(f"q{n}")) for n in range(3)]
        until(lambda: held.handler.worker.in_flight == 3)
        refused = held.post(CHAT, review("another"))
        held.handler.worker.engine.gate.set()
    error = error_of(refused)
    assert (refused.status_code, error["code"], error["type"]) == (429, "server_busy", "rate_limit_error")
    assert int(refused.headers["retry-after"]) >= 1
    assert [reply.result().status_code for reply in replies] == [200] * 3
    assert held.post(CHAT, review("another")).status_code == 200


def test_a_full_queue_names_the_sample(held):
    samples = [{"question": f"q{n}", "answer_1": "a", "answer_2": "b"} for n in range(10)]
    reply = held.post("/v1/judge", {"samples": samples})
    assert (reply.status_code, error_of(reply)["code"]) == (429, "server_busy")
    assert '"samples", 3' in error_of(reply)["message"]
    until(lambda: held.handler.worker.in_flight == 0)


LIMITED = """
import asyncio, resource, socket, sys
from judgelm.serving.server import WatchedServer, uvicorn_config

async def app(scope, receive, send):
    pass

server = WatchedServer(uvicorn_config(app))

async def main():
    with socket.create_server(("127.0.0.1", 0)) as listening:
        serving = asyncio.create_task(server.serve(sockets=[listening]))
        while not server.started:
            await asyncio.sleep(0.01)
        resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
        sockets = []
        try:
            while True:
                sockets.append(socket.socket())
        except OSError:
            pass
        await asyncio.sleep(0.5)
        for each in sockets:
            each.close()
        server.should_exit = True
        await serving

asyncio.run(main())
"""


def test_a_server_at_its_limit_of_open_files_logs_it_once():
    process = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=60, check=True)
    assert ["ulimit -n" in line for line in process.stderr.splitlines() if "limit (64)" in line] == [True]
