"""Speed and memory of the data builder.

    python -m benchmarks.data_build --rows 100000 --workers 2
    python -m benchmarks.data_build --rows 1000000 --workers 2 --equal-only

Rows of JudgeLM's schema are generated: texts of the lengths that GPT-4's reviews of Vicuna have (questions of 30 words,
answers of 150, reasons of 120 that name the assistants a dozen times), judged with and without reference, on a fifth as
many questions as rows. They are built with swap augmentation and reference drop, near duplicates looked for (with
--equal-only equal rows alone) and a twentieth of the questions held out. Memory is the resident memory of the build's
process and its workers together, looked at five times a second.
"""

import argparse
import json
import multiprocessing
import random
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from judgelm.data.builder.options import build_options
from judgelm.data.builder.pipeline import build

WORDS = [f"{start}{end}" for start in ("ba", "co", "du", "fe", "gri", "lo", "me", "no", "pra", "se", "tu", "vi")
         for end in ("n", "ral", "sten", "ting", "ment", "per", "lish", "va", "dor", "ly", "ce", "tive")]  # fmt: skip
SAYINGS = (
    "Assistant {1} gives a {w} and {w} answer, while Assistant {2} does not say {w} {w}.",
    "Both Assistant 1 and Assistant 2 are {w}, but the {first} answer is more {w} and {w}.",
    "Assistant {2}'s response lacks {w} {w} {w}, which Assistant {1}'s response has.",
    "In terms of {w}, the {second} assistant {w} {w} {w} the {w} of {w}.",
    "Overall, Assistant {1} is {w} {w} than Assistant {2}.",
)


def main() -> None:
    """Generate, build in a process of its own, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=100_000)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--equal-only", action="store_true")
    parser.add_argument("--format", default="jsonl")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "rows.jsonl"
        with source.open("w", encoding="utf-8") as file:
            for row in rows(options.rows):
                file.write(json.dumps(row) + "\n")
        values = {
            "inputs": [str(source)], "out": str(Path(folder) / "built"), "workers": options.workers,
            "swap": "draw", "reference": "draw", "near_duplicates": 1.0 if options.equal_only else 0.9,
            "format": options.format,
        }  # fmt: skip
        receiver, sender = multiprocessing.Pipe(duplex=False)
        process = multiprocessing.get_context("spawn").Process(target=measured, args=(values, sender))
        process.start()
        peaks = watch_memory(psutil.Process(process.pid), receiver)
        results = receiver.recv() | peaks
        process.join()
        megabytes = source.stat().st_size / 1e6
    print(
        json.dumps(
            {"rows": options.rows, "input_mb": round(megabytes), "workers": options.workers, **results}, indent=1
        )
    )


def watch_memory(process: psutil.Process, receiver: Any) -> dict[str, int]:
    """The most megabytes that the process, and the process with its workers, had until it said that it is done."""
    own = together = 0
    while not receiver.poll(0.2):
        try:
            here = process.memory_info().rss
            workers = [worker.memory_info().rss for worker in process.children(recursive=True)]
        except psutil.NoSuchProcess:  # a worker ended just now
            continue
        own, together = max(own, here), max(together, here + sum(workers))
    return {"peak_mb": round(together / 1e6), "peak_mb_main": round(own / 1e6)}


def measured(values: dict[str, Any], sender: Any) -> None:
    """Build once, and say how long it took."""
    began = time.perf_counter()
    built = build(build_options(values, "benchmark"))
    seconds = time.perf_counter() - began
    sender.send({
        "seconds": round(seconds, 1),
        "rows_per_s": round(built.counts.before.pairs / seconds),
        "files": built.files,
        "swapped": dict(built.counts.swapped),
        "dropped": {" ".join(key): count for key, count in built.counts.dropped.items()},
    })  # fmt: skip


def rows(count: int) -> Iterator[dict[str, Any]]:
    """JudgeLM training rows."""
    draw = random.Random(0)
    questions = max(1, count // 5)
    for index in range(count):
        scores, referenced = ([draw.randint(1, 10) for _ in range(2)] for _ in range(2))
        first, second = draw.sample(range(11), 2)
        yield {
            "question_id": index,
            "question_body": f"Question {index % questions}: {words(random.Random(index % questions), 30)}?",
            "answer1_body": words(draw, draw.randint(40, 260)),
            "answer2_body": words(draw, draw.randint(40, 260)),
            "answer1_model_id": f"model-{first}",
            "answer2_model_id": f"model-{second}",
            "answer1_metadata": {"decoding_method": "top_p_sampling"},
            "answer2_metadata": {"decoding_method": "greedy"},
            "score": scores,
            "text": f"{scores[0]} {scores[1]}\n{reason(draw)}",
            "reference": {"text": words(draw, 150), "model": "teacher"},
            "score_w_reference": referenced,
            "text_w_reference": f"{referenced[0]} {referenced[1]}\n{reason(draw)}",
        }


def words(draw: random.Random, count: int) -> str:
    """So many words."""
    return " ".join(draw.choices(WORDS, k=count))


def reason(draw: random.Random) -> str:
    """About 120 words that name the assistants."""
    text = " ".join(draw.choice(SAYINGS) for _ in range(9))
    better = draw.randint(1, 2)
    for slot, value in (("{1}", str(better)), ("{2}", str(3 - better)), ("{first}", "first"), ("{second}", "second")):
        text = text.replace(slot, value)
    while "{w}" in text:
        text = text.replace("{w}", draw.choice(WORDS), 1)
    return text


if __name__ == "__main__":
    main()
