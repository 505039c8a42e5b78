"""What a server does not take, how long it waits, and what becomes of questions that nobody waits for any more."""

import json
import subprocess
import sys
import threading
import time
from contextlib import suppress

import httpx
import pytest

from judgelm.serving.http_errors import HttpError, parse_json
from tests.support.served import CHAT, HeldEngine, error_of, review, served, until
from tests.support.served import connected as raw


@pytest.fixture(scope="module")
def server():
    with served(settings={"max_body_bytes": 10_000, "body_timeout_s": 0.4}) as one:
        yield one


@pytest.fixture
def held():
    """A server whose engine answers when `engine.gate` is set."""
    engine = HeldEngine()
    with served(engine, settings={"request_timeout_s": 20}, max_queue=3) as one:
        yield one
        engine.gate.set()


def request(body, length=None):
    encoded = json.dumps(body).encode()
    length = len(encoded) if length is None else length
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {length}\r\n\r\n"
    return head.encode() + encoded


def received(connection):
    """All until the server closes."""
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts)


def in_background(server, body, replies):
    thread = threading.Thread(target=lambda: replies.append(httpx.post(server.url + CHAT, json=body, timeout=30)))
    thread.start()
    return thread


def test_a_body_that_is_too_large_is_refused(server):
    reply = server.post(CHAT, review("q" * 20_000))
    assert (reply.status_code, error_of(reply)["code"]) == (413, "body_too_large")
    assert reply.headers["connection"] == "close"
    assert server.post(CHAT, review()).status_code == 200


def test_a_body_in_chunks_is_measured_too(server):
    chunks = (b"x" * 1000 for _ in range(100))
    reply = httpx.post(server.url + CHAT, content=chunks)
    assert (reply.status_code, error_of(reply)["code"]) == (413, "body_too_large")


def test_a_body_that_does_not_come_is_not_waited_for(server):
    connection = raw(server, request(review(), length=5000))
    answer = received(connection)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b'"code": "request_timeout"' in answer


def test_a_client_that_leaves_while_it_sends_harms_nothing(server):
    raw(server, request(review(), length=5000)).close()
    until(lambda: 'status="499"' in server.http.get("/metrics").text)
    assert server.post(CHAT, review()).status_code == 200


def trickle(connection, data, *, every_s, seconds):
    """Send byte by byte until the server closes; what it said, and how long it took it."""
    began, answer = time.monotonic(), b""
    connection.settimeout(every_s)
    for byte in (data[place : place + 1] for place in range(len(data))):
        if time.monotonic() - began > seconds:
            raise AssertionError("the server waits and waits")
        try:
            connection.sendall(byte)
            if not (part := connection.recv(65536)):
                break
            answer += part
        except TimeoutError:
            continue
        except OSError:
            break
    return answer, time.monotonic() - began


HEAD = b"POST /v1/judge HTTP/1.1\r\nHost: localhost\r\n" + b"X-Slow: yes\r\n" * 1000


def test_headers_byte_by_byte_hold_nothing(server):
    connections = [raw(server, b"") for _ in range(3)]
    answer, took_s = trickle(connections[0], HEAD, every_s=0.02, seconds=10)
    assert answer.startswith(b"HTTP/1.1 408")
    assert b'"code": "request_timeout"' in answer
    assert took_s >= 0.3
    for idle in connections[1:]:  # sent nothing at all
        idle.settimeout(5)
        assert idle.recv(1) == b""
    assert server.post(CHAT, review()).status_code == 200
    until(lambda: len(server.server.server_state.connections) <= 1)  # httpx keeps its own


