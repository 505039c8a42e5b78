"""`judgelm web`: what is refused before a model is loaded, and a page that ends in order."""

import os
import re
import signal
import subprocess
import sys
import time

import httpx
import pytest

MODEL = ("8 6", "--engine", "scripted")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("my-judge", "--engine", "none"), "engine 'none' does not exist"),
        ((*MODEL, "--pairs", "p.jsonl"), "there is no --run; add one"),
    ],
)
def test_options_that_do_not_fit_are_refused(cli, arguments, message):
    code, _, said = cli("judgelm", "web", *arguments)
    assert code == 1
    assert message in " ".join(said.split())


def test_what_needs_gradio_to_be_refused(cli, tmp_path):
    pytest.importorskip("gradio")
    for arguments, message in (
        (("--host", "0.0.0.0"), "is reachable from other machines: add --password"),
        (("--password", "p", "--no-auth"), "leave one of them out"),
        (("--run", tmp_path / "nowhere.jsonl"), "cannot read: No such file"),
    ):
        code, _, said = cli("judgelm", "web", *MODEL, *arguments)
        assert code == 1
        assert message in " ".join(said.split())


@pytest.mark.browser  # a server of its own, as the page's other tests have
def test_the_page_is_served_with_its_policy_and_no_files_and_ends_in_order():
    command = [sys.executable, "-m", "judgelm", "web", *MODEL, "--port", "0"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | {"COLUMNS": "200"}) as running:
        try:
            lines = iter(running.stderr.readline, "")
            url = next(found[0] for line in lines if (found := re.search(r"http://[\d.]+:\d+", line)))
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
            running.send_signal(signal.SIGINT)
        assert running.wait(timeout=60) == 0
