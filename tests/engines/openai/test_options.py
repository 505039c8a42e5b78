"""Addresses, keys, proxies and interrupts."""

import logging
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.engines.openai.options import endpoint_options
from judgelm.errors import ConfigError, EngineError, ModelError
from tests.support.endpoint.client import ask, client, engine_threads, load, request_of
from tests.support.endpoint.server import endpoint

SECRET = "sk-secret-0123456789"


@pytest.fixture(autouse=True)
def without_proxies(monkeypatch):
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)


def load_options(options=None, **arguments):
    return load_engine("openai", EngineOptions(model="tiny", engine_args=arguments, **(options or {})))


def test_unreachable_server():
    before = engine_threads()
    with endpoint() as server:
        pass
    with pytest.raises(EngineError, match=r"127.0.0.1:\d+/v1 is unreachable: .*check that the server is running"):
        load(server)
    assert engine_threads() == before


def test_address_without_an_api():
    with endpoint(has_models=False) as server:
        load(server).close()  # a server that lists no models may still have them
        with pytest.raises(ModelError, match="does not serve 'tiny'"):
            load(server, base_url=server.base_url + "/v2")
    missing = pytest.raises(ModelError, match=r"does not serve 'tiny' .*404.*; try --engine-arg api=auto")
    with endpoint(has_completions=False) as server, missing:
        load(server, api="completions")


def test_missing_or_wrong_key(monkeypatch):
    with endpoint(key="sk-right") as server:
        monkeypatch.delenv("JUDGE_KEY", raising=False)
        with pytest.raises(ModelError, match=r"(needs|requires) an API key .*: set the environment variable JUDGE_KEY"):
            load(server, api_key_env="JUDGE_KEY")
        monkeypatch.setenv("JUDGE_KEY", "sk-wrong")
        with pytest.raises(ModelError, match="key in JUDGE_KEY") as raised:
            load(server, api_key_env="JUDGE_KEY")
        assert "sk-wrong" not in str(raised.value)
        monkeypatch.setenv("JUDGE_KEY", "sk-right")
        engine = load(server, api_key_env="JUDGE_KEY")
        server.key = "sk-changed"
        engine.submit([request_of()])
        with pytest.raises(EngineError, match="key in JUDGE_KEY") as raised:
            engine.collect(10)
        assert "sk-right" not in str(raised.value) + str(engine.describe()) + str(engine.stats())
        engine.close()


def test_invalid_arguments(monkeypatch):
    def refused(match, options=None, **arguments):
        with pytest.raises((ConfigError, ModelError), match=match):
            load_options(options, **{"base_url": "http://h/v1"} | arguments)

    refused("has no argument 'base'; available: base_url, api_key_env, api, concurrency", base="x")
    refused("concurrency='many': .*integer", concurrency="many")
    refused("api='completion'", api="completion")
    for address in ("localhost:8000", "http://localhost:80a0/v1", "http://", "http:///v1", "http://[::1/v1",
                    "http://h:99999/v1", "http://h\n/v1"):  # fmt: skip
        refused(r"base_url=.* is not a valid http\(s\) URL", base_url=address)
    refused("cannot load the tokenizer", tokenizer="/none")
    refused("max-model-len requires --engine-arg tokenizer", {"max_model_len": 100})
    refused("serve the adapter as a model", {"adapter": "a"})
    refused("does not support dtype: it is set on the server", {"dtype": "float32"})
    monkeypatch.setenv("OPENAI_BASE_URL", "file://x")
    with pytest.raises(ConfigError, match="file://x is not a valid http"):
        load_options()


@pytest.mark.parametrize("arguments", [{}, {"base_url": ""}, {"base_url": " "}])
def test_address_is_required(monkeypatch, arguments):
    monkeypatch.setenv("OPENAI_API_KEY", SECRET)
    monkeypatch.setenv("OPENAI_BASE_URL", "")
    with pytest.raises(ConfigError, match=r"--engine-arg base_url=.* OPENAI_BASE_URL"):
        load_options(**arguments)


@pytest.mark.parametrize(
    "base_url",
    ["https://api.openai.com/v1", "https://eu.api.openai.com/v1", "https://mine.openai.azure.com/openai/v1",
     "http://localhost:9/v1,https://OpenRouter.ai/api/v1"],
)  # fmt: skip
def test_the_api_of_a_company_is_asked_only_with_a_key(monkeypatch, base_url):
    monkeypatch.delenv("MY_KEY", raising=False)
    options = EngineOptions(model="gpt", engine_args={"base_url": base_url, "api_key_env": "MY_KEY"})
    with pytest.raises(ConfigError, match=r"(needs|requires) an API key: .*variable MY_KEY"):
        endpoint_options(options)
    monkeypatch.setenv("MY_KEY", SECRET)
    assert endpoint_options(options).key == SECRET


