"""Keys and passwords never appear in files, messages, logs or metrics, however a run ends."""

import json
import logging
import os
import subprocess
import sys

import httpx
import pytest

from judgelm.cli.options import parse_pairs
from judgelm.data.generators import parse_generator
from judgelm.engines.base import EngineOptions
from judgelm.engines.openai.options import endpoint_options
from judgelm.errors import ConfigError
from judgelm.yaml_files import read_yaml
from tests.support.batch_runs import BATCH
from tests.support.endpoint.backends import ScriptedBackend
from tests.support.endpoint.server import endpoint
from tests.support.jsonl_files import write_rows
from tests.support.served import review, served

KEY, PASSWORD, HUB, SERVED = "sk-key-0123456789", "pa55-word-0123", "hf_token0123456789", "sk-served-0123456789"
SECRETS = (KEY, PASSWORD, HUB, SERVED)
ENVIRONMENT = {"OPENAI_API_KEY": KEY, "HF_TOKEN": HUB, "JUDGELM_API_KEYS": SERVED}


def assert_unseen(text):
    leaked = [secret for secret in SECRETS if secret in text]
    assert not leaked, f"{leaked} in {text[:2000]}"


def assert_unwritten(folder):
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert files
    for path in files:
        assert_unseen(path.read_bytes().decode("latin-1"))


def run(*command, cwd):
    words, environment = [str(part) for part in command], os.environ | ENVIRONMENT
    done = subprocess.run(words, cwd=cwd, env=environment, capture_output=True, text=True, check=False, timeout=240)
    assert_unseen(done.stdout + done.stderr)
    return done


@pytest.fixture
def folder(tmp_path):
    """A folder with pairs."""
    rows = ({"id": str(i), "question": f"q{i}", "answer_1": "a", "answer_2": "b"} for i in range(3))
    write_rows(tmp_path / "pairs.jsonl", rows)
    return tmp_path


def with_password(server):
    return server.base_url.replace("http://", f"http://me:{PASSWORD}@")


def judging(base_url, *more):
    """Return the options of a run against a server."""
    engine = ("--engine", "openai", "--model", "tiny", "--engine-arg", f"base_url={base_url}")
    return ("pairs.jsonl", "-o", "out.jsonl", *engine, "--engine-arg", "retries=0", *more)


@pytest.fixture
def batch(cli, folder, monkeypatch):
    """Run `judgelm-batch` with keys in the environment, and check that it prints none; return exit code and errors."""
    monkeypatch.chdir(folder)
    for name, secret in ENVIRONMENT.items():
        monkeypatch.setenv(name, secret)

    def run(base_url, *more):
        code, printed, errors = cli("judgelm-batch", *judging(base_url, *more))
        assert_unseen(printed + errors)
        return code, errors

    return run


def test_a_good_run_of_a_server_with_keys(folder):
    with endpoint(ScriptedBackend(marker="### Response:")) as server:
        assert run(BATCH, *judging(with_password(server)), cwd=folder).returncode == 0
    assert json.loads((folder / "out.run.json").read_text())["sessions"]
    assert_unwritten(folder)


@pytest.mark.parametrize(
    "fault",
    [
        (401, {"error": {"message": f"Incorrect API key provided: {KEY}"}}),
        (400, {"error": {"message": f"{KEY} {PASSWORD}"}}),
        (500, f"Authorization: Bearer {KEY}"),
        (200, f"no JSON: Authorization: Bearer {KEY}"),
    ],
    ids=["refused", "bad-request", "broken", "no-json"],
)
def test_a_server_that_repeats_secrets(batch, folder, fault):
    with endpoint(ScriptedBackend(marker="### Response:")) as server:
        server.misbehave(lambda number, *_: fault if number > 2 else None)
        assert batch(with_password(server))[0] != 0
    assert_unwritten(folder)


def test_an_unreachable_server(batch):
    with endpoint(ScriptedBackend(marker="### Response:")) as server:
        address = with_password(server)
    code, errors = batch(address)
    assert code == 1
    assert "is unreachable" in errors