def test_the_second_head_of_a_connection_has_no_more_time_than_the_first(server):
    connection = raw(server, b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n")
    assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    time.sleep(0.6)  # longer than a head may take: an idle connection is kept
    answer, _ = trickle(connection, b"\r\n" + HEAD, every_s=0.02, seconds=10)
    assert answer.startswith(b"HTTP/1.1 408")


def test_headers_without_end_are_refused(server):
    head = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
    more = b"X-More: " + b"y" * 1000 + b"\r\n"
    # one byte too many: bytes that the server leaves unread would reset the connection, and its answer with it
    connection = raw(server, (head + 65 * more)[: (64 << 10) + 1])
    assert received(connection).startswith(b"HTTP/1.1 431")


GET = b"GET /livez HTTP/1.1\r\nHost: localhost\r\n"
CHUNKED = b"Transfer-Encoding: chunked\r\n\r\n"
MEGABYTE = b"a" * (1 << 20)


def is_closed(connection, more=b"", times=20):
    """Send until the server closes; what it answered."""
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
        (GET + CHUNKED + b"0\r\nX-A: b\r\n\r\n", b""),
        (GET + CHUNKED + b"0\r\n", b"X-A: b\r\n" * 1000),
        (b"POST /v1/judge HTTP/1.1\r\nHost: localhost\r\n" + CHUNKED + b"2\r\n{}\r\n0\r\nX-A: b\r\n\r\n", b""),
        (b"POST /v1/judge HTTP/1.1\r\nHost: localhost\r\n" + CHUNKED + b"0\r\napi-key: ", MEGABYTE),
        (GET + CHUNKED + b"5;name=", MEGABYTE),
        (b"\r\n", b"\r\n" * (1 << 19)),
        (GET + b"\r\n", b"\r\n" * (1 << 19)),
        (GET + b"Content-Length: 999999999999\r\n\r\n", MEGABYTE),
        (GET + b"\r\n" + b"\x00\x01 garbage\r\n\r\n", b""),
        (b"\x16\x03\x01 garbage\r\n\r\n", b""),
        ((GET + b"\r\n") * 1000, b""),
        (GET + b"X-A: b\r\n" * 200 + b"\r\n", b""),
        (GET + b"a:\r\n" * 10_000 + b"\r\n", b""),
        (b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", b""),
    ],
    ids=[
        *("endless trailer", "small trailer", "trailers", "trailer of a post", "key as a trailer", "chunk extension"),
        *("blank lines", "blank lines behind", "endless body", "garbage behind", "garbage", "pipelined", "lines"),
        *("empty lines", "long url"),
    ],
)
def test_bytes_that_are_neither_headers_nor_body_close_the_connection(server, data, more):
    is_closed(raw(server, data), more)
    assert server.http.get("/livez").status_code == 200


def test_a_head_is_measured_however_it_arrives_and_before_its_key():
    with served(settings={"api_keys": ("secret",)}) as server:
        head = GET.replace(b"livez", b"v1/models") + b"X-A: " + b"y" * (80 << 10) + b"\r\n\r\n"
        pieces = [head[start : start + 7000] for start in range(0, len(head), 7000)]
        for parts in ([head], pieces):
            connection = raw(server, b"")
            with suppress(ConnectionError):  # closed before all was sent
                for part in parts:
                    connection.sendall(part)
            answer = is_closed(connection)
            assert answer == b"" or answer.startswith(b"HTTP/1.1 431")
            assert b"401" not in answer
        lines = GET.replace(b"livez", b"v1/models") + b"api-key: x\r\n" * 200 + b"\r\n"
        assert is_closed(raw(server, lines)).startswith(b"HTTP/1.1 431")


def test_a_body_of_single_bytes_in_chunks_is_read(server):
    body = json.dumps(review()).encode()
    chunks = b"".join(b"1\r\n" + body[place : place + 1] + b"\r\n" for place in range(len(body)))
    head = f"POST {CHAT} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n".encode()
    assert received(raw(server, head + CHUNKED + chunks + b"0\r\n\r\n")).startswith(b"HTTP/1.1 200")


def test_a_head_that_follows_too_soon_breaks_no_answer(held):
    """The next head stops in its middle while the first request is answered: the answer comes all the same."""
    connection = raw(held, request(review()) + b"GET /healthz HTTP/1.1\r\nHost")
    until(lambda: held.handler.worker.in_flight == 1)
    held.handler.worker.engine.gate.set()
    assert connection.recv(65536).startswith(b"HTTP/1.1 200")
    connection.sendall(b": localhost\r\n\r\n")
    assert b'"status": "ok"' in connection.recv(65536)


