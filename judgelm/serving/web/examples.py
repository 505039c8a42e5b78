"""Examples of the page: the everyday pairs, with the label of each."""

import json
from dataclasses import dataclass
from functools import cache

from judgelm.package import EVERYDAY_PAIRS
from judgelm.records import Winner
from judgelm.reports.wording import WINNER_NAMES
from judgelm.serving.web.markup import folded, sentences


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """A pair to judge at once, with its label and the label's reason."""

    question: str
    answers: tuple[str, str]
    winner: Winner
    reason: str


@cache
def examples() -> tuple[Example, ...]:
    """All everyday pairs, in the order of their file."""
    rows = [json.loads(line) for line in EVERYDAY_PAIRS.read_text(encoding="utf-8").splitlines()]
    return tuple(
        Example(
            question=row["question"],
            answers=(row["answer_1"], row["answer_2"]),
            winner=row["winner"],
            reason=row["reason"],
        )
        for row in rows
    )


def example_note(index: int) -> str:
    """The source of an example, and its label folded away, so that nobody reads it before the verdict."""
    example = examples()[index]
    source = f"Example {index + 1} of {len(examples())}, from judgelm's everyday pairs. Press Judge, or type your own."
    label = f"{WINNER_NAMES[example.winner]}. {example.reason}"
    return f'<div class="jl-small">{sentences([source])}{folded(label[0].upper() + label[1:], title="Its label")}</div>'
