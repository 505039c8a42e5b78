"""A pipeline's stored requests to GPT-4, answered by a local judge from a file for OpenAI's Batch API, and compared.

    python -m benchmarks.stored_gpt4 --reviews DATA/vicuna_reviews --work runs/stored-gpt4 [--model JUDGE]

The requests are those of FastChat's review of Vicuna (March 2023): 80 questions, GPT-3.5's and LLaMA-13B's answers
against Vicuna-13B's, in FastChat's own words, with GPT-4's stored replies. `judgelm-batch` answers them; its replies
are read as FastChat read GPT-4's, by the two numbers of the first line. Writes `stored_gpt4.json` beside this file,
without any text.
"""

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from judgelm.metrics.resampling import Resampling, share

OUT = Path(__file__).with_suffix(".json")
REVIEWS = tuple(
    f"review/vicuna-13b_20230322-clean-lang__review_{name}_vicuna-13b.jsonl" for name in ("gpt35", "llama-13b")
)
CATEGORIES = {"coding": "coding", "math": "math"}
"""Of a question, whose prompt FastChat takes; all others have the general one."""
SCORES = re.compile(r"\s*(\d+(?:\.\d+)?)[ ,]+(\d+(?:\.\d+)?)")
REPLY_TOKENS = 150
PRICE = (2.0, 8.0)
"""Dollars a million tokens of GPT-4.1, prompt and reply, as in `benchmarks.which_judge`."""


def rows(path: Path) -> list[dict[str, Any]]:
    """The rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def stored(folder: Path) -> Iterator[tuple[str, int, dict[str, Any], float]]:
    """Id, question, request body, and GPT-4's first score minus its second, of each stored review."""
    answers = {row["answer_id"]: row["text"] for path in folder.glob("answer/*.jsonl") for row in rows(path)}
    questions = {row["question_id"]: row for row in rows(folder / "question.jsonl")}
    prompts = {row["category"]: row for row in rows(folder / "prompt.jsonl")}
    for name in REVIEWS:
        for review in rows(folder / name):
            question = questions[review["question_id"]]
            prompt = prompts[CATEGORIES.get(question["category"], "general")]
            text = prompt["prompt_template"].format(
                question=question["text"],
                answer_1=answers[review["answer1_id"]],
                answer_2=answers[review["answer2_id"]],
                **prompt["defaults"],
            )
            messages = [{"role": "system", "content": prompt["system_prompt"]}, {"role": "user", "content": text}]
            body = {"model": "gpt-4", "temperature": 0.2, "max_tokens": 1024, "messages": messages}
            yield review["review_id"], review["question_id"], body, review["score"][0] - review["score"][1]


def main() -> None:
    """Write the requests, have them answered, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--reviews", type=Path, required=True)
    parser.add_argument("--work", type=Path, default=Path("runs/stored-gpt4"))
    parser.add_argument("--model", help="default: the default judge")
    options = parser.parse_args()
    options.work.mkdir(parents=True, exist_ok=True)
    requests, replies = options.work / "requests.jsonl", options.work / "results.jsonl"
    asked = list(stored(options.reviews))
    lines = [
        {"custom_id": key, "method": "POST", "url": "/v1/chat/completions", "body": body} for key, _, body, _ in asked
    ]
    requests.write_text("".join(f"{json.dumps(line)}\n" for line in lines), encoding="utf-8")
    model = ["--model", options.model] if options.model else []
    batch = str(Path(sys.executable).parent / "judgelm-batch")
    subprocess.run([batch, str(requests), "-o", str(replies), *model], check=True)
    results = compared(asked, rows(replies)) | {"model": options.model or "default judge"}
    OUT.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def compared(asked: list[tuple[str, int, dict[str, Any], float]], replies: list[dict[str, Any]]) -> dict[str, Any]:
    """Agreement of the winners, ties of GPT-4's apart, and the price of the same tokens."""
    bodies = {row["custom_id"]: row["response"]["body"] for row in replies if row["response"]["status_code"] == 200}
    decided, same, always, clusters = 0, [], [], []
    for key, question, _, stored_difference in asked:
        if key not in bodies or stored_difference == 0:
            continue
        found = SCORES.match(bodies[key]["choices"][0]["message"]["content"])
        assert found is not None, "the reply is in FastChat's form"
        decided += 1
        same.append((float(found[1]) - float(found[2])) * stored_difference > 0)
        always.append(stored_difference < 0)
        clusters.append(question)
    prompt = sum(body["usage"]["prompt_tokens"] for body in bodies.values())
    dollars = (PRICE[0] * prompt / len(bodies) + PRICE[1] * REPLY_TOKENS) / 1e6
    return {
        "requests": len(asked),
        "answered": len(bodies),
        "decided_by_gpt4": decided,
        "same_winner": asdict(share(np.array(same), clusters, Resampling())),
        "always_second": asdict(share(np.array(always), clusters, Resampling())),
        "prompt_tokens_mean": prompt / len(bodies),
        "gpt_4_1_dollars_per_10000": 10_000 * dollars,
    }


if __name__ == "__main__":
    main()
