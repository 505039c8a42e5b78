"""`judgelm serve --upstream URL,URL`: failures and shutdown in front of real servers."""

import re
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import httpx
import pytest

from tests.support.endpoint.backends import ScriptedBackend
from tests.support.endpoint.server import endpoint
from tests.support.served import CHAT, error_of, review, until


@contextmanager
def in_front_of(*servers):
    """The command itself, in front of these."""
    urls = ",".join(server.base_url for server in servers)
    command = [sys.executable, "-m", "judgelm", "serve", "tiny", "--upstream", urls, "--port", "0"]
    command += ["--engine-arg", "backoff_s=0.02"]  # or a dead server is asked again for half a minute
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        url = next(match[1] for line in process.stderr if (match := re.search(r"(http://[^/]+)/v1", line)))
        yield url, process
    finally:
        process.kill()
        process.communicate()


def upstream():
    return endpoint(ScriptedBackend(marker="### Response:"))


def ask(url, number):
    return httpx.post(url + CHAT, json=review(f"q{number}"), timeout=60)


@pytest.mark.distributed
def test_clients_do_not_notice_that_one_of_two_servers_goes_down():
    with upstream() as stays, upstream() as goes, in_front_of(stays, goes) as (url, process):
        stays.delay_s = goes.delay_s = 0.01
        with ThreadPoolExecutor(8) as pool:
            futures = [pool.submit(ask, url, number) for number in range(160)]
            until(lambda: sum(future.done() for future in futures) >= 40, 60)
            goes.kill()  # in the middle of what it has in hand
            replies = [future.result() for future in futures]
        assert {reply.status_code for reply in replies} == {200}
        assert {reply.json()["choices"][0]["message"]["content"].split("\n")[0] for reply in replies} == {"8 6"}
        assert goes.counts["answered"] >= 5
        assert stays.counts["answered"] >= 80
        goes.start()
        before = goes.counts["answered"]
        for number in range(200, 260):
            assert ask(url, number).status_code == 200
            if goes.counts["answered"] > before:
                break
        stays.kill()  # the one that came back answers alone
        assert ask(url, 300).status_code == 200
        assert process.poll() is None


def test_without_an_upstream_requests_fail_and_the_server_stays():
    with upstream() as first, upstream() as other, in_front_of(first, other) as (url, _):
        assert ask(url, 0).status_code == 200
        first.kill()
        other.kill()
        refused = ask(url, 1)
        assert (refused.status_code, error_of(refused)["code"]) == (502, "engine_failed")
        assert str(first.port) not in refused.text  # clients do not see the addresses of upstream servers
        assert httpx.get(f"{url}/healthz").status_code == 200
        other.start()
        assert ask(url, 2).status_code == 200


class HeldBackend(ScriptedBackend):
    """Another server's model, which answers when its gate is open."""

    def __init__(self):
        super().__init__(marker="### Response:")
        self.gate = threading.Event()
        self.gate.set()
        self.begun = 0

    def generate(self, prompt, asked, number):
        self.begun += not self.gate.is_set()
        assert self.gate.wait(60)
        return super().generate(prompt, asked, number)


@pytest.mark.distributed
def test_sigterm_with_twenty_requests_in_flight_loses_none():
    backend = HeldBackend()
    with endpoint(backend) as behind, in_front_of(behind) as (url, process):
        backend.gate.clear()
        pairs = [{"id": str(n), "question": f"q{n}", "answer_1": "a", "answer_2": "b"} for n in range(20)]
        with ThreadPoolExecutor(20) as pool:
            futures = [pool.submit(httpx.post, f"{url}/v1/judge", json=pair, timeout=60) for pair in pairs]
            until(lambda: backend.begun >= 20, 30)
            process.terminate()
            until(lambda: httpx.get(f"{url}/v1/models").status_code == 503)
            backend.gate.set()
            replies = [future.result() for future in futures]
        assert [reply.status_code for reply in replies] == [200] * 20
        assert [reply.json()["id"] for reply in replies] == [str(n) for n in range(20)]
        assert process.wait(30) == 0
