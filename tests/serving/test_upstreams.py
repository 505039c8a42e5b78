"""`judgelm serve --upstream URL,URL`: two real servers behind a real one, and what clients see when they go down."""

import re
import subprocess
import sys
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
    urls = ",".join(one.base_url for one in servers)
    command = [sys.executable, "-m", "judgelm", "serve", "tiny", "--upstream", urls, "--port", "0"]
    command += ["--engine-arg", "backoff_s=0.02"]  # or a dead server is asked again for half a minute
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    try:
        url = next(found[1] for line in process.stderr if (found := re.search(r"(http://[^/]+)/v1", line)))
        yield url, process
    finally:
        process.kill()
        process.communicate()


def asked(url, number):
    return httpx.post(url + CHAT, json=review(f"q{number}"), timeout=60)


def backend():
    return ScriptedBackend(marker="### Response:")


@pytest.mark.distributed
def test_one_of_two_that_goes_down_is_not_seen_by_clients():
    with endpoint(backend()) as stays, endpoint(backend()) as goes, in_front_of(stays, goes) as (url, process):
        stays.delay_s = goes.delay_s = 0.01
        with ThreadPoolExecutor(8) as pool:
            replies = [pool.submit(asked, url, number) for number in range(160)]
            until(lambda: sum(one.done() for one in replies) >= 40, 60)
            goes.kill()  # in the middle of what it has in hand
            found = [one.result() for one in replies]
        assert {one.status_code for one in found} == {200}
        assert {one.json()["choices"][0]["message"]["content"].split("\n")[0] for one in found} == {"8 6"}
        assert goes.counts["answered"] >= 5
        assert stays.counts["answered"] >= 80
        goes.start()
        before = goes.counts["answered"]
        for number in range(200, 260):
            assert asked(url, number).status_code == 200
            if goes.counts["answered"] > before:
                break
        stays.kill()  # the one that came back answers alone
        assert asked(url, 300).status_code == 200
        assert process.poll() is None


def test_when_none_answers_it_says_so_and_stays():
    with endpoint(backend()) as one, endpoint(backend()) as other, in_front_of(one, other) as (url, _):
        assert asked(url, 0).status_code == 200
        one.kill()
        other.kill()
        refused = asked(url, 1)
        assert (refused.status_code, error_of(refused)["code"]) == (502, "engine_failed")
        assert str(one.port) not in refused.text  # where the others are is not the clients' business
        assert httpx.get(f"{url}/healthz").status_code == 200
        other.start()
        assert asked(url, 2).status_code == 200
