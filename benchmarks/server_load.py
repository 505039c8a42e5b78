"""Load test of `judgelm serve`: requests a second, errors, lost and mixed-up replies, memory over time.

    python -m benchmarks.server_load
    python -m benchmarks.server_load --soak 600
    python -m benchmarks.server_load --pairs pairs.jsonl --model my-judge --count 200 [--reading yes-no]
    python -m benchmarks.server_load --start --model my-judge

A server of its own process, with the scripted engine unless `--model` says otherwise, and clients that each keep one
connection and ask as soon as they are answered. Every pair has its own scores in the script, so a reply that belongs to
another request is detected. Clients share the machine's cores with the server: its limit lies above the figure.
With `--pairs` the same pairs go through `judgelm-batch` and through the server in turns, and the ratio is of one round.
With `--start` a server is started `--rounds` times, and each start is split into imports and the rest, by Python's own
record of imports (`-X importtime`) of that same process, which makes imports somewhat slower.
"""

import argparse
import asyncio
import json
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import psutil

from judgelm import Judge
from judgelm.data.samples import SampleStream

REVIEW = (
    "[Question]\n{question}\n\n[The Start of Assistant 1's Answer]\n{answer_1}\n\n[The End of Assistant 1's Answer]\n\n"
    "[The Start of Assistant 2's Answer]\n{answer_2}\n\n[The End of Assistant 2's Answer]\n\n[System]\n"
    "Please rate both. Please first output a single line containing only two values indicating the scores.\n\n"
)
"""Vicuna's review, shortened."""


@dataclass(slots=True)
class Load:
    """Results as seen by the clients.

    `wrong` are replies of another request, `lost` requests without a whole reply, `failed` pairs without a verdict.
    """

    requests: int = 0
    answered: int = 0
    errors: int = 0
    wrong: int = 0
    lost: int = 0
    failed: int = 0
    seconds: float = 0.0
    waited_s: list[float] = field(default_factory=list)
    first_error: str = ""

    def row(self) -> dict[str, Any]:
        """As JSON, with requests a second and quantiles of the wait in milliseconds."""
        cuts = statistics.quantiles(self.waited_s, n=100) if len(self.waited_s) > 1 else []
        waits = {f"p{cut}_ms": round(cuts[cut - 1] * 1000, 1) for cut in (50, 99)} if cuts else {}
        entries = {name: value for name, value in asdict(self).items() if name != "waited_s"}
        return (
            entries | {"seconds": round(self.seconds, 2), "requests_per_s": round(self.answered / self.seconds)} | waits
        )


@dataclass(frozen=True, slots=True)
class Question:
    """A request, and what its reply must hold."""

    path: str
    body: bytes
    holds: bytes


def main() -> None:
    """Run what the options ask for and print it as JSON."""
    options = parsed()
    with tempfile.TemporaryDirectory() as folder:
        if options.start:
            result = {"starts": [start(options.model, options.reading) for _ in range(options.rounds)]}
        else:
            result = compare(options, Path(folder)) if options.pairs else press(options, Path(folder))
    print(json.dumps(result, indent=1))


def parsed() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clients", type=int, default=256)
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--soak", type=float, default=0.0, help="go on for so many seconds and watch the memory")
    parser.add_argument("--pairs", help="a file that judgelm-batch reads")
    parser.add_argument("--count", type=int, default=200, help="how many of the pairs")
    parser.add_argument("--rounds", type=int, default=3, help="of batch and server in turns, or starts")
    parser.add_argument("--start", action="store_true", help="time from process start to the first answer")
    parser.add_argument("--model", help="judge for --pairs or --start")
    parser.add_argument("--reading", help="how the judge is read, as for judgelm serve; default: its card's")
    options = parser.parse_args()
    if bool(options.pairs or options.start) != bool(options.model) or (options.pairs and options.start):
        parser.error("--model goes with either --pairs or --start, and each of these needs it")
    if options.reading and not options.model:
        parser.error("--reading needs --model")
    return options


