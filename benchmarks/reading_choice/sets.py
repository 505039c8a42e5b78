"""Development pairs: own ones, GSM8K's training questions, AlpacaEval's annotations, and the everyday pairs.

GSM8K's and AlpacaEval's pairs are those of `benchmarks.reading_training` (`objective.jsonl`, `alpaca_preferences.jsonl`
in `--pools`), training part alone: no text of a test set is read.
"""

import random
from collections.abc import Sequence
from pathlib import Path

from benchmarks.reading_training.own_pairs import everyday
from benchmarks.reading_training.pairs import OVERLAPS, Pair, balanced_by_length, json_lines, read_pairs

OWN = Path(__file__).parent / "own_pairs.jsonl"
EVERYDAY = Path(__file__).parents[2] / "judgelm/everyday_pairs.jsonl"
SETS = ("own", "gsm8k", "alpaca", "everyday")
GSM8K_SAMPLED, GSM8K_REFERENCE, ALPACA = 24, 16, 60
CLEAR_LABEL = 0.8
"""Least probability of AlpacaEval's better answer."""
MOST_CHARACTERS = 1200
"""Of question and answers of GSM8K's and AlpacaEval's pairs, so that a CPU can ask many wordings."""


def development_pairs(pools: Path) -> dict[str, list[Pair]]:
    """The sets, decided pairs only. Those of GSM8K and AlpacaEval are shuffled: their first pairs are a sample."""
    objective = _training(pools / "objective.jsonl")
    gsm8k = [
        pair
        for kind, most in (("gsm8k sampled", GSM8K_SAMPLED), ("gsm8k reference", GSM8K_REFERENCE))
        for pair in balanced_by_length([pair for pair in objective if pair.kind == kind], random.Random(0), most)
    ]
    clear: dict[str, Pair] = {}
    for pair in _shuffled(_training(pools / "alpaca_preferences.jsonl")):
        if max(pair.label, 1 - pair.label) >= CLEAR_LABEL:
            clear.setdefault(pair.question, pair)
    alpaca = balanced_by_length(list(clear.values()), random.Random(0), ALPACA)
    return {
        "own": own_pairs(),
        "gsm8k": _shuffled(gsm8k),
        "alpaca": _shuffled(alpaca),
        "everyday": [pair for pair in everyday(EVERYDAY) if pair.label != 0.5],
    }


def own_pairs() -> list[Pair]:
    """The pairs of `own_pairs.jsonl`."""
    return [
        Pair(
            id=row["id"], question=row["question"], answers=(row["answer_1"], row["answer_2"]),
            label=float(row["label"] == 1), family="own", kind=row["category"], split="dev",
        )
        for row in json_lines(OWN)
    ]  # fmt: skip


def _shuffled(pairs: Sequence[Pair]) -> list[Pair]:
    return random.Random(0).sample(list(pairs), len(pairs))


def _training(path: Path) -> list[Pair]:
    pairs = [pair for pair in read_pairs(path) if pair.split == "train"]
    short = [pair for pair in pairs if len(pair.question) + sum(map(len, pair.answers)) <= MOST_CHARACTERS]
    return [pair for pair in short if not any(part in pair.question for part in OVERLAPS)]
