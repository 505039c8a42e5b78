"""A small judge taught to reason on synthetic pairs, then reinforced: the reward, and held-out verdicts with intervals.

    python -m benchmarks.judge_grpo --work runs/judge-grpo

1. `policy`: the demo's untrained base, pre-trained and fine-tuned (`train/sft.py`) on the synthetic teacher's reasons
   with template `reasoned-compact`, so briefly that it is right in both orders in about half of its replies.
2. `grpo`: `train/grpo.py` from there by `configs/train/demo_grpo.yaml`, on pairs that are new to it.
3. `sft`: for comparison, `train/sft.py` from there on the same new pairs, with the teacher's reasons to learn from.

All judge the same held-out pairs, without references, greedily, in both orders. Pairs of which the teacher calls both
answers equal are left out everywhere. Intervals: 95 %, resampled by question; differences are of the same pairs. They
hold for one training with each seed. The same command goes on after an interruption.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from itertools import count, islice
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.synthetic.pairs import generate
from benchmarks.tiny_model import make_base
from judgelm.data.samples import SampleStream
from judgelm.judge import Judge
from judgelm.metrics.resampling import Estimate, Resampling, mean
from judgelm.records import Judgment
from judgelm.runs.runner import judge

ROOT = Path(__file__).parents[1]
PRETRAINED, TAUGHT, NEW, HELD_OUT = 16_000, 12_000, 4_000, 1_000
MEASURES = ("both_orders", "each_order", "same_winner", "reason_tokens")


def main() -> None:
    """Make, train, judge and compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--out", type=Path, default=ROOT / "benchmarks/judge_grpo_results.json")
    parser.add_argument("--seeds", type=int, default=1)
    options = parser.parse_args()
    results = [result_of(seed, options.work / f"seed{seed}") for seed in range(options.seeds)]
    options.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    print("\n\n".join(map(table, results)))


def result_of(seed: int, folder: Path) -> dict[str, Any]:
    """All figures of one seed."""
    make_data(folder, seed)
    small = {"template": "reasoned-compact", "reason_prob": 1, "seed": seed}
    times = {
        "pre-training": train(
            folder / "pretrained", "sft", "demo_base", base=folder / "base", data=folder / "pretrain.jsonl", **small
        ),
        "policy": train(
            folder / "policy", "sft", "demo", base=folder / "pretrained", data=folder / "taught.jsonl", **small
        ),
        "grpo": train(
            folder / "grpo", "grpo", "demo_grpo", base=folder / "policy", data=folder / "new.jsonl",
            eval_data=folder / "held_out.jsonl", seed=seed, save_strategy="steps", save_steps=120, save_total_limit=1,
        ),
        "sft": train(folder / "sft", "sft", "demo", base=folder / "policy", data=folder / "new.jsonl", **small),
    }  # fmt: skip
    measured = {name: measures(folder / name, folder / "held_out.jsonl") for name in ("policy", "grpo", "sft")}
    rewards = logged_rewards(folder / "grpo")
    return {
        "seed": seed,
        "pairs": {"pretrained": PRETRAINED, "taught": TAUGHT, "new": NEW, "held_out": HELD_OUT},
        "seconds": times,
        "cores": os.cpu_count(),
        "reward_by_10_steps": [round(float(np.mean(rewards[i : i + 10])), 3) for i in range(0, len(rewards), 10)],
        "held_out": {name: estimates(values) for name, values in measured.items()},
        "difference_to_policy": {
            name: estimates(measured[name], measured["policy"]) for name in ("grpo", "sft")
        },
    }  # fmt: skip


def make_data(folder: Path, seed: int) -> None:
    """Write the pairs, no pair twice, and the untrained base."""
    if (folder / "base" / "config.json").exists():
        return
    folder.mkdir(parents=True, exist_ok=True)
    start = 0
    for name, wanted in (("pretrain", PRETRAINED), ("taught", TAUGHT), ("new", NEW)):
        start = write_decided(folder / f"{name}.jsonl", wanted, seed=seed, split="train", start=start)
    write_decided(folder / "held_out.jsonl", HELD_OUT, seed=seed, split="validation", start=0)
    with (folder / "pretrain.jsonl").open(encoding="utf-8") as file:
        texts = [text_of(json.loads(line)) for line in islice(file, 5000)]
    make_base(
        texts, folder / "base", hidden_size=128, layers=2, heads=8, vocab_size=1280, max_positions=1024, seed=seed
    )


def write_decided(path: Path, wanted: int, *, seed: int, split: Any, start: int) -> int:
    """Write pairs of which one answer is better with a reference and without; the index behind the last."""
    with path.open("w", encoding="utf-8") as file:
        for index in count(start):
            [row] = generate(1, seed=seed, split=split, start=index)
            scores = [row["score"], row["score_w_reference"]]
            if all(isinstance(pair, list) and pair[0] != pair[1] for pair in scores):
                file.write(json.dumps(row, ensure_ascii=False) + "\n")
                wanted -= 1
            if not wanted:
                return index + 1
    raise AssertionError("the rows have no end")