def press(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Many clients against the scripted engine."""
    numbers = range(options.requests)
    script = folder / "script.json"
    script.write_text(json.dumps({"|".join(pair_of(n).values()): scores_of(n) + "\n" for n in numbers}))
    questions = [
        Question("/v1/chat/completions", chat_body(pair_of(n)), json.dumps(scores_of(n) + "\n").encode()[:-1])
        for n in numbers
    ]
    with server(str(script), "--engine", "scripted") as (url, process):
        asyncio.run(load(url, questions[: options.clients], options.clients))  # connections, caches
        before_s = cpu_s(process.pid)
        result = asyncio.run(load(url, questions, options.clients)).row()
        result["server_cpu_ms_per_request"] = round(1000 * (cpu_s(process.pid) - before_s) / len(questions), 3)
        if options.soak:
            result["soak"] = soak(url, process.pid, questions, options)
    return {"clients": options.clients, **result, "exit_code": process.returncode}


def soak(url: str, pid: int, questions: Sequence[Question], options: argparse.Namespace) -> dict[str, Any]:
    """Go on asking; requests, errors, and the server's memory in the first, middle and last rounds."""
    total, memory = Load(), []
    until = time.monotonic() + options.soak
    while time.monotonic() < until:
        part = asyncio.run(load(url, questions, options.clients))
        for name in ("requests", "answered", "errors", "wrong", "lost", "failed", "seconds"):
            setattr(total, name, getattr(total, name) + getattr(part, name))
        memory.append(resident_mb(pid))
    sampled = [memory[len(memory) * tenth // 10] for tenth in range(10)] + memory[-1:]
    return total.row() | {"rounds": len(memory), "resident_mb": sampled}


def compare(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """The same pairs through judgelm-batch and through the server, in turns."""
    rows = [
        {"id": sample.id, "question": sample.question, "answer_1": sample.answers[0], "answer_2": sample.answers[1]}
        | ({} if sample.reference is None else {"reference": sample.reference})
        for sample in islice(SampleStream([options.pairs]), options.count)
    ]
    pairs = folder / "pairs.jsonl"
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    questions = [
        Question("/v1/judge", json.dumps(row).encode(), b'"id": ' + json.dumps(row["id"]).encode()) for row in rows
    ]
    rounds = []
    flags = reading_flags(options.reading)
    with Judge(options.model, reading=options.reading) as judge, server(options.model, *flags) as (url, _):
        asyncio.run(load(url, questions[:8], 8))
        judge.judge_file(str(pairs), out=str(folder / "warm.jsonl"))
        for index in range(options.rounds):
            tally = judge.judge_file(str(pairs), out=str(folder / f"{index}.jsonl"))
            served = asyncio.run(load(url, questions, options.clients))
            batch_per_s, server_per_s = tally.judged / tally.judge_s, served.answered / served.seconds
            rounds.append({
                "batch_per_s": round(batch_per_s, 2), "server_per_s": round(server_per_s, 2),
                "ratio": round(server_per_s / batch_per_s, 3), "errors": served.errors + served.lost + served.wrong,
                "failed_in_batch": sum(tally.failures.values()), "failed_in_server": served.failed,
            })  # fmt: skip
    return {"pairs": len(rows), "rounds": rounds, "median_ratio": statistics.median(entry["ratio"] for entry in rounds)}


def start(model: str, reading: str | None) -> dict[str, float]:
    """One start of a server up to its first answer, in seconds since the process began.

    `load_and_bind_s` is all that is no import before clients can connect; `first_answer_s` the time of a pair of one
    sentence, `next_answer_s` that of one of about 380 tokens, which is the judge's own speed.
    """
    pair = {"question": "What is the capital of France?", "answer_1": "Paris.", "answer_2": "It is Lyon."}
    first, following = (
        Question("/v1/judge", json.dumps({"id": "0", **fields}).encode(), b'"id": "0"') for fields in (pair, pair_of(0))
    )
    imports: list[str] = []
    began = time.monotonic()
    with server(model, *reading_flags(reading), python=("-X", "importtime"), imports=imports) as (url, _):
        listening_s = time.monotonic() - began
        answered = asyncio.run(load(url, [first], 1))
        total_s = time.monotonic() - began
        imported = list(imports)  # later requests, and what ends the server, may import more
        later = asyncio.run(load(url, [following], 1))
    for result in (answered, later):
        if result.errors + result.lost + result.wrong + result.failed:
            raise SystemExit(f"a request failed: {result.first_error}")
    own_us = (re.match(r"import time:\s+(\d+) \|", line) for line in imported)  # without what a module imports itself
    imports_s = sum(int(match[1]) for match in own_us if match) / 1e6
    split = {
        "imports_s": imports_s, "load_and_bind_s": listening_s - imports_s, "first_answer_s": answered.seconds,
        "total_s": total_s, "total_without_imports_s": total_s - imports_s, "next_answer_s": later.seconds,
    }  # fmt: skip
    return {name: round(seconds, 2) for name, seconds in split.items()}


def reading_flags(reading: str | None) -> tuple[str, ...]:
    """The option of `judgelm serve` for a reading; none leaves it to the judge's card."""
    return () if reading is None else ("--reading", reading)


@contextmanager
def server(
    model: str, *flags: str, python: Sequence[str] = (), imports: list[str] | None = None
) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A server of its own process with these options of Python, ended by SIGTERM.

    Its lines on the error stream are added to `imports` as they come.
    """
    lines = [] if imports is None else imports
    command = [sys.executable, *python, "-m", "judgelm", "serve", model, "--port", "0", *flags]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    try:
        url = ""
        while not url:
            if not (line := process.stderr.readline()):
                raise SystemExit("the server did not start: " + "".join(lines[-5:]))
            lines.append(line)
            url = match[0] if (match := re.search(r"http://[^/]+/v1", line)) else ""
        reader = threading.Thread(target=lines.extend, args=(process.stderr,), daemon=True)
        reader.start()  # a full pipe would block the server
        yield url, process
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=90)


async def load(url: str, questions: Sequence[Question], clients: int) -> Load:
    """Clients that take the questions in turn."""
    result, left = Load(requests=len(questions)), iter(questions)
    host, port = urlsplit(url).hostname or "", urlsplit(url).port or 0
    began = time.monotonic()
    await asyncio.gather(*(_client(host, port, left, result) for _ in range(min(clients, len(questions)))))
    result.seconds = time.monotonic() - began
    return result


async def _client(host: str, port: int, questions: Iterator[Question], result: Load) -> None:
    """One connection, kept open; what breaks is lost, and the next question has a new connection."""
    reader = writer = None
    for question in questions:
        began = time.monotonic()
        try:
            if writer is None:
                reader, writer = await asyncio.open_connection(host, port)
            head = f"POST {question.path} HTTP/1.1\r\nHost: {host}\r\nContent-Length: {len(question.body)}\r\n\r\n"
            writer.write(head.encode() + question.body)
            answer = await reader.readuntil(b"\r\n\r\n")
            body = await reader.readexactly(int(re.search(rb"content-length: (\d+)", answer)[1]))
        except (OSError, EOFError, TypeError) as error:
            result.lost += 1
            result.first_error = result.first_error or repr(error)
            writer = None
            continue
        result.waited_s.append(time.monotonic() - began)
        result.answered += 1
        if not answer.startswith(b"HTTP/1.1 200"):
            result.errors += 1
            result.first_error = result.first_error or body.decode()
        elif question.holds not in body:
            result.wrong += 1
        elif b'"failure": {' in body and (failure := json.loads(body).get("failure")):
            result.failed += 1
            result.first_error = result.first_error or json.dumps(failure)
    if writer is not None:
        writer.close()


def pair_of(index: int) -> dict[str, str]:
    """A pair that no other number has, of about 200 tokens."""
    words = "a little text that takes as long to read as answers mostly do, " * 8
    return {
        "question": f"Which number is this, {index}?",
        "answer_1": f"It is {index}. {words}",
        "answer_2": f"No, {index + 1}. {words}",
    }


def scores_of(index: int) -> str:
    """The line that the script has for a pair: one of 100."""
    return f"{1 + index % 10} {1 + index // 10 % 10}"


def chat_body(pair: dict[str, str]) -> bytes:
    """A request of the client of Vicuna's review."""
    messages = [
        {
            "role": "system",
            "content": "You are a helpful and precise assistant for checking the quality of the answer.",
        },
        {"role": "user", "content": REVIEW.format(**pair)},
    ]
    return json.dumps({"model": "gpt-4", "messages": messages, "temperature": 0.2, "max_tokens": 1024}).encode()


def cpu_s(pid: int) -> float:
    """Processor time of a process: unlike requests a second it hardly depends on what else runs."""
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system


def resident_mb(pid: int) -> float:
    """Memory of a process."""
    return round(psutil.Process(pid).memory_info().rss / 2**20, 1)


if __name__ == "__main__":
    main()