def test_bodies_come_uncompressed(server):
    reply = server.post(CHAT, b"\x1f\x8b", **{"Content-Encoding": "gzip"})
    assert (reply.status_code, error_of(reply)["code"]) == (415, "unsupported_encoding")


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "cannot be read"),
        (b"{", "cannot be read"),
        (b"[]", "JSON object"),
        (b"null", "JSON object"),
        (b'"text"', "JSON object"),
        (b"\xff\xfe{}", "UTF-8"),
        (b'{"a": NaN}', "NaN is not JSON"),
        (b'{"a": [1e999]}', "1e999 is too large"),
        (b'{"a": ' + b"9" * 5000 + b"}", "cannot be read"),
        (b'{"a": ' + b"[" * 3000, "nested too deeply"),
        (b'{"a": "\\ud800"}', "surrogate"),
        (b'{"model": "x", "messages": [], "model": "y"}', 'key "model" appears twice'),
        (b'{"options": {"seed": 1, "\\u0073eed": 2}}', 'key "seed" appears twice'),
    ],
)
def test_what_is_no_json_object_is_refused(server, body, words):
    reply = server.post(CHAT, body)
    assert (reply.status_code, error_of(reply)["code"]) == (400, "invalid_json")
    assert words in error_of(reply)["message"]


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/completions", "/v1/judge", "/get_reward", "/v1/batches", "/v1/responses"),
        *("/v1/messages", "/v1/load_lora_adapter", "/v1/unload_lora_adapter", "/v1/engines/x/chat/completions"),
    ],
)
def test_a_key_that_comes_twice_is_refused_on_every_route(server, path):
    reply = server.post(path, b'{"question": "q", "prompt": {"role": 1, "role": 2}}')
    assert (reply.status_code, error_of(reply)["code"]) == (400, "invalid_json")
    assert 'key "role" appears twice' in error_of(reply)["message"]


def test_a_key_that_comes_twice_in_a_label_is_refused(server):
    label = '{"question": "q", "reference": "4", "reference": "5"}'
    reply = server.post("/get_reward", {"query": ["p 4"], "prompts": ["p"], "labels": [label]})
    assert (reply.status_code, 'key "reference" appears twice' in error_of(reply)["message"]) == (400, True)


def test_whole_surrogate_pairs_and_byte_order_marks_are_json():
    assert parse_json(b'\xef\xbb\xbf{"a": "\\ud83d\\ude00"}') == {"a": "\U0001f600"}
    with pytest.raises(HttpError):
        parse_json(b'{"\\ude00": 1}')


def test_a_schema_nested_nearly_too_deeply_is_no_fault_of_the_server(server):
    nested = b'{"a":' * 900 + b"1" + b"}" * 900
    body = (
        json.dumps(review()).encode()[:-1] + b', "tools": [{"function": {"name": "f", "parameters": ' + nested + b"}}]}"
    )
    assert server.post(CHAT, body).status_code in (200, 400)


def test_an_answer_that_takes_too_long_is_given_up():
    engine = HeldEngine()
    with served(engine, settings={"request_timeout_s": 0.3}) as server:
        reply = server.post(CHAT, review())
        assert (reply.status_code, error_of(reply)["code"]) == (504, "timeout")
        until(lambda: server.counts.dropped == 1)
        engine.gate.set()
        assert server.post(CHAT, review()).status_code == 200


@pytest.mark.parametrize("streaming", [False, True])
def test_who_hangs_up_takes_the_question_along(held, streaming):
    connection = raw(held, request(review(stream=streaming)))
    until(lambda: held.handler.worker.in_flight == 1)
    connection.close()
    until(lambda: held.counts.dropped == 1)
    assert held.handler.worker.in_flight == 0
    until(lambda: held.server._traffic.in_flight == 0)


def test_who_hangs_up_takes_nothing_from_others_who_asked_the_same(held):
    connection, replies = raw(held, request(review())), []
    until(lambda: held.handler.worker.in_flight == 1)
    thread = in_background(held, review(), replies)
    until(lambda: held.counts.joined == 1)
    connection.close()
    time.sleep(0.2)
    held.handler.worker.engine.gate.set()
    thread.join()
    assert replies[0].status_code == 200
    assert held.counts.dropped == 0


def test_a_full_queue_says_when_to_come_again(held):
    replies = []
    threads = [in_background(held, review(f"q{n}"), replies) for n in range(3)]
    until(lambda: held.handler.worker.in_flight == 3)
    refused = held.post(CHAT, review("another"))
    assert (refused.status_code, error_of(refused)["code"]) == (429, "server_busy")
    assert int(refused.headers["retry-after"]) >= 1
    assert error_of(refused)["type"] == "rate_limit_error"
    held.handler.worker.engine.gate.set()
    for thread in threads:
        thread.join()
    assert [one.status_code for one in replies] == [200] * 3
    assert held.post(CHAT, review("another")).status_code == 200


