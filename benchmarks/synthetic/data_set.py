"""Write a synthetic data set: data to pre-train and fine-tune on, held-out pairs, and an untrained base model.

    python data_tools/make_synthetic.py --out runs/demo-train --seed 0

Writes `pretrain.jsonl`, `train.jsonl` and `test.jsonl` (JudgeLM training rows; no question of the test set is in the
others) and `base/` (a tokenizer trained on the rows' text and a small Llama with random weights).
"""

import argparse
import json
from collections.abc import Iterable
from pathlib import Path

from benchmarks.synthetic.pairs import generate
from benchmarks.tiny_model import make_base
from judgelm.cli.console import echo

TOKENIZER_ROWS = 5000


def main() -> None:
    """Read the arguments and write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder to write into")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pretrain-rows", type=int, default=76_800)
    parser.add_argument("--train-rows", type=int, default=134_400)
    parser.add_argument("--test-rows", type=int, default=1000)
    parser.add_argument("--hidden-size", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=8)
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    pretrain, train, test = (options.out / f"{name}.jsonl" for name in ("pretrain", "train", "test"))
    write(pretrain, generate(options.pretrain_rows, seed=options.seed, split="train"))
    write(train, generate(options.train_rows, seed=options.seed, split="train", start=options.pretrain_rows))
    write(test, generate(options.test_rows, seed=options.seed, split="validation"))
    make_base(
        (text_of(row) for row in generate(TOKENIZER_ROWS, seed=options.seed, split="train")),
        options.out / "base",
        hidden_size=options.hidden_size,
        layers=options.layers,
        heads=options.heads,
        vocab_size=1280,
        max_positions=1024,
        seed=options.seed,
    )
    echo(f"data in {options.out}: {options.pretrain_rows + options.train_rows} training rows, base model")


def write(path: Path, rows: Iterable[dict[str, object]]) -> None:
    """Write rows as JSONL."""
    with path.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")


def text_of(row: dict[str, object]) -> str:
    """A row as the compact prompt shows it, so that the tokenizer sees every piece in its place."""
    reference = row["reference"]
    assert isinstance(reference, dict), "a training row carries a reference"
    return (
        f"[Q] {row['question_body']}\n[R] {reference['text']}\n[1] {row['answer1_body']}\n[2] {row['answer2_body']}\n"
        f"[S]{row['text_w_reference']}"
    )


if __name__ == "__main__":
    main()