@pytest.mark.parametrize(
    "more",
    [
        ("--engine-arg", f"base_url=http://me:{PASSWORD}@h/v1"),  # given twice
        ("--engine-arg", f"api_key={KEY}"),
        ("--engine-arg", f"api_key={KEY}: ["),
        ("--engine-arg", f"api_key_env={KEY}"),
        ("--engine-arg", f"api_key_env=[{KEY}]"),
    ],
)
def test_invalid_arguments_are_not_repeated(batch, more):
    assert batch("http://127.0.0.1:9/v1", *more)[0] == 1


@pytest.mark.parametrize(
    "text",
    [
        f"model=m,engine_args.base_url=http://me:{PASSWORD}@h/v1",
        f"name=a,model=m,engine_args.base_url=http://me:{PASSWORD}@h/v1,temperature=[",
        f"name=a,model=m,engine_args.api_key={KEY}: [",
        f"name=a,model=m,engine_args.api_key={KEY},warm",
        f"name=a,model=m,engine_args={KEY}",
    ],
)
def test_invalid_generators_are_not_repeated(text):
    with pytest.raises(ConfigError) as raised:
        parse_generator(text)
    assert_unseen(str(raised.value))


def test_invalid_yaml_is_not_repeated(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(f"model: tiny\nengine_arg: {{base_url: http://me:{PASSWORD}@h/v1, x: [}}\n")
    with pytest.raises(ConfigError, match=r"c\.yaml is not valid YAML in UTF-8: .* at line 2") as raised:
        read_yaml(path)
    assert_unseen(str(raised.value))
    with pytest.raises(ConfigError) as raised:
        parse_pairs([f"a={KEY}: ["], "--engine-arg")
    assert_unseen(str(raised.value))


@pytest.mark.parametrize(
    "base_url",
    [
        [f"http://me:{PASSWORD}@h/v1"],
        f"me:{PASSWORD}@h",
        f"http://me:{PASSWORD}@h x",
        f"http://me:?{PASSWORD}@h",
        f"http://h/v1?key=@{PASSWORD}",
    ],
)
def test_invalid_addresses_are_shown_without_password(base_url):
    with pytest.raises(ConfigError) as raised:
        endpoint_options(EngineOptions(model="tiny", engine_args={"base_url": base_url}))
    assert_unseen(str(raised.value))


def test_a_server_never_shows_its_keys(caplog, monkeypatch):
    caplog.set_level(logging.DEBUG)
    settings = {"api_keys": (SERVED,)}
    with served(settings=settings) as server:
        known = {"Authorization": f"Bearer {SERVED}"}
        wrong = server.http.post("/v1/judge", json=review(), headers={"Authorization": f"Bearer {SERVED}x"})
        replies = [wrong, server.http.post("/v1/chat/completions", json=review(), headers=known)]
        replies += [
            server.http.get(path, headers=known)
            for path in ("/metrics", "/v1/models", "/healthz", "/openapi.json", f"/v1/nowhere?key={SERVED[:-1]}")
        ]
        assert [reply.status_code for reply in replies[:3]] == [401, 200, 200]
        assert_unseen(repr(server.app.state.__dict__) + "".join(reply.text + str(reply.headers) for reply in replies))
    assert_unseen(caplog.text)


def test_a_server_with_an_upstream_shows_no_password(folder):
    with endpoint(ScriptedBackend(marker="### Response:")) as upstream:
        command = [sys.executable, "-m", "judgelm", "serve", "tiny", "--upstream", with_password(upstream)]
        streams = {"text": True, "stderr": subprocess.PIPE, "stdout": subprocess.PIPE}
        options = ("--port", "0", "--engine-arg", "backoff_s=0.02")
        process = subprocess.Popen([*command, *options], cwd=folder, env=os.environ | ENVIRONMENT, **streams)
        output = []
        try:
            for line in process.stderr:
                output.append(line)
                if "curl" in line:
                    break
            url = output[-1].split()[1].partition("/v1")[0]
            known = {"Authorization": f"Bearer {SERVED}"}
            for path in ("/metrics", "/v1/models", "/healthz"):
                output.append(httpx.get(url + path, headers=known).text)
            upstream.kill()
            output.append(httpx.post(url + "/v1/chat/completions", json=review(), headers=known, timeout=60).text)
        finally:
            process.terminate()
            out, errors = process.communicate(timeout=60)
        assert_unseen("".join([*output, out, errors]))
