"""Share of useful tokens in training: in a rank's padded batches, and over ranks, which wait for the longest of a pass.

    python -m benchmarks.useful_tokens --rows 8000 [--tokenizer FOLDER] [--data ../shared/data]

Rows are those of `benchmarks.row_preparation`, of JudgeLM's shape, in the order of training: random, and by like length
(`train_sampling_strategy: group_by_length`). A pass has `--per-device` rows on each rank. Without padding, as with
FlashAttention, a rank computes its own tokens alone, and still waits for the rank with the most.
"""

import argparse
import json
import tempfile
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from transformers import AutoTokenizer

from benchmarks.row_preparation import judgelm_rows, trained
from judgelm.training.rows.builder import RowOptions
from judgelm.training.rows.dataset import Schedule, build_epochs

GLOBAL_BATCH = 128


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
        lengths = {}
        for grouped in (False, True):
            schedule = Schedule(epochs=1, steps=None, batch=GLOBAL_BATCH, group_by_length=grouped, seed=0)
            rows = build_epochs(
                tokenizer, RowOptions(template="judgelm-v1", window=2048), [str(file)], schedule, Path(folder) / "rows"
            )
            lengths[grouped] = np.array([len(ids) for ids in rows.dataset["input_ids"]])
    print(f"{len(lengths[True])} rows of {lengths[True].mean():.0f} tokens (sd {lengths[True].std():.0f})\n")
    print("| ranks | layout | random order | by like length |\n|---|---|---|---|")
    for ranks in options.ranks:
        for padded in (True, False):
            shares = [
                useful_share(lengths[grouped], per_device=options.per_device, ranks=ranks, padded=padded)
                for grouped in (False, True)
            ]
            cells = " | ".join(f"{share:.1%}" for share in shares)
            print(f"| {ranks} | {'padded' if padded else 'not padded'} | {cells} |")


if __name__ == "__main__":
    main()