def text_of(row: dict[str, Any]) -> str:
    """A row as the prompt shows it, with its reason and a verdict, for the tokenizer."""
    reason = row["text_w_reference"].split("\n", 1)[1]
    shown = f"[1] {row['answer1_body']}\n[2] {row['answer2_body']}\n[S] {reason}\n[[1]] [[2]]"
    return f"[Q] {row['question_body']}\n[R] {row['reference']['text']}\n{shown}"


def train(out: Path, recipe: str, config: str, *, base: Path, data: Path, **options: Any) -> float:
    """Run a recipe where its judge is not there yet; seconds, of an earlier run those that it took."""
    took = out / "seconds.json"
    if (out / "judge.json").exists():
        return float(json.loads(took.read_text()))
    values = {"model_name_or_path": base, "train_data": data, "output_dir": out, "overwrite_output_dir": True} | options
    flags = [text for name, value in values.items() for text in (f"--{name}", str(value))]
    script = [str(ROOT / f"train/{recipe}.py"), "--config", str(ROOT / f"configs/train/{config}.yaml")]
    began = time.monotonic()
    environment = os.environ | {"DS_ACCELERATOR": "cpu", "TOKENIZERS_PARALLELISM": "false", "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *script, *flags], env=environment, check=False)
    if done.returncode:
        sys.exit(f"error: {' '.join(script)} ended with {done.returncode}")
    seconds = round(time.monotonic() - began, 1)
    took.write_text(json.dumps(seconds))
    return seconds


def measures(folder: Path, held_out: Path) -> dict[str, Any]:
    """Measures of a judge on each held-out pair, and the pairs' questions."""
    stream = SampleStream([str(held_out)])
    pairs = [(sample, stream.labels(row, False)[0]) for row, sample in stream.pairs()]
    with Judge(str(folder), engine="transformers", dtype="float32") as loaded:
        mode = loaded.mode("pair", both_orders=True, reference="ignore", max_tokens=64)
        judged = {judgment.sample_id: judgment for judgment in judge((s for s, _ in pairs), mode, loaded.engine)}
    rights = np.array([right_orders(judged[sample.id], label.winner) for sample, label in pairs if label])
    judgments = [judged[sample.id] for sample, _ in pairs]
    return {
        "both_orders": rights.all(axis=1).astype(float),
        "each_order": rights.mean(axis=1),
        "same_winner": np.array([float(judgment.consistent is True) for judgment in judgments]),
        "reason_tokens": np.array([judgment.completion_tokens / 2 for judgment in judgments]),
        "unreadable": sum(shown.failure is not None for judgment in judgments for shown in judgment.shown),
        "questions": [sample.question for sample, _ in pairs],
    }


def right_orders(judgment: Judgment, winner: object) -> list[bool]:
    """For each order, whether its verdict names the label's winner; an unreadable reply names none."""
    return [
        shown.label is not None and shown.order[int(shown.label) - 1] + 1 == winner for shown in judgment.shown
    ]  # fmt: skip


def estimates(values: dict[str, Any], other: dict[str, Any] | None = None) -> dict[str, Any]:
    """Means with intervals; of the differences where there is another judge of the same pairs."""
    figures: dict[str, Any] = {}
    for name in MEASURES:
        numbers = values[name] if other is None else values[name] - other[name]
        estimate: Estimate = mean(numbers, values["questions"], Resampling())
        figures[name] = {"value": estimate.value, "low": estimate.low, "high": estimate.high}
    return figures | ({} if other else {"unreadable_of_2000": values["unreadable"]})


def logged_rewards(folder: Path) -> Sequence[float]:
    """Each step's mean share of right verdicts in both orders, of the replies that were drawn."""
    [state] = folder.glob("checkpoint-*/trainer_state.json")
    history = json.loads(state.read_text(encoding="utf-8"))["log_history"]
    return [entry["rewards/both_orders_right/mean"] for entry in history if "reward" in entry]


def table(result: dict[str, Any]) -> str:
    """The figures of one seed as Markdown."""

    def cell(estimate: dict[str, float], measure: str, *, signed: bool = False) -> str:
        scale, sign = (1, "+" if signed else "") if measure == "reason_tokens" else (100, "+" if signed else "")
        value, low, high = (estimate[name] * scale for name in ("value", "low", "high"))
        return f"{value:{sign}.1f} ({low:{sign}.1f} to {high:{sign}.1f})"

    lines = [
        f"seed {result['seed']}; reward of 10 steps each: {result['reward_by_10_steps']}; seconds: {result['seconds']}",
        "| judge | " + " | ".join(MEASURES) + " |",
        "|---" * (len(MEASURES) + 1) + "|",
    ]
    for name, figures in result["held_out"].items():
        lines.append(f"| {name} | " + " | ".join(cell(figures[each], each) for each in MEASURES) + " |")
    for name, figures in result["difference_to_policy"].items():
        row = " | ".join(cell(figures[each], each, signed=True) for each in MEASURES)
        lines.append(f"| {name} - policy | {row} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
