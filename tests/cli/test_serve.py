"""`judgelm serve`, its recipe, and `judgelm web`: errors, start and shutdown."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.endpoint.backends import ScriptedBackend
from tests.support.endpoint.server import endpoint

ROOT = Path(__file__).parents[2]
PAIR = {"question": "q", "answer_1": "a", "answer_2": "b"}


@contextmanager
def running(*command, output="stderr"):
    """Yield the process, its address and its output so far, once it prints the address."""
    process = subprocess.Popen([sys.executable, *command], cwd=ROOT, text=True, **{output: subprocess.PIPE})
    lines = []
    try:
        for line in getattr(process, output):
            lines.append(line)
            if match := re.search(r"http://[^/]+/v1", line):
                break
        assert match, "".join(lines)
        yield process, match[0], lines
    finally:
        process.kill()
        process.communicate()


def test_serve_follows_its_configuration_and_shuts_down(tmp_path):
    keys = tmp_path / "keys.txt"
    keys.write_text("sk-test\n")
    command = ["-m", "judgelm", "serve", "8 6", "--engine", "scripted", "--config", "configs/serve/gpt4.yaml"]
    with running(*command, "--port", "0", "--api-key-file", str(keys)) as (process, url, lines):
        assert "serving gpt-4, gpt-4-1106-preview, gpt-4-turbo, gpt-4o at" in "".join(lines)
        example = process.stderr.readline()
        assert example.startswith(f"  curl {url}/judge -H")
        assert "sk-test" not in "".join(lines) + example
        assert httpx.post(f"{url}/judge", json=PAIR).status_code == 401
        headers = {"Authorization": "Bearer sk-test"}
        judgment = httpx.post(f"{url}/judge", json=PAIR | {"both_orders": True}, headers=headers).json()
        assert len(judgment["shown"]) == 2
        assert len(httpx.get(f"{url}/models", headers=headers).json()["data"]) == 4
        process.terminate()
        assert process.wait(20) == 0


@pytest.mark.distributed
def test_serve_uses_workers_and_shuts_down():
    pytest.importorskip("ray", reason="ray is not installed: pip install -e '.[ray]'")
    command = ["-m", "judgelm", "serve", "8 6", "--engine", "scripted", "--ray", "local", "--port", "0"]
    with running(*command, "--workers", "2", "--worker-cores", "1") as (process, url, lines):
        assert "on workers, Ray address local" in "".join(lines)
        assert "2 workers of 1 core, on " in "".join(lines)
        samples = [PAIR | {"question": f"q{index}"} for index in range(50)]
        judgments = httpx.post(f"{url}/judge", json={"samples": samples}, timeout=30).json()["judgments"]
        assert [judgment["scores"] for judgment in judgments] == [[8.0, 6.0]] * 50
        process.terminate()
        assert process.wait(60) == 0


def test_the_recipe_serves(tmp_path):
    with running("serve/api.py", "8 6", "--engine", "scripted", "--port", "0", output="stdout") as (process, url, _):
        assert httpx.post(f"{url}/judge", json=PAIR).json()["scores"] == [8.0, 6.0]
        process.send_signal(2)
        assert process.wait(20) == 0


SCRIPTED = ("8 6", "--engine", "scripted")
UPSTREAM = ("m", "--upstream", "http://localhost:1/v1")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["serve", *SCRIPTED, "--host", "0.0.0.0"], "add --api-key-file FILE, set JUDGELM_API_KEYS"),
        (["serve", *SCRIPTED, "--api-key", "sk x"], "printable ASCII"),
        (["serve", *SCRIPTED, "--api-key", "sk", "--no-auth"], "--no-auth conflicts with"),
        (["serve", "8 6", "--engine", "nothing"], "engine 'nothing' does not exist"),
        (["serve", *UPSTREAM, "--engine", "vllm"], "--upstream"),
        (["serve", *UPSTREAM, "--engine-arg", "base_url=http://x/v1"], "set the same option"),
        (["serve", "m", "--upstream", "nowhere"], "not a valid http(s) URL"),
        (["serve", *UPSTREAM, "--ray", "local"], "--gpus and --ray"),
        (["serve", *SCRIPTED, "--workers", "2"], "add --ray local"),
        (["serve", *SCRIPTED, "--gpus", "2", "--ray", "auto"], "pass workers instead"),
        (["serve", "/no/such/folder", "--engine", "transformers"], "/no/such/folder"),
        (["web", "my-judge", "--engine", "none"], "engine 'none' does not exist"),
        (["web", *SCRIPTED, "--pairs", "p.jsonl"], "add --run"),
        (["web", *SCRIPTED, "--host", "0.0.0.0"], "is reachable from other machines: add --password"),
        (["web", *SCRIPTED, "--password", "p", "--no-auth"], "--no-auth conflicts with"),
        (["web", *SCRIPTED, "--run", "/no/such/run.jsonl"], "cannot read: No such file"),
    ],
)
def test_conflicting_server_options_are_refused(cli, arguments, words):
    if arguments[0] == "web":
        pytest.importorskip("gradio")
    code, out, err = cli("judgelm", *arguments, "--port", "0")
    assert (code, out) == (1, "")
    assert words in " ".join(err.split())
    assert "Traceback" not in err


def test_a_port_in_use_is_refused_before_the_model_is_loaded(cli):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        code, _, err = cli("judgelm", "serve", "8 6", "--engine", "scripted", "--port", taken.getsockname()[1])
    assert code == 1
    assert "choose another port" in err
    assert "loading" not in err


def test_a_model_without_chat_is_refused_before_it_is_served(cli):
    with endpoint(ScriptedBackend(marker="### Response:")) as upstream:
        arguments = ["--upstream", upstream.base_url, "--engine-arg", "api=completions", "--port", "0"]
        code, _, err = cli("judgelm", "serve", "tiny", *arguments, "--unknown", "answer")
    assert code == 1
    assert "--unknown answer: chat prompts on /completions" in " ".join(err.split())
    assert "tokenizer=" in err
    assert "serving" not in err


@pytest.mark.browser  # starts its own server, as the page's other tests do
def test_the_page_has_a_security_policy_serves_no_files_and_shuts_down():
    command = [sys.executable, "-m", "judgelm", "web", "8 6", "--engine", "scripted", "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "200"}) as process:
        try:
            lines = iter(process.stderr.readline, "")
            url = next(match[0] for line in lines if (match := re.search(r"http://[\d.]+:\d+", line)))
            until = time.monotonic() + 60
            while time.monotonic() < until:
                try:
                    answer = httpx.get(url)
                    break
                except httpx.TransportError:
                    time.sleep(0.1)
            assert "default-src 'self'" in answer.headers["content-security-policy"]
            assert httpx.get(f"{url}/gradio_api/file=/etc/passwd").status_code == 403
        finally:
            process.send_signal(signal.SIGINT)
        assert process.wait(timeout=60) == 0
