"""Cost of a score distribution, relative to the score line alone.

    python -m benchmarks.score_distribution --data DATA --engine transformers --dtype bfloat16
    python -m benchmarks.score_distribution --data DATA --engine vllm --block-size 32
    python -m benchmarks.score_distribution --data DATA --engine vllm --block-size 128

DATA holds `pandalm/testset-v1.json` (the prompts) and `vicuna_reviews/review/` (GPT-4's scores). The judge is made on
the spot: a Llama from random weights that learns from the ends of the prompts to write score lines as often as GPT-4
gave them. So it knows nothing of the answers and is as unsure as the scores are spread: the hard case for an engine
that follows only likely branches. Both ways run in turn, several rounds; a ratio is one round's.
"""

import argparse
import json
import random
import statistics
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from benchmarks.tiny_model import make_base
from judgelm.data.samples import SampleStream
from judgelm.engines.base import Engine, EngineOptions
from judgelm.engines.catalog import load_engine
from judgelm.modes import Pairwise
from judgelm.prompts.catalog import get_template
from judgelm.records import Sample
from judgelm.runs.runner import judge

TAIL_TOKENS, STEPS, ROWS = 48, 120, 8


def main() -> None:
    """Make the judge once, then judge the same pairs with and without distribution."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--engine", default="transformers")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--block-size", type=int)
    parser.add_argument("--pairs", type=int, default=24)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--out", type=Path, default=Path("runs/bench"))
    options = parser.parse_args()
    samples = pandalm(options.data, options.pairs)
    folder = make_judge(options.data, options.out / "unsure-judge")
    arguments = {"block_size": options.block_size, "kv_cache_memory_bytes": 2 << 30} if options.block_size else {}
    engine = load_engine(options.engine, EngineOptions(model=str(folder), dtype=options.dtype, engine_args=arguments))
    plain = Pairwise(both_orders=True)
    scored = Pairwise(both_orders=True, distribution=True)
    timed(engine, scored, samples[:4])
    results = [measure(engine, plain, scored, samples) for _ in range(options.rounds)]
    ratios = sorted(result["ratio"] for result in results)
    engine.close()
    print(json.dumps({
        "engine": engine_name(options), "dtype": options.dtype, "pairs": len(samples), "rounds": len(results),
        "ratio_median": round(statistics.median(ratios), 3), "ratio_range": [round(ratios[0], 3), round(ratios[-1], 3)],
        **{key: results[-1][key] for key in ("prompt_tokens", "expected_scores_spread", "branches_per_prompt")},
    }, indent=1))  # fmt: skip


def engine_name(options: argparse.Namespace) -> str:
    """The engine and what was set of it."""
    return f"{options.engine}, block size {options.block_size}" if options.block_size else str(options.engine)


def measure(engine: Engine, plain: Pairwise, scored: Pairwise, samples: list[Sample]) -> dict[str, float]:
    """One round: the second way is not helped by the first, whose prompts an engine may still hold."""
    alone, tokens, _ = timed(engine, plain, renamed(samples))
    before = engine.stats().get("branches", 0)
    both, _, spread = timed(engine, scored, renamed(samples))
    return {
        "ratio": both / alone,
        "prompt_tokens": tokens,
        "expected_scores_spread": round(spread, 3),
        "branches_per_prompt": round((engine.stats().get("branches", 0) - before) / (2 * len(samples)), 2),
    }


def timed(engine: Engine, mode: Pairwise, samples: list[Sample]) -> tuple[float, int, float]:
    """Seconds, prompt tokens, and the standard deviation of the first score within a prompt."""
    began = time.perf_counter()
    judgments = list(judge(samples, mode, engine))
    seconds = time.perf_counter() - began
    shown = [
        prompt.distribution for judgment in judgments for prompt in judgment.shown if prompt.distribution is not None
    ]
    spread = [sum(p * (first - scores.expected[0]) ** 2 for first, _, p in scores.likeliest) ** 0.5 for scores in shown]
    return seconds, sum(judgment.prompt_tokens for judgment in judgments), statistics.mean(spread or [0.0])


_ROUND = iter(range(10**6))


def renamed(samples: list[Sample]) -> list[Sample]:
    """The same pairs with another first word, so that no prefix cache knows them."""
    round_index = next(_ROUND)
    return [
        Sample(id=sample.id, question=f"{round_index}. {sample.question}", answers=sample.answers) for sample in samples
    ]


def pandalm(data: Path, count: int) -> list[Sample]:
    """The first pairs of the test set."""
    stream = SampleStream([str(data / "pandalm/testset-v1.json")], limit=count)
    return list(stream)


def make_judge(data: Path, folder: Path) -> Path:
    """About 60 million parameters that write GPT-4's score lines in GPT-4's proportions, whatever they read."""
    if (folder / "config.json").is_file():
        return folder
    texts = [text_of(sample) for sample in pandalm(data, 400)]
    make_base(texts, folder, hidden_size=640, layers=10, heads=10, vocab_size=4096, max_positions=2048, seed=0)
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    draw = random.Random(0)
    lines = score_lines(data)
    optimizer = torch.optim.AdamW(model.parameters(), lr=5e-4)
    for _ in range(STEPS):
        rows = []
        for text in draw.choices(texts, k=ROWS):
            prompt = tokenizer(text)["input_ids"][-TAIL_TOKENS:]
            whole = prompt + tokenizer(draw.choice(lines) + "\n", add_special_tokens=False)["input_ids"]
            rows.append((prompt, whole))
        longest = max(len(whole) for _, whole in rows)
        ids, labels = torch.zeros((ROWS, longest), dtype=torch.long), torch.full((ROWS, longest), -100)
        for index, (prompt, whole) in enumerate(rows):
            ids[index, : len(whole)] = torch.tensor(whole)
            labels[index, len(prompt) : len(whole)] = ids[index, len(prompt) : len(whole)]
        model(input_ids=ids, labels=labels).loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    model.save_pretrained(folder)
    return folder


def text_of(sample: Sample) -> str:
    """The prompt as text."""
    return "".join(span.text for span in get_template("judgelm-v1").render(sample, (0, 1), None).spans)


def score_lines(data: Path) -> list[str]:
    """GPT-4's whole scores, as a judge writes them."""
    results = []
    for path in sorted((data / "vicuna_reviews/review").glob("*.jsonl")):
        for line in path.read_text(encoding="utf-8").splitlines():
            first, second = json.loads(line)["score"]
            if {first, second} <= set(range(1, 11)):
                results.append(f"{first:g} {second:g}")
    return results


if __name__ == "__main__":
    main()
