"""Rate of `judgelm serve` with several adapters on one base, against one judge alone.

    python -m benchmarks.many_judges --base BASE --adapters ADAPTER ADAPTER --pairs pairs.jsonl

Two servers, in turns: one with the first adapter merged into the base (`--adapter`), and one with all adapters beside
it (`--judge`), which first answers for one of them alone and then for all, each pair by the next one. Every request is
a pair in both orders with its distribution, by one of 16 clients. Ratios are of one round.
"""

import argparse
import json
import socket
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import httpx

from judgelm.data.samples import SampleStream

_CLIENTS = 16
_OPTIONS = {"both_orders": True, "distribution": True}
_START_S = 300


def main() -> None:
    """Measure and print the rounds, and the median of each ratio, as JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--base", required=True)
    parser.add_argument("--adapters", nargs="+", required=True)
    parser.add_argument("--pairs", required=True, help="file that judgelm-batch reads")
    parser.add_argument("--count", type=int, default=60, help="pairs")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dtype", default="auto")
    options = parser.parse_args()
    bodies = read_bodies(options.pairs, options.count)
    names = [f"judge-{index}" for index in range(len(options.adapters))]
    judges = [f"--judge={name}={adapter}" for name, adapter in zip(names, options.adapters, strict=True)]
    alone = [options.base, "--adapter", options.adapters[0], "--dtype", options.dtype]
    with serving(alone) as merged, serving([options.base, *judges, "--dtype", options.dtype]) as shared:
        for url, chosen in ((merged, [None]), (shared, names)):  # the first requests are slow
            rate(url, bodies[:_CLIENTS], chosen)
        rounds = [
            {
                "merged": rate(merged, bodies, [None]),
                "one_adapter": rate(shared, bodies, names[:1]),
                "mixed": rate(shared, bodies, names),
            }
            for _ in range(options.rounds)
        ]
    ratios = {
        f"mixed/{system}": round(statistics.median(each["mixed"] / each[system] for each in rounds), 3)
        for system in ("merged", "one_adapter")
    }
    result = {"pairs": len(bodies), "adapters": len(names), "pairs_per_s": rounds, "median_ratios": ratios}
    print(json.dumps(result, indent=2))


def read_bodies(path: str, count: int) -> list[dict[str, Any]]:
    """Bodies of /v1/judge, one for each pair."""
    samples = islice(SampleStream([path]), count)
    return [
        {"question": each.question, "answer_1": each.answers[0], "answer_2": each.answers[1], "options": _OPTIONS}
        for each in samples
    ]


@contextmanager
def serving(arguments: Sequence[str]) -> Iterator[str]:
    """A server of its own process; its address."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(Path(sys.executable).parent / "judgelm"), "serve", *arguments, "--port", str(port), "--quiet"]
    url, until = f"http://127.0.0.1:{port}", time.monotonic() + _START_S
    with subprocess.Popen(command) as process:
        try:
            while not answers(url):
                if process.poll() is not None or time.monotonic() > until:
                    raise SystemExit(f"the server did not start: {' '.join(command)}")
                time.sleep(0.2)
            yield url
        finally:
            process.terminate()


def answers(url: str) -> bool:
    """True if a server answers there."""
    try:
        return httpx.get(f"{url}/healthz").is_success
    except httpx.TransportError:
        return False


def rate(url: str, bodies: Sequence[dict[str, Any]], names: Sequence[str | None]) -> float:
    """Pairs a second, each pair judged by the next of the names; every judgment must have a verdict."""
    requests = [body | ({"judge": name} if name else {}) for body, name in zip(bodies, cycle(names), strict=False)]
    limits = httpx.Limits(max_connections=_CLIENTS)
    with httpx.Client(base_url=url, timeout=600, limits=limits) as client, ThreadPoolExecutor(_CLIENTS) as threads:
        began = time.perf_counter()
        replies = list(threads.map(lambda body: client.post("/v1/judge", json=body), requests))
        elapsed = time.perf_counter() - began
    failed = [reply.text for reply in replies if reply.status_code != 200 or reply.json()["failure"]]
    if failed:
        raise SystemExit(f"{len(failed)} of {len(replies)} pairs failed: {failed[0][:300]}")
    return round(len(replies) / elapsed, 2)


if __name__ == "__main__":
    main()
