"""Pairs of AlpacaEval's annotations (CC BY-NC 4.0): preferences balanced by length, and answers to other instructions.

    python -m benchmarks.reading_training.alpaca_pairs --data ALPACA_EVAL_JUDGMENTS --out FOLDER

Neighbour pairs need no judge: an answer to this instruction wins against a stronger model's longer answer to a similar
instruction.
"""

import argparse
import random
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
from sklearn.feature_extraction.text import TfidfVectorizer

from benchmarks.reading_training.pairs import Pair, balanced_by_length, placed, split_of, write_pairs

MOST_ANSWER, MOST_PAIR, LEAST_ANSWER = 1400, 2200, 40
MOST_PREFERENCES, PER_INSTRUCTION = 1500, 8
NEIGHBOURS, LONGER_WRONG, ROUNDS = 1400, 0.7, 8
_SOFT = "weighted_alpaca_eval_gpt4_turbo"


def table(path: Path) -> list[dict[str, Any]]:
    """Rows of a parquet file."""
    rows: list[dict[str, Any]] = pq.read_table(path).to_pylist()
    return rows


def preferences(data: Path, draw: random.Random) -> list[Pair]:
    """Judgments with soft labels as they are, balanced by length within a split, few of an instruction."""
    instructions = [row["instruction"] for row in table(data / "instructions.parquet")]
    outputs = table(data / "outputs.parquet")
    by_instruction: dict[tuple[int, bool], list[Pair]] = defaultdict(list)
    for index, row in enumerate(table(data / "judgments.parquet")):
        texts = outputs[row["output_1"]]["text"], outputs[row["output_2"]]["text"]
        label = 2.0 - row["preference"]
        if not _fits(texts) or abs(label - 0.5) < 0.1:
            continue
        if draw.random() < 0.5:  # output_1 is always the baseline
            texts, label = texts[::-1], 1 - label
        question = instructions[row["instruction"]]
        pair = Pair(
            id=f"alpaca-{index}", question=question, answers=texts, label=label,
            family="preference", kind="alpaca soft" if row["annotator"] == _SOFT else "alpaca hard",
            split=split_of(question), licence="non-commercial",
        )  # fmt: skip
        if pair.longer_is_better is not None:
            by_instruction[row["instruction"], pair.longer_is_better].append(pair)
    few = [
        pair for pairs in by_instruction.values() for pair in draw.sample(pairs, min(PER_INSTRUCTION // 2, len(pairs)))
    ]
    chosen = []
    for split, most in (("train", MOST_PREFERENCES), ("dev", 400)):
        chosen += balanced_by_length([pair for pair in few if pair.split == split], draw, most)
    return chosen


def _fits(texts: Sequence[str]) -> bool:
    return sum(map(len, texts)) <= MOST_PAIR and all(LEAST_ANSWER <= len(text) <= MOST_ANSWER for text in texts)


def win_rates(data: Path) -> dict[str, float]:
    """Share of judgments that each generator won against the baseline."""
    outputs = table(data / "outputs.parquet")
    wins: dict[str, list[float]] = defaultdict(list)
    for row in table(data / "judgments.parquet"):
        wins[outputs[row["output_2"]]["generator"]].append(row["preference"] - 1)
    return {name: float(np.mean(shares)) for name, shares in wins.items() if len(shares) >= 50}


def neighbours(data: Path, draw: random.Random) -> list[Pair]:
    """An answer against a stronger model's answer to one of the five most similar instructions of the same split."""
    instructions = [row["instruction"] for row in table(data / "instructions.parquet")]
    rates = win_rates(data)
    answers: dict[int, list[tuple[float, str]]] = defaultdict(list)
    for row in table(data / "outputs.parquet"):
        if row["generator"] in rates and LEAST_ANSWER <= len(row["text"]) <= MOST_ANSWER:
            answers[row["instruction"]].append((rates[row["generator"]], row["text"]))
    vectors = TfidfVectorizer(stop_words="english", sublinear_tf=True).fit_transform(instructions)
    similar = (vectors @ vectors.T).toarray()
    np.fill_diagonal(similar, -1)
    splits = [split_of(instruction) for instruction in instructions]
    pairs = []
    for round_index in range(ROUNDS):
        for index in range(len(instructions)):
            others = [other for other in np.argsort(-similar[index]) if splits[other] == splits[index]]
            other = draw.choice(others[:5])
            if pair := _neighbour(index, other, round_index, instructions, answers, draw):
                pairs.append(pair)
    chosen = []
    for split, most in (("train", NEIGHBOURS), ("dev", 300)):
        chosen += balanced_by_length([p for p in pairs if p.split == split], draw, most, 1 - LONGER_WRONG)
    return chosen


def _neighbour(
    index: int, other: int, round_index: int, instructions: Sequence[str],
    answers: dict[int, list[tuple[float, str]]], draw: random.Random,
) -> Pair | None:  # fmt: skip
    if not answers[index] or not answers[other]:
        return None
    rate, good = draw.choice(answers[index])
    stronger = [text for other_rate, text in answers[other] if other_rate > rate]
    if not stronger:
        return None
    texts, label = placed(good, draw.choice(stronger), draw)
    question = instructions[index]
    return Pair(
        id=f"neighbour-{index}-{round_index}", question=question, answers=texts, label=label, family="longer",
        kind="alpaca neighbour", split=split_of(question), licence="non-commercial",
    )  # fmt: skip


def main() -> None:
    """Write both pools."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    for name, make in (("alpaca_preferences", preferences), ("alpaca_neighbours", neighbours)):
        pairs = make(options.data, random.Random(0))
        write_pairs(options.out / f"{name}.jsonl", pairs)
        print(f"{name}: {len(pairs)}, of them {sum(pair.split == 'dev' for pair in pairs)} for development")


if __name__ == "__main__":
    main()
