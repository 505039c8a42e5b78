"""Share of useful tokens in training: in a rank's padded batches, and over ranks, which wait for the longest of a pass.

    python -m benchmarks.useful_tokens --rows 8000 [--tokenizer FOLDER] [--data ../shared/data]

Rows are those of `benchmarks.row_preparation`, of JudgeLM's shape, in the order of training: random, and by like length
(`train_sampling_strategy: group_by_length`). A pass has `--per-device` rows on each rank, of preferences as many
pairs in both orders. Without padding a rank computes its own tokens alone, and still waits for the rank with the most.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from transformers import AutoTokenizer

from benchmarks.row_preparation import judgelm_rows, trained
from judgelm.training.rows.builder import RowOptions
from judgelm.training.rows.dataset import Schedule, build_epochs
from judgelm.training.rows.pairs import PairRowBuilder, PairRowOptions
from judgelm.training.rows.sft import SFTRowBuilder

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


if __name__ == "__main__":
    main()