def test_a_batch_that_finds_no_room_says_which_sample(held):
    samples = [{"question": f"q{n}", "answer_1": "a", "answer_2": "b"} for n in range(10)]
    reply = held.post("/v1/judge", {"samples": samples})
    assert (reply.status_code, error_of(reply)["code"]) == (429, "server_busy")
    assert '"samples", 3' in error_of(reply)["message"]
    until(lambda: held.handler.worker.in_flight == 0)  # the others were given up


FORM = "multipart/form-data; boundary=b"
OPENING = b'--b\r\nContent-Disposition: form-data; name="file"; filename="r.jsonl"\r\n\r\n'


def upload(content, length=None):
    head = f"POST /v1/files HTTP/1.1\r\nHost: localhost\r\nContent-Type: {FORM}\r\n"
    head += CHUNKED.decode() if length is None else f"Content-Length: {length}\r\n\r\n"
    return head.encode() + content


def test_an_upload_that_declares_too_much_is_refused_before_it_comes(server):
    answer = received(raw(server, upload(b"", length=600 << 20)))
    assert answer.startswith(b"HTTP/1.1 413")


def test_an_upload_in_chunks_is_refused_at_the_first_byte_too_many(server, monkeypatch):
    monkeypatch.setattr("judgelm.serving.batch_files._MAX_FILE_BYTES", 1 << 20)
    answer = is_closed(raw(server, upload(b"%x\r\n" % (1 << 30) + OPENING)), MEGABYTE, times=1000)
    assert answer == b"" or answer.startswith(b"HTTP/1.1 413")
    until(lambda: 'route="/v1/files",status="413"' in server.http.get("/metrics").text)


def test_an_upload_that_does_not_come_is_not_waited_for(server):
    answer, took_s = trickle(raw(server, upload(OPENING, length=5000)), b"x" * 5000, every_s=0.02, seconds=10)
    assert answer.startswith(b"HTTP/1.1 408")
    assert took_s >= 0.3


def test_a_large_upload_has_more_time_than_a_body(server):
    """0.4 s for each 10,000 bytes: 15,000 of 20,000 bytes have arrived, so that 0.6 s have been earned."""
    with raw(server, upload(OPENING + b"x" * 15_000, length=20_000)) as connection:
        began = time.monotonic()
        assert received(connection).startswith(b"HTTP/1.1 408")
        assert time.monotonic() - began > 0.5


def test_a_client_that_leaves_its_upload_is_no_fault_of_the_server(server, caplog):
    raw(server, upload(OPENING + b"x", length=5000)).close()
    until(lambda: 'route="/v1/files",status="499"' in server.http.get("/metrics").text)
    assert not caplog.records


@pytest.mark.parametrize(
    ("fields", "headers", "status", "code"),
    [
        (b"", {"Content-Encoding": "gzip"}, 415, "unsupported_encoding"),
        (b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\ny\r\n' * 20, {}, 400, "invalid_form"),
        (b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n' + b"y" * 2000 + b"\r\n", {}, 400, "invalid_form"),
        (b'--b\r\nContent-Disposition: form-data; name="' + b"y" * 60_000 + b'"\r\n\r\n\r\n', {}, 400, "invalid_form"),
        (OPENING + b"y\r\n", {}, 400, "invalid_form"),
        (b"", {"Content-Type": FORM + "; charset=undefined"}, 400, "invalid_form"),
        (b"", {"Content-Type": "multipart/form-data"}, 400, "invalid_form"),
        (b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n', {}, 400, "invalid_value"),
    ],
    ids=["gzip", "fields", "large field", "large header", "two files", "charset", "no boundary", "two purposes"],
)
def test_forms_beyond_the_limits_are_refused(server, fields, headers, status, code):
    purpose = b'--b\r\nContent-Disposition: form-data; name="purpose"\r\n\r\nbatch\r\n'
    body = purpose + fields + OPENING + b"{}\r\n--b--\r\n"
    reply = server.post("/v1/files", body, **{"Content-Type": FORM} | headers)
    assert (reply.status_code, error_of(reply)["code"]) == (status, code)


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


def test_a_server_at_its_limit_of_open_files_logs_it_once_with_the_way_out():
    process = subprocess.run([sys.executable, "-c", LIMITED], capture_output=True, text=True, timeout=60, check=True)
    [line] = [line for line in process.stderr.splitlines() if "at the limit of 64 open files" in line]
    assert "ulimit -n" in line
