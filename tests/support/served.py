"""A real server in a thread, with a known judge behind it."""

import json
import socket
import threading
import time
from contextlib import contextmanager
from dataclasses import dataclass

import httpx
from fastapi import FastAPI

from judgelm.serving.app import create_app
from judgelm.serving.handler import JudgeHandler
from judgelm.serving.server import Server, uvicorn_config
from judgelm.serving.settings import ServerSettings, bind
from tests.support.known_judge import KnownEngine, handler_of

OPENING = "You are a helpful and precise assistant for checking the quality of the answer."
REVIEW = (
    "[Question]\n{question}\n\n[The Start of Assistant 1's Answer]\n{first}\n\n[The End of Assistant 1's Answer]\n\n"
    "[The Start of Assistant 2's Answer]\n{second}\n\n[The End of Assistant 2's Answer]\n\n[System]\nPlease rate both. "
    "Please first output a single line containing only two values indicating the scores.\n\n"
)
CHAT = "/v1/chat/completions"


def review(question="q", first="one", second="two", **more):
    texts = {"system": OPENING, "user": REVIEW.format(question=question, first=first, second=second)}
    messages = [{"role": role, "content": text} for role, text in texts.items()]
    return {"model": "gpt-4", "messages": messages, "max_tokens": 1024} | more


def prompt(question="q", first="one", second="two"):
    return f"{OPENING}\n" + REVIEW.format(question=question, first=first, second=second) + "### Response:"


class HeldEngine(KnownEngine):
    def __init__(self, **options):
        super().__init__(**options)
        self.gate = threading.Event()

    def collect(self, timeout_s):
        return super().collect(timeout_s) if self.gate.wait(min(timeout_s, 0.02)) else []


@dataclass(frozen=True)
class Served:
    url: str
    http: httpx.Client
    handler: JudgeHandler
    server: Server
    app: FastAPI

    @property
    def counts(self):
        return self.handler.worker.counts

    def post(self, path, body, **headers):
        raw = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.http.post(path, content=raw, headers=headers)


@contextmanager
def served(engine=None, *, settings=None, finish_s=5.0, max_queue=4096, request_log=None, **options):
    with handler_of(engine, **options) as handler:
        handler.worker.max_queue = max_queue
        app_settings = ServerSettings(model="judge", **(settings or {}))
        app = create_app(handler, app_settings, request_log=request_log)
        bound = bind("127.0.0.1", 0)
        url = f"http://127.0.0.1:{bound.getsockname()[1]}"
        listening = threading.Event()
        server = Server(
            uvicorn_config(app, head_timeout_s=app_settings.body_timeout_s), traffic=app.state.traffic,
            worker=handler.worker, finish_s=finish_s, on_listening=listening.set,
        )  # fmt: skip
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]})
        thread.start()
        assert listening.wait(20)
        try:
            with httpx.Client(base_url=url, timeout=30) as http:
                yield Served(url, http, handler, server, app)
        finally:
            server.should_exit = True
            thread.join()
            bound.close()


def connected(server, data):
    host, port = server.url.removeprefix("http://").split(":")
    connection = socket.create_connection((host, int(port)), timeout=10)
    connection.sendall(data)
    return connection


def raw_reply(server, data):
    """The beginning of the reply to these bytes."""
    with connected(server, data) as connection:
        return connection.recv(65536)


def error_of(reply):
    assert reply.headers["content-type"] == "application/json"
    body = reply.json()
    assert body.keys() == {"error"}
    assert body["error"].keys() == {"message", "type", "param", "code"}
    return body["error"]


def until(condition, seconds=10):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if condition():
            return
        time.sleep(0.01)
    raise AssertionError("it never came true")
