"""Loading the OpenAI-compatible engine: what is not there, not allowed or not right is said before anything runs."""

import threading

import pytest

from judgelm.engines.base import EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.errors import ConfigError, EngineError, ModelError
from judgelm.records import Request, Sampling
from tests.support.driving import prompt_of
from tests.support.endpoint.server import endpoint


def load(server, options=None, **arguments):
    arguments = {"base_url": server.base_url, "backoff_s": 0.01} | arguments
    return load_engine("openai", EngineOptions(model="tiny", engine_args=arguments, **(options or {})))


def threads_of_engines() -> set[threading.Thread]:
    """Those that run now; another test's engine may be one of them."""
    return {one for one in threading.enumerate() if one.name == "openai-engine"}


def test_a_server_that_is_not_there():
    before = threads_of_engines()
    with endpoint() as server:
        pass
    with pytest.raises(EngineError, match=r"127.0.0.1:\d+/v1 cannot be reached: .*is the server running"):
        load(server)
    assert threads_of_engines() == before


def test_a_model_the_server_does_not_have():
    missing = pytest.raises(ModelError, match="has no model 'tiny'; available: judge-13b, judge-7b")
    with endpoint(models=("judge-7b", "judge-13b")) as server, missing:
        load(server)


def test_an_address_that_is_no_api():
    with endpoint(has_models=False) as server:
        load(server).close()  # a server that lists no models may still have them
        with pytest.raises(ModelError, match="does not serve 'tiny'"):
            load(server, base_url=server.base_url + "/v2")


def test_a_key_that_is_missing_or_wrong(monkeypatch):
    with endpoint(key="sk-right") as server:
        monkeypatch.delenv("JUDGE_KEY", raising=False)
        with pytest.raises(ModelError, match=r"needs a key .*: set the environment variable JUDGE_KEY"):
            load(server, api_key_env="JUDGE_KEY")
        monkeypatch.setenv("JUDGE_KEY", "sk-wrong")
        with pytest.raises(ModelError, match="rejects the key in JUDGE_KEY") as raised:
            load(server, api_key_env="JUDGE_KEY")
        assert "sk-wrong" not in str(raised.value)
        monkeypatch.setenv("JUDGE_KEY", "sk-right")
        engine = load(server, api_key_env="JUDGE_KEY")
        server.key = "sk-changed"
        engine.submit([Request(key="1", prompt=prompt_of("x"), sampling=Sampling(max_tokens=6))])
        with pytest.raises(EngineError, match="rejects the key in JUDGE_KEY") as raised:
            engine.collect(10)
        assert "sk-right" not in str(raised.value) + str(engine.describe()) + str(engine.stats())
        engine.close()


def test_an_api_that_was_asked_for_and_is_not_there():
    missing = pytest.raises(ModelError, match=r"does not serve 'tiny' .*404.*; try --engine-arg api=auto")
    with endpoint(has_completions=False) as server, missing:
        load(server, api="completions")


def test_arguments_that_are_wrong_or_unknown(monkeypatch):
    def refused(match, options=None, **arguments):
        with pytest.raises(ConfigError, match=match):
            load_engine("openai", EngineOptions(model="x", engine_args=arguments, **(options or {})))

    refused("has no argument 'base'; available: base_url, api_key_env, api, concurrency", base="x")
    refused("concurrency='many': .*integer", concurrency="many")
    refused("api='completion'", api="completion")
    refused("localhost:8000 is not an http", base_url="localhost:8000")
    refused("max-model-len needs --engine-arg tokenizer", {"max_model_len": 100})
    refused("serve the adapter as a model", {"adapter": "a"})
    refused("has no dtype: the server decides", {"dtype": "float32"})
    monkeypatch.setenv("OPENAI_BASE_URL", "file://x")
    refused("file://x is not an http")


def test_numbers_may_come_as_texts_and_passwords_stay_out_of_the_manifest():
    with endpoint() as server:
        address = server.base_url.replace("http://", "http://me:secret@")
        engine = load(server, {"max_num_seqs": 3}, base_url=address, concurrency="5", timeout_s="20")
        assert engine.max_in_flight == 4 * 3
        assert engine.describe()["endpoint"] == server.base_url
        engine.close()


def test_a_tokenizer_that_cannot_be_loaded(tmp_path):
    with endpoint() as server, pytest.raises(ModelError, match="cannot load the tokenizer"):
        load(server, tokenizer=str(tmp_path / "none"))
