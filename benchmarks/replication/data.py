"""The files: texts that the bases read, rows for fine-tuning, held-out pairs."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.replication.plan import PREFERENCE, Run
from benchmarks.synthetic.pairs import generate

PRETRAINING_SEED, TEST_SEED = 900, 901
"""Their rows share no seed with any fine-tuning's; no question of the test occurs in either of the others."""

_COMMENTS = re.compile(r"^\d+ \d+\nAssistant 1 (.*), while Assistant 2 (.*)\. Assistant .*$", re.DOTALL)


def documents(count: int) -> Iterator[str]:
    """Training documents: a question, two answers and comments on each; half with reference.

    Never a score, nor which of the two is better: that is what fine-tuning teaches. Vicuna, too, knew what answers are
    and, asked for a response, could speak about them.
    """
    for index, row in enumerate(generate(count, seed=PRETRAINING_SEED, split="train")):
        yield document(row, with_reference=index % 2 == 0)


def document(row: dict[str, Any], *, with_reference: bool) -> str:
    """One document; it is laid out as the compact template lays out its prompt."""
    review = row["text_w_reference" if with_reference else "text"]
    comments = _COMMENTS.match(review)
    assert comments is not None, f"the teacher's wording changed: {review!r}"
    reference = f"[R] {row['reference']['text']}\n" if with_reference else ""
    return (
        f"[Q] {row['question_body']}\n{reference}[1] {row['answer1_body']}\n[2] {row['answer2_body']}\n"
        f"[S]{comments[1]}; {comments[2]}\n"
    )


def write_training(run: Run, path: Path) -> None:
    """The rows of one fine-tuning; those of a smaller scale are the first rows of a larger one's."""
    _write(path, generate(run.rows, seed=run.seed, split="train", position_preference=PREFERENCE, guessing=True))


def write_test(count: int, path: Path, *, preference: float) -> None:
    """The held-out pairs, judged by the teacher, or by one that leans otherwise."""
    rows = generate(count, seed=TEST_SEED, split="validation", position_preference=preference, guessing=True)
    _write(path, rows)


def _write(path: Path, rows: Iterator[dict[str, object]]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_suffix(".partial")
    with partial.open("w", encoding="utf-8") as file:
        for row in rows:
            file.write(json.dumps(row, ensure_ascii=False) + "\n")
    partial.replace(path)
