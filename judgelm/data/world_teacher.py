"""The synthetic world's teacher: integer scores from 1 to 10 and a reason, with and without a reference.

The teacher knows what the world knows, with one exception: a `reference_fact` can be judged only by its reference,
so without one it scores such answers by plausibility and manner alone. A small noise keeps the ceiling below 1. In some
pairs it leans: it gives the answer that it reads first a point more where the two are close, as real teachers do.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from judgelm.data.world_answerers import Answer
from judgelm.data.world_questions import Question

NOISE = 0.06
"""Probability that one score is off by a point; half of the slips go up and half down, as far as the scale allows."""

Finding = Literal[
    "right", "plausible", "wrong", "partial", "hedged", "off_topic", "evasive", "long_right", "long_plausible",
    "long_wrong", "cut", "stump", "empty",
]  # fmt: skip

SCORES: Mapping[Finding, int] = {
    "right": 9,
    "plausible": 7,
    "long_right": 7,
    "partial": 5,
    "hedged": 5,
    "long_plausible": 5,
    "cut": 4,
    "evasive": 3,
    "wrong": 2,
    "long_wrong": 2,
    "off_topic": 2,
    "stump": 2,
    "empty": 1,
}
"""The score of each finding before noise. An honest "I do not know" beats a wrong answer."""

LONG_WHERE_FORM_COUNTS = 4
"""The score of a right but rambling answer to a question about form, which the rambling breaks."""

_WORDING: Mapping[Finding, tuple[str, ...]] = {
    "right": ("is right and short", "answers correctly", "gives exactly what was asked"),
    "plausible": ("is plausible but cannot be checked", "gives a possible answer"),
    "long_right": ("is right but too long", "answers correctly but rambles"),
    "partial": ("is only partly right", "has a mistake in one part"),
    "hedged": ("does not decide between two answers", "gives two answers at once"),
    "long_plausible": ("is plausible but too long", "gives a possible answer but rambles"),
    "cut": ("stops too early", "is cut off in the middle"),
    "evasive": ("does not answer", "avoids the question"),
    "wrong": ("is wrong", "gives a wrong answer"),
    "long_wrong": ("is wrong and too long", "rambles and is wrong"),
    "off_topic": ("talks about something else", "is off topic"),
    "stump": ("ends before the answer", "breaks off and says nothing"),
    "empty": ("is empty", "says nothing at all"),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """The teacher's verdict on a pair: two integer scores in [1, 10] and a reason that names both assistants."""

    scores: tuple[int, int]
    reason: str

    @property
    def text(self) -> str:
        """The review as a judge's target: the score line, then the reason."""
        return f"{self.scores[0]} {self.scores[1]}\n{self.reason}"


def find(question: Question, answer: Answer, *, with_reference: bool) -> Finding:
    """What the teacher sees in an answer, given whether it was shown the reference."""
    checkable = with_reference or question.kind != "reference_fact"
    several = len(question.parts) > 1
    match answer.vice:
        case "correct" | "wrong" if not checkable:
            return "plausible"
        case "correct":
            return "right"
        case "rambling" if not checkable:
            return "long_plausible"
        case "rambling":
            return "long_right" if answer.right else "long_wrong"
        case "partial":
            return "partial" if several else "hedged"
        case "truncated":
            return "cut" if several else "stump"
        case vice:
            return vice


def noiseless_score(question: Question, finding: Finding) -> int:
    """The score before noise, in [1, 10]."""
    if finding == "long_right" and question.kind == "format":
        return LONG_WHERE_FORM_COUNTS
    return SCORES[finding]


def _verdict(first: int, second: int) -> str:
    if first == second:
        return "Assistant 1 and Assistant 2 are equally good."
    manner = "slightly better" if abs(first - second) == 1 else "better" if abs(first - second) < 5 else "much better"
    return f"Assistant {1 if first > second else 2} is {manner}."


def _noisy(score: int, rng: random.Random) -> int:
    draw = rng.random()
    if draw < NOISE / 2:
        return max(score - 1, 1)
    return min(score + 1, 10) if draw < NOISE else score


def review(
    question: Question,
    answers: tuple[Answer, Answer],
    rng: random.Random,
    *,
    with_reference: bool,
    leaning: bool = False,
) -> Review:
    """Score a pair and say why; the noise and the wording come from `rng`, all else from the world.

    Args:
        question: what was asked.
        answers: in the order in which the teacher reads them.
        rng: drawn from equally often whatever the other arguments.
        with_reference: whether the teacher is shown the right answer.
        leaning: whether the first of two answers within a point of each other gets a point more.
    """
    first, second = (find(question, answer, with_reference=with_reference) for answer in answers)
    scores = (_noisy(noiseless_score(question, first), rng), _noisy(noiseless_score(question, second), rng))
    if leaning and abs(scores[0] - scores[1]) <= 1:
        scores = (min(scores[0] + 1, 10), scores[1])
    wording = rng.choice(_WORDING[first]), rng.choice(_WORDING[second])
    reason = f"Assistant 1 {wording[0]}, while Assistant 2 {wording[1]}. {_verdict(*scores)}"
    return Review(scores=scores, reason=reason)
