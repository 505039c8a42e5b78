"""How well the default judge compares summaries in eight languages (Mondshine et al. 2025).

    python -m benchmarks.other_languages FOLDER

The folder is `data/` of itaimondshine/Beyond_ngrams. People rated the summaries of two models for coherence and for
completeness, from 1 to 4; some summaries were damaged on purpose. The better summary is the one with the higher sum.
Prints a row for each language.
"""

import argparse
import ast
import time
from collections.abc import Mapping
from pathlib import Path
from statistics import fmean

import pandas as pd
from scipy.stats import binomtest

from judgelm.judge import Judge
from judgelm.records import Judgment

LANGUAGES = ("arabic", "chinese", "hebrew", "japanese", "spanish", "turkish", "ukrainian", "yoruba")
RATINGS = {"coherence": ("coherence_gemini", "coherence_gpt"), "consistency": ("gemini_grade", "gpt_grade")}
"""Folders and columns of the ratings. The folder `consistency` has those for completeness."""


def main() -> None:
    """Judge the pairs of each language."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--model")
    parser.add_argument("--limit", type=int, help="pairs per language")
    options = parser.parse_args()
    print("| language | pairs | judge, % correct | longer summary, % correct | ties, failures | s |")
    print("|---|---|---|---|---|---|")
    total: list[tuple[bool, bool]] = []
    with Judge(options.model, engine="transformers") as judge:
        for language in LANGUAGES:
            began = time.monotonic()
            rows = read_pairs(options.folder, language)[: options.limit]
            judgments = judge.compare_many(rows)
            assert isinstance(judgments, list)
            outcomes = [outcome(row, each) for row, each in zip(rows, judgments, strict=True)]
            undecided = sum(each.winner not in (1, 2) for each in judgments)
            print(row_of(language, outcomes, undecided, time.monotonic() - began), flush=True)
            total += outcomes
    print(row_of("all", total, 0, 0), flush=True)


def read_pairs(folder: Path, language: str) -> list[dict[str, object]]:
    """Return the pairs whose summaries were rated for both, and rated differently."""
    differences: list[dict[object, float]] = []
    rows: dict[object, Mapping[str, object]] = {}
    for name, (first, second) in RATINGS.items():
        frame = pd.read_csv(folder / name / f"{language}.csv")
        rows |= {row["inner_index"]: row for row in frame.to_dict("records")}
        pairs = zip(frame["inner_index"], frame[first], frame[second], strict=True)
        differences.append({index: mean(own) - mean(other) for index, own, other in pairs})
    found = []
    for index in (each for each in differences[0] if each in differences[1]):
        difference = differences[0][index] + differences[1][index]
        if difference:
            row = rows[index]
            found.append(
                {
                    "id": f"{language} {index}",
                    "question": f"Write a short summary of this text, in its language.\n\n{row['text']}",
                    "answer_1": row["gemini_corrupted_summary"],
                    "answer_2": row["gpt_corrupted_summary"],
                    "winner": 1 if difference > 0 else 2,
                }
            )
    return found


def mean(ratings: str) -> float:
    """Return the mean of a list that was written as text."""
    return fmean(map(float, ast.literal_eval(ratings)))


def outcome(row: Mapping[str, object], judgment: Judgment) -> tuple[bool, bool]:
    """Return whether the judge and the longer summary are right. A tie or a failure of the judge is wrong."""
    longer = 1 if len(str(row["answer_1"])) >= len(str(row["answer_2"])) else 2
    return judgment.winner == row["winner"], longer == row["winner"]


def row_of(name: str, outcomes: list[tuple[bool, bool]], undecided: int, seconds: float) -> str:
    """Return a row of the table, with 95 % Wilson intervals."""
    cells = []
    for column in zip(*outcomes, strict=True):
        interval = binomtest(sum(column), len(column)).proportion_ci(method="wilson")
        cells.append(f"{100 * fmean(column):.1f} ({100 * interval.low:.1f} to {100 * interval.high:.1f})")
    return f"| {name} | {len(outcomes)} | {' | '.join(cells)} | {undecided} | {seconds:.0f} |"


if __name__ == "__main__":
    main()
