"""The endpoint as a test holds it: what it has and takes, what goes wrong, start and kill."""

import socket
import threading
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import ThreadingHTTPServer

from tests.support.endpoint.backends import ScriptedBackend
from tests.support.endpoint.handler import Handler


def first(count, fault):
    """The fault for the first so many requests after now."""
    return lambda number, body: fault if number <= count else None


@dataclass
class Server:
    """What the endpoint has, takes and does wrong; all may be changed while it runs."""

    backend: object
    models: tuple = ("tiny",)
    has_models: bool = True
    has_completions: bool = True
    supports_grammar: bool = False
    logprobs: bool = True
    most_logprobs: int = 20
    chat_form: bool = False
    ignores_n: bool = False
    ignores_stop: bool = False
    refuses: tuple = ()
    window: int | None = None
    key: str | None = None
    retry_after: str | None = None
    most_at_once: int | None = None
    states_usage: bool = True
    delay_s: float = 0.0
    stall_s: float = 30.0
    fault: object = None
    counts: Counter = field(default_factory=Counter)
    bodies: list = field(default_factory=list)
    keys: set = field(default_factory=set)
    port: int = 0

    def __post_init__(self):
        self.lock = threading.Lock()
        self.at_once = 0
        self._number = 0
        self._http = None

    @property
    def base_url(self):
        return f"http://127.0.0.1:{self.port}/v1"

    def misbehave(self, fault):
        """From now on, with numbers that begin at 1."""
        with self.lock:
            self._number, self.fault = 0, fault

    def start(self):
        self._http = _Http(("127.0.0.1", self.port), Handler)
        self._http.control = self
        self.port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def kill(self):
        http, self._http = self._http, None
        if http is not None:
            http.shutdown()
            http.server_close()
            http.drop_all()

    def next_fault(self, body):
        with self.lock:
            self._number += 1
            return self.fault(self._number, body) if self.fault else None


@contextmanager
def endpoint(backend=None, **switches):
    """A `Server` that runs until the block ends."""
    server = Server(backend or ScriptedBackend(), **switches)
    server.start()
    try:
        yield server
    finally:
        server.kill()


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    allow_reuse_address = True
    request_queue_size = 256

    def __init__(self, *args):
        self._open = set()
        super().__init__(*args)

    def process_request(self, request, client_address):
        self._open.add(request)
        super().process_request(request, client_address)

    def shutdown_request(self, request):
        self._open.discard(request)
        super().shutdown_request(request)

    def drop_all(self):
        for request in list(self._open):
            with suppress(OSError):
                request.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request, client_address):
        pass  # a client that went away, or a connection that was dropped on purpose
