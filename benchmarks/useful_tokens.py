"""Share of useful tokens in training: in a rank's padded batches, and over ranks, which wait for the longest of a pass.

    python -m benchmarks.useful_tokens --rows 8000 [--tokenizer FOLDER] [--data ../shared/data]

Rows have JudgeLM's shape: a question, two answers and a reference from AlpacaEval's files, two of Vicuna's reviews as
reasons, about 680 tokens each. Training takes them in random order or grouped by length
(`train_sampling_strategy: group_by_length`). A pass has `--per-device` rows on each rank, of preferences as many
pairs in both orders. Without padding a rank computes its own tokens alone, and still waits for the rank with the most.
"""

import argparse
import json
import random
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet
from numpy.typing import NDArray
from tokenizers import ByteLevelBPETokenizer
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from judgelm.training.rows.builder import RowOptions
from judgelm.training.rows.dataset import Schedule, build_epochs
from judgelm.training.rows.pairs import PairRowBuilder, PairRowOptions
from judgelm.training.rows.sft import SFTRowBuilder

GLOBAL_BATCH = 128
MAX_ANSWER = 900
"""Characters of an answer; makes rows of about 680 tokens."""


def useful_share(lengths: NDArray[np.int64], *, per_device: int, ranks: int, padded: bool) -> float:
    """Tokens of rows, as a share of what all ranks could compute until the longest of each pass is done.

    Args:
        lengths: shape (rows,), in the order of training; rows that fill no whole pass are left out.
        per_device: rows of a rank's pass; consecutive rows are one rank's, consecutive ranks one pass.
        ranks: their number.
        padded: whether rows are padded to the longest of their rank.
    """
    passes = lengths[: len(lengths) // (per_device * ranks) * per_device * ranks].reshape(-1, ranks, per_device)
    computed = per_device * passes.max(axis=2) if padded else passes.sum(axis=2)
    return float(passes.sum() / (ranks * computed.max(axis=1)).sum())


def main() -> None:
    """Build the rows in both orders; print a line of the table for each number of ranks and each layout."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=8000)
    parser.add_argument("--per-device", type=int, default=4)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 8, 16])
    parser.add_argument("--tokenizer", help="folder of a fast tokenizer; default: a BPE of 32,000 pieces of the texts")
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "train.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in judgelm_rows(options.data, options.rows)))
        tokenizer = AutoTokenizer.from_pretrained(options.tokenizer) if options.tokenizer else trained(file)
        sft, pairs = RowOptions(template="judgelm-v1", window=2048), PairRowOptions(template="judgelm-v1", window=2048)
        lengths = {
            (kind, grouped): row_lengths(tokenizer, file, builder, how, columns, grouped=grouped)
            for kind, builder, how, columns in (
                ("SFT", SFTRowBuilder, sft, ["input_ids"]),
                ("preferences", PairRowBuilder, pairs, ["prompt_ids", "second_ids"]),
            )
            for grouped in (False, True)
        }
    for kind, per_pass in (("SFT", options.per_device), ("preferences", 2 * options.per_device)):
        rows = lengths[kind, True]
        print(f"\n{kind}: {len(rows)} rows of {rows.mean():.0f} tokens (sd {rows.std():.0f})\n")
        print("| ranks | layout | random order | by like length |\n|---|---|---|---|")
        for ranks in options.ranks:
            for padded in (True, False):
                shares = [
                    useful_share(lengths[kind, grouped], per_device=per_pass, ranks=ranks, padded=padded)
                    for grouped in (False, True)
                ]
                cells = " | ".join(f"{share:.1%}" for share in shares)
                print(f"| {ranks} | {'padded' if padded else 'not padded'} | {cells} |")


def row_lengths(
    tokenizer: Any, file: Path, builder: Any, how: RowOptions, columns: list[str], *, grouped: bool
) -> NDArray[np.int64]:
    """Lengths of an epoch's rows in the order of training; a pair's two prompts are rows one behind another."""
    schedule = Schedule(epochs=1, steps=None, batch=GLOBAL_BATCH, group_by_length=grouped, seed=0)
    rows = build_epochs(tokenizer, how, [str(file)], schedule, file.parent / builder.__name__, builder).dataset
    lengths = [[len(ids) for ids in rows[column]] for column in columns]
    return np.array(lengths).T.flatten()


def judgelm_rows(data: Path, count: int) -> Iterator[dict[str, Any]]:
    """Labelled rows of real texts; the scores are drawn."""
    read = pyarrow.parquet.read_table
    questions = read(data / "alpaca_eval_judgments/instructions.parquet")["instruction"].to_pylist()
    outputs = read(data / "alpaca_eval_judgments/outputs.parquet")
    answers: dict[int, list[str]] = {}
    for question, text in zip(outputs["instruction"].to_pylist(), outputs["text"].to_pylist(), strict=True):
        if len(text) <= MAX_ANSWER:
            answers.setdefault(question, []).append(text)
    answers = {question: texts for question, texts in answers.items() if len(texts) > 2}
    reviews = [
        json.loads(line)["text"] for path in sorted(data.glob("vicuna_reviews/review/*")) for line in path.open()
    ]
    reasons = [review.split("\n", 1)[1] for review in reviews if "\n" in review]
    rng = random.Random(0)
    for index in range(count):
        question = rng.choice(sorted(answers))
        first, second, reference = rng.sample(answers[question], 3)
        row = {"question_id": index, "question_body": questions[question], "reference": {"text": reference}}
        row |= {"answer1_body": first, "answer2_body": second}
        for name in ("", "_w_reference"):
            scores = [rng.randint(1, 10), rng.randint(1, 10)]
            row |= {f"score{name}": scores, f"text{name}": f"{scores[0]} {scores[1]}\n{rng.choice(reasons)}"}
        yield row


def trained(file: Path) -> PreTrainedTokenizerFast:
    """A byte-level BPE of 32,000 pieces on the file's texts."""
    tokenizer = ByteLevelBPETokenizer()
    tokenizer.train([str(file)], vocab_size=32_000, special_tokens=["</s>"], show_progress=False)
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer._tokenizer, eos_token="</s>")


if __name__ == "__main__":
    main()
