"""The whole path on real text: PandaLM's test set, and GPT-4's reviews of Vicuna, with the demo's judge.

    make demo-train
    python -m benchmarks.real_data --data DATA --out runs/real

DATA holds `pandalm/` (testset-v1.json) and `vicuna_reviews/` (question.jsonl, answer/, review/). The judge knows a
synthetic world's few words and reads this text nearly byte by byte: its figures show that the path works and what
such a judge is worth on real text, which is little.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
BIN = Path(sys.executable).parent


def main() -> None:
    """Judge, convert, fine-tune, judge again, and print all figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--judge", type=Path, default=Path("runs/demo-train/judge"))
    parser.add_argument("--out", type=Path, default=Path("runs/real"))
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    results = {"pandalm": pandalm(options.data / "pandalm", options.judge, options.out)}
    train, holdout = convert(options.data / "vicuna_reviews", options.out)
    before = judge(options.judge, holdout, holdout, options.out / "reviews-before.jsonl")
    tuned = fine_tune(options.judge, train, options.out / "judge")
    after = judge(tuned, holdout, holdout, options.out / "reviews-after.jsonl")
    results["vicuna_reviews"] = {"train_rows": lines(train), "before": before, "after": after}
    print(json.dumps(results, indent=1))


def pandalm(data: Path, model: Path, out: Path) -> dict[str, object]:
    """The 999 pairs against the majority of three people, under PandaLM's protocol."""
    test_set = data / "testset-v1.json"
    return judge(model, test_set, test_set, out / "pandalm.jsonl", "--protocol", "pandalm")


def convert(data: Path, out: Path) -> tuple[Path, Path]:
    """All reviews joined, 20 of the 80 questions held out."""
    answers, reviews = (sorted((data / name).glob("*.jsonl")) for name in ("answer", "review"))
    run(
        BIN / "python", ROOT / "data_tools/convert.py", "reviews", "--questions", data / "question.jsonl",
        "--answers", *answers, "--reviews", *reviews,
        "-o", out / "reviews.jsonl", "--split-by", "question", "--holdout", "20", "--seed", "0",
    )  # fmt: skip
    return out / "reviews.train.jsonl", out / "reviews.holdout.jsonl"


def fine_tune(base: Path, train: Path, out: Path) -> Path:
    """A judge on the reviews, from the demo's."""
    run(
        BIN / "accelerate", "launch", "--config_file", ROOT / "configs/accelerate/cpu.yaml", ROOT / "train/sft.py",
        "--config", ROOT / "configs/train/vicuna_reviews.yaml", "--model_name_or_path", base, "--train_data", train,
        "--output_dir", out, "--overwrite_output_dir",
    )  # fmt: skip
    return out


def judge(model: Path, pairs: Path, labels: Path, out: Path, *protocol: str) -> dict[str, object]:
    """Judge in both orders and evaluate; agreement by the protocol's order rule, and by the others beside it."""
    run(
        BIN / "judgelm-batch", pairs, "-o", out, "--model", model, "--both-orders", "--overwrite",
        "--max-failure-rate", "1",
    )  # fmt: skip
    text = run(BIN / "judgelm", "eval", out, "--labels", labels, "--json", "-", *protocol)
    evaluation = json.loads(text)
    session = json.loads(out.with_name(f"{out.stem}.run.json").read_text())["sessions"][-1]
    shown = evaluation["as_tie"]
    return {
        "n": shown["n"],
        "failures": evaluation["failure_codes"],
        "order_rule": evaluation["order_rule"],
        "agreement_percent": in_percent(shown["accuracy"]),
        "agreement_by_other_rules_percent": {
            rule: in_percent(results["as_tie"]) for rule, results in evaluation["other_rules"].items()
        },
        "f1_percent": in_percent(shown["f1"]),
        "always_most_frequent_percent": in_percent(shown["majority"]),
        "consistency_percent": in_percent(shown["position"]["consistency"]) if shown["position"] else None,
        "answers_cut_in": session["cut"],
        "cells_coerced": session["coerced"],
        "samples_per_s": session["samples_per_s"],
    }


def in_percent(estimate: dict[str, float]) -> list[float]:
    """Value and 95 % interval."""
    return [round(100 * estimate[name], 2) for name in ("value", "low", "high")]


def lines(path: Path) -> int:
    """Rows of a JSONL file."""
    return len(path.read_text(encoding="utf-8").splitlines())


def run(*command: object) -> str:
    """Run a command; its standard output."""
    return subprocess.run([str(part) for part in command], stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    main()
