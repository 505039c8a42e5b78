"""Addresses, keys, proxies, certificates and odd bytes: reached as meant, and no secret is ever shown."""

import logging
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.errors import ConfigError, EngineError, ModelError
from judgelm.records import Request, Sampling
from tests.support.driving import prompt_of, run
from tests.support.endpoint.server import endpoint

SECRET = "sk-secret-0123456789"


def load(server, **arguments):
    arguments = {"base_url": server.base_url, "backoff_s": 0.01} | arguments
    return load_engine("openai", EngineOptions(model="tiny", engine_args=arguments))


def ask(engine, answer="x"):
    request = Request(key="1", prompt=prompt_of(answer), sampling=Sampling(max_tokens=6, stop=("\n",)))
    [done] = run(engine, [request]).values()
    return done


@pytest.fixture(autouse=True)
def no_proxy_of_the_machine(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


@pytest.mark.parametrize("end", ["", "/", "/v1/chat/completions"])
def test_an_address_without_v1_or_beyond_it_says_what_it_should_be(end):
    wrong = pytest.raises(ModelError, match="its address usually ends in /v1")
    with endpoint() as server, wrong:
        load(server, base_url=server.base_url.removesuffix("/v1") + end)


@pytest.mark.parametrize(
    "address",
    ["http://localhost:80a0/v1", "http://", "http:///v1", "http://[::1/v1", "http://h:99999/v1", "http://h\n/v1"],
)
def test_an_address_that_is_none(address):
    with pytest.raises(ConfigError, match=r"base_url=.* is not an http\(s\) address"):
        load_engine("openai", EngineOptions(model="tiny", engine_args={"base_url": address}))


def test_a_query_in_the_address_is_refused_and_not_shown():
    with pytest.raises(ConfigError, match=r"leave out everything from the first \?") as raised:
        load_engine("openai", EngineOptions(model="tiny", engine_args={"base_url": f"http://h/v1?key={SECRET}"}))
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("key", [f"{SECRET}\nx", f"{SECRET}é"])
def test_a_key_that_no_header_can_hold_is_refused_unseen(monkeypatch, key):
    monkeypatch.setenv("JUDGE_KEY", key)
    with endpoint() as server, pytest.raises(ConfigError, match="JUDGE_KEY holds no valid key") as raised:
        load(server, api_key_env="JUDGE_KEY")
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("before", range(370, 400, 5))
def test_a_key_at_the_place_where_words_are_cut_is_not_shown_in_part(monkeypatch, before):
    monkeypatch.setenv("JUDGE_KEY", SECRET)
    with endpoint() as server:
        engine = load(server, api_key_env="JUDGE_KEY")
        server.misbehave(lambda *_: (400, {"error": {"message": "x" * before + SECRET}}))
        assert "sk-" not in ask(engine).error
        engine.close()


def test_a_key_in_a_reply_that_is_no_json_is_not_shown(monkeypatch):
    monkeypatch.setenv("JUDGE_KEY", SECRET)
    with endpoint() as server:
        engine = load(server, api_key_env="JUDGE_KEY", retries=0)
        server.misbehave(lambda *_: (200, f"Authorization: Bearer {SECRET}"))
        with pytest.raises(EngineError, match="not JSON but") as raised:
            ask(engine)
        assert "sk-" not in str(raised.value)
        engine.close()


def test_a_password_in_the_address_is_sent_and_never_logged(caplog):
    caplog.set_level(logging.DEBUG)
    with endpoint() as server:
        engine = load(server, base_url=server.base_url.replace("http://", f"http://me:{SECRET}%40@"))
        assert ask(engine).texts == ("8 6",)
        assert server.keys == {"Basic bWU6c2stc2VjcmV0LTAxMjM0NTY3ODlA"}  # base64 of me:sk-secret-0123456789@
        engine.close()
    assert SECRET not in caplog.text


def test_a_proxy_of_the_environment_is_used(monkeypatch):
    with endpoint() as server:
        monkeypatch.setenv("HTTP_PROXY", server.base_url.removesuffix("/v1"))
        engine = load(server, base_url="http://judge.example/v1")
        assert ask(engine).texts == ("8 6",)
        assert server.counts["proxied"] > 2
        engine.close()


@pytest.mark.parametrize("proxy", ["foo://x", "http://h:a"])
def test_a_proxy_that_is_none_is_named(monkeypatch, proxy):
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(ConfigError, match="proxy in the environment"):
        load_engine("openai", EngineOptions(model="tiny", engine_args={"base_url": "http://judge.example/v1"}))


@pytest.mark.parametrize("api", ["chat", "completions"])
def test_half_a_character_is_an_error_of_that_request_alone(api):
    with endpoint() as server:
        engine = load(server, api=api)
        done = ask(engine, "half a fox \ud83e")
        assert done.finish_reasons == ("error",)
        assert "U+D83E" in done.error
        assert ask(engine).texts == ("8 6",)
        engine.close()


def test_a_wrong_argument_is_not_repeated_where_it_may_hold_a_secret():
    with pytest.raises(ConfigError) as raised:
        load_engine("openai", EngineOptions(model="tiny", engine_args={"api_key": SECRET}))
    assert SECRET not in str(raised.value)
    with pytest.raises(ConfigError, match="name of an environment variable") as raised:
        load_engine("openai", EngineOptions(model="tiny", engine_args={"api_key_env": SECRET}))
    assert SECRET not in str(raised.value)


INTERRUPTED = """
import sys
from tests.support.driving import prompt_of
from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.records import Request, Sampling

engine = load_engine("openai", EngineOptions(model="tiny", engine_args={"base_url": sys.argv[1]}))
engine.submit([Request(key=str(i), prompt=prompt_of("x"), sampling=Sampling(max_tokens=6)) for i in range(100)])
print("submitted", flush=True)
try:
    engine.collect(60)
except KeyboardInterrupt:
    engine.close()
    sys.exit(130)
"""


def test_an_interrupt_ends_the_process_at_once_and_drops_what_was_sent():
    with endpoint() as server:
        server.misbehave(lambda number, _: "stall" if number > 2 else None)
        command = [sys.executable, "-c", INTERRUPTED, server.base_url]
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        child = subprocess.Popen(command, env=environment, **pipes)
        assert child.stdout.readline() == "submitted\n"
        while server.at_once < 32:
            assert child.poll() is None
        child.send_signal(signal.SIGINT)
        _, said = child.communicate(timeout=5)
        assert (child.returncode, said) == (130, "")


def test_an_interrupt_while_loading_leaves_no_thread():
    before = {one for one in threading.enumerate() if one.name == "openai-engine"}
    with endpoint() as server:
        server.misbehave(lambda *_: "stall")
        main = threading.main_thread().ident
        timer = threading.Timer(0.5, lambda: signal.pthread_kill(main, signal.SIGINT))
        timer.start()
        with pytest.raises(KeyboardInterrupt):
            load(server)
    assert {one for one in threading.enumerate() if one.name == "openai-engine"} == before
