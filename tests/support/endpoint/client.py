"""The OpenAI engine as a client of the endpoint."""

import threading
from contextlib import contextmanager

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.records import Request, Sampling
from tests.support.driving import prompt_of, run


def load(*servers, options=None, **arguments):
    address = ",".join(server if isinstance(server, str) else server.base_url for server in servers)
    arguments = {"base_url": address, "backoff_s": 0.01} | arguments
    return load_engine("openai", EngineOptions(model="tiny", engine_args=arguments, **(options or {})))


@contextmanager
def client(*servers, **options):
    engine = load(*servers, **options)
    try:
        yield engine
    finally:
        engine.close()


def request_of(key="x", prompt=None, candidates=(), **sampling):
    """A request whose prompt judges its key, for the reply's first line."""
    settings = {"max_tokens": 6, "stop": ("\n",)} | sampling
    return Request(key=key, prompt=prompt or prompt_of(key), sampling=Sampling(**settings), candidates=candidates)


def ask(engine, key="x", **more):
    return run(engine, [request_of(key, **more)])[key]


def ask_all(engine, *keys):
    return run(engine, [request_of(key) for key in keys])


def engine_threads():
    """Threads of engines that run now."""
    return {thread for thread in threading.enumerate() if thread.name == "openai-engine"}
