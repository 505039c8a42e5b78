"""Right and wrong solutions of GSM8K's training questions: sampled ones, and references with a wrong calculation.

    python -m benchmarks.reading_training.gsm8k --train train.jsonl --solutions solutions.jsonl --out objective.jsonl

`train.jsonl` is that of openai/grade-school-math (MIT); `solutions.jsonl` comes from `sampling.py`. Standard library
only: this runs on the GPU machine too.
"""

import argparse
import random
import re
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path

from benchmarks.reading_training.pairs import Pair, balanced_by_length, json_lines, placed, split_of, write_pairs

_NUMBER = re.compile(r"-?\d[\d,]*(?:\.\d+)?")
_FINAL = re.compile(r"(?:answer is|\\boxed\{|answer:|####)\D{0,20}?(-?\d[\d,]*(?:\.\d+)?)", re.IGNORECASE)
_STEP = re.compile(r"<<([^<>=]+)=([^<>]+)>>")
_EXPRESSION = re.compile(r"[\d+\-*/(). ]+")
_ENDINGS = (
    "The answer is {}.",
    "So the answer is {}.",
    "After checking each step of the calculation above once more, the final answer to the question is {}.",
    "Therefore, adding it all up carefully and going through every step again, we arrive at the final answer: {}.",
)
MOST_SAMPLED, MOST_REFERENCE = 2000, 1200


def final_number(solution: str) -> float | None:
    """The number that a solution ends in: behind its last "answer is" or box, else its last number."""
    stated = _FINAL.findall(solution) or _NUMBER.findall(solution)
    return as_number(stated[-1]) if stated else None


def as_number(text: str) -> float | None:
    """A number as GSM8K writes it; None for none."""
    try:
        return float(text.replace(",", "").rstrip("."))
    except ValueError:
        return None


def wrong_reference(answer: str, draw: random.Random) -> str | None:
    """The reference with one result changed and everything behind it computed from the wrong one; None if it has none.

    GSM8K marks its calculations, `<<48/2=24>>24`, so that the later ones can be computed again.
    """
    body, _, final = answer.partition("\n#### ")
    steps = list(_STEP.finditer(body))
    if not steps:
        return None
    wrong_at = draw.randrange(len(steps))
    changed: dict[str, str] = {}
    parts, position = [], 0
    for index, step in enumerate(steps):
        parts.append(_exchange(body[position : step.start()], changed))
        expression = _exchange(step[1], changed)
        result = _evaluate(expression)
        if index == wrong_at and result is not None:
            result += draw.choice((-1, 1)) * max(1, round(abs(result) * draw.choice((0.05, 0.1, 0.25))))
        if result is None or result < 0:
            return None
        if _written(result) != step[2].strip():
            changed[step[2].strip()] = _written(result)
        parts.append(f"<<{expression}={_written(result)}>>")
        position = step.end()
    parts.append(_exchange(body[position:], changed))
    wrong = changed.get(final.strip())
    if wrong is None or as_number(wrong) == as_number(final):
        return None
    return f"{''.join(parts)}\n#### {wrong}"


def _exchange(text: str, changed: dict[str, str]) -> str:
    return _NUMBER.sub(lambda number: changed.get(number[0], number[0]), text)


def _evaluate(expression: str) -> float | None:
    if not _EXPRESSION.fullmatch(expression) or "**" in expression or len(expression) > 80:
        return None
    try:
        return float(eval(expression, {"__builtins__": {}}))  # digits, operators and brackets alone
    except (SyntaxError, ZeroDivisionError, TypeError, ValueError):
        return None


def _written(number: float) -> str:
    return f"{number:.0f}" if number == round(number) else f"{number:.2f}".rstrip("0")


def plain(answer: str, ending: str) -> str:
    """A reference without its marks, with a sentence that states the answer."""
    body, _, final = answer.partition("\n#### ")
    return f"{_STEP.sub('', body)}\n{ending.format(final.strip())}"


def reference_pairs(rows: Sequence[dict[str, str]], draw: random.Random) -> list[Pair]:
    """The reference against itself with a wrong calculation; endings of four lengths, so that either is longer."""
    pairs = []
    for index, row in enumerate(rows):
        if wrong := wrong_reference(row["answer"], draw):
            endings = draw.sample(_ENDINGS, 2)
            answers, label = placed(plain(row["answer"], endings[0]), plain(wrong, endings[1]), draw)
            pairs.append(_pair(f"gsm8k-reference-{index}", row["question"], answers, label, "gsm8k reference"))
    return pairs


def sampled_pairs(rows: Sequence[dict[str, str]], solutions: dict[str, list[str]], draw: random.Random) -> list[Pair]:
    """A right solution against a wrong one of the same model, up to two pairs a question.

    Of the possible pairs those are taken that bring the right one being longer nearer to half of all.
    """
    pairs: list[Pair] = []
    longer_rights = 0
    for index, row in enumerate(rows):
        truth = as_number(row["answer"].rpartition("#### ")[2])
        right: list[str] = []
        wrong: list[str] = []
        for solution in dict.fromkeys(solutions.get(row["question"], ())):
            (right if final_number(solution) == truth else wrong).append(solution)
        possible = [(good, bad) for good in right for bad in wrong]
        draw.shuffle(possible)
        for number in range(min(2, len(right), len(wrong))):
            behind = longer_rights * 2 <= len(pairs)
            good, bad = next((pair for pair in possible if (len(pair[0]) > len(pair[1])) == behind), possible[0])
            possible = [pair for pair in possible if pair[0] != good and pair[1] != bad]
            longer_rights += len(good) > len(bad)
            answers, label = placed(good, bad, draw)
            pairs.append(_pair(f"gsm8k-{index}-{number}", row["question"], answers, label, "gsm8k sampled"))
    return pairs


def _pair(name: str, question: str, answers: tuple[str, str], label: float, kind: str) -> Pair:
    return Pair(
        id=name, question=question, answers=answers, label=label, family="objective", kind=kind,
        split=split_of(question),
    )  # fmt: skip


def main() -> None:
    """Write the pairs, half of them with the wrong solution as the longer one."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--train", type=Path, required=True)
    parser.add_argument("--solutions", type=Path, required=True)
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    rows = list(json_lines(options.train))
    solutions: dict[str, list[str]] = defaultdict(list)
    for entry in json_lines(options.solutions):
        if entry["finished"]:
            solutions[entry["question"]].append(entry["answer"])
    draw = random.Random(0)
    sampled = sampled_pairs(rows, solutions, draw)
    reference = reference_pairs([row for row in rows if row["question"] not in solutions], draw)
    pairs = balanced_by_length(sampled, draw, MOST_SAMPLED) + balanced_by_length(reference, draw, MOST_REFERENCE)
    write_pairs(options.out, pairs)
    print(f"{len(sampled)} sampled, {len(reference)} reference pairs; {len(pairs)} balanced by length", flush=True)


if __name__ == "__main__":
    main()