@pytest.mark.parametrize("host", ["judge.example", "myopenai.com", "openai.com.judge.example", "me.cloudapp.azure.com"])
def test_other_servers_need_no_key(monkeypatch, host):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert endpoint_options(EngineOptions(model="m", engine_args={"base_url": f"https://{host}/v1"})).key is None


@pytest.mark.parametrize("end", ["", "/", "/v1/chat/completions"])
def test_wrong_path_in_the_address(end):
    with endpoint() as server, pytest.raises(ModelError, match="address usually ends in /v1"):
        load(server, base_url=server.base_url.removesuffix("/v1") + end)


@pytest.mark.parametrize(
    ("arguments", "finding"),
    [
        ({"base_url": f"http://h/v1?key={SECRET}"}, r"remove everything from the first \?"),
        ({"api_key": SECRET}, "no argument 'api_key'"),
        ({"base_url": "http://h/v1", "api_key_env": SECRET}, "name of the environment variable"),
    ],
)
def test_errors_do_not_repeat_secrets(arguments, finding):
    with pytest.raises(ConfigError, match=finding) as raised:
        load_options(**arguments)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("key", [f"{SECRET}\nx", f"{SECRET}é"])
def test_invalid_key_is_rejected_without_showing_it(monkeypatch, key):
    monkeypatch.setenv("JUDGE_KEY", key)
    with endpoint() as server, pytest.raises(ConfigError, match="key in JUDGE_KEY must be a single line") as raised:
        load(server, api_key_env="JUDGE_KEY")
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize("before", range(370, 400, 5))
def test_truncated_message_does_not_show_part_of_the_key(monkeypatch, before):
    monkeypatch.setenv("JUDGE_KEY", SECRET)
    with endpoint() as server, client(server, api_key_env="JUDGE_KEY") as engine:
        server.misbehave(lambda *_: (400, {"error": {"message": "x" * before + SECRET}}))
        assert "sk-" not in ask(engine).error


def test_password_in_the_address_is_sent_but_not_logged(caplog):
    caplog.set_level(logging.DEBUG)
    with endpoint() as server:
        address = server.base_url.replace("http://", f"http://me:{SECRET}%40@")
        engine = load(server, options={"max_num_seqs": 3}, base_url=address, concurrency="5", timeout_s="20")
        assert ask(engine).texts == ("8 6",)
        assert (engine.describe()["endpoint"], engine.max_in_flight) == (server.base_url, 4 * 3)
        engine.close()
        assert server.keys == {"Basic bWU6c2stc2VjcmV0LTAxMjM0NTY3ODlA"}  # base64 of me:sk-secret-0123456789@
    assert SECRET not in caplog.text


@pytest.mark.parametrize("proxy", ["foo://x", "http://h:a"])
def test_invalid_proxy_is_rejected(monkeypatch, proxy):
    monkeypatch.setenv("ALL_PROXY", proxy)
    with pytest.raises(ConfigError, match="proxy set in the environment"):
        load_options(base_url="http://judge.example/v1")


def test_only_the_request_with_a_surrogate_fails():
    with endpoint() as server, client(server) as engine:
        done = ask(engine, "half a fox \ud83e")
        assert done.finish_reasons == ("error",)
        assert "U+D83E" in done.error
        assert ask(engine).texts == ("8 6",)


INTERRUPTED = """
import sys
from tests.support.endpoint.client import load, request_of

engine = load(sys.argv[1])
engine.submit([request_of(str(i)) for i in range(100)])
print("submitted", flush=True)
try:
    engine.collect(60)
except KeyboardInterrupt:
    engine.close()
    sys.exit(130)
"""


def test_interrupt_ends_the_process():
    with endpoint() as server:
        server.misbehave(lambda number, _: "stall" if number > 2 else None)
        environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        child = subprocess.Popen([sys.executable, "-c", INTERRUPTED, server.base_url], env=environment, **pipes)
        assert child.stdout.readline() == "submitted\n"
        while server.at_once < 32:
            assert child.poll() is None
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate(timeout=5)
        assert (child.returncode, errors) == (130, "")
