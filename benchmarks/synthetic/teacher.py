"""A programmatic teacher of synthetic pairs: integer scores from 1 to 10 and a reason, with and without a reference.

The teacher knows all facts except `reference_fact`: these can be judged only by the reference, so without one it scores
such answers by plausibility and style alone, or guesses. A small noise keeps the best possible agreement below 1. In
some pairs the teacher prefers a position: the first answer gets a point more where the two scores are close.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal
from zlib import crc32

from benchmarks.synthetic.generators import SimulatedAnswer
from benchmarks.synthetic.questions import Question

NOISE = 0.06
"""Probability that one score is off by a point; half of the slips go up and half down, as far as the scale allows."""

Finding = Literal[
    "right", "plausible", "wrong", "partial", "hedged", "off_topic", "evasive", "long_right", "long_plausible",
    "long_wrong", "cut", "stump", "empty",
]  # fmt: skip

_FINDINGS: Mapping[Finding, tuple[int, tuple[str, ...]]] = {
    "right": (9, ("is right and short", "answers correctly", "gives exactly what was asked")),
    "plausible": (7, ("is plausible but cannot be checked", "gives a possible answer")),
    "long_right": (7, ("is right but too long", "answers correctly but rambles")),
    "partial": (5, ("is only partly right", "has a mistake in one part")),
    "hedged": (5, ("does not decide between two answers", "gives two answers at once")),
    "long_plausible": (5, ("is plausible but too long", "gives a possible answer but rambles")),
    "cut": (4, ("stops too early", "is cut off in the middle")),
    "evasive": (3, ("does not answer", "avoids the question")),
    "wrong": (2, ("is wrong", "gives a wrong answer")),
    "long_wrong": (2, ("is wrong and too long", "rambles and is wrong")),
    "off_topic": (2, ("talks about something else", "is off topic")),
    "stump": (2, ("ends before the answer", "breaks off and says nothing")),
    "empty": (1, ("is empty", "says nothing at all")),
}
"""Each finding's score before noise and its wordings. An honest "I do not know" beats a wrong answer."""

LONG_WHERE_FORM_COUNTS = 4
"""The score of a right but rambling answer to a question about form, which the rambling breaks."""

_GUESSES: tuple[Finding, Finding] = ("wrong", "right")
_LONG_GUESSES: tuple[Finding, Finding] = ("long_wrong", "long_right")


@dataclass(frozen=True, slots=True, kw_only=True)
class TeacherReview:
    """The teacher's verdict on a pair: two integer scores in [1, 10] and a reason that names both assistants."""

    scores: tuple[int, int]
    reason: str

    @property
    def text(self) -> str:
        """The review as a judge's target: the score line, then the reason."""
        return f"{self.scores[0]} {self.scores[1]}\n{self.reason}"


def find(question: Question, answer: SimulatedAnswer, *, with_reference: bool, guessing: bool = False) -> Finding:
    """The teacher's finding about an answer, with or without the reference.

    Args:
        question: the question.
        answer: one answer to it.
        with_reference: whether the teacher is shown the right answer.
        guessing: guess answers that cannot be checked, by a hash of the text, instead of calling them plausible.
    """
    checkable = with_reference or question.kind != "reference_fact"
    several = len(question.parts) > 1
    match answer.vice:
        case "correct" | "wrong" if not checkable:
            return _GUESSES[crc32(f"{question.text} {answer.text}".encode()) % 2] if guessing else "plausible"
        case "correct":
            return "right"
        case "rambling" if not checkable:
            guess = crc32(f"{question.text} {answer.text}".encode()) % 2
            return _LONG_GUESSES[guess] if guessing else "long_plausible"
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
    return _FINDINGS[finding][0]


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
    answers: tuple[SimulatedAnswer, SimulatedAnswer],
    rng: random.Random,
    *,
    with_reference: bool,
    leaning: bool = False,
    guessing: bool = False,
) -> TeacherReview:
    """Score a pair and give a reason; only the noise and the wording are drawn from `rng`.

    Args:
        question: the question.
        answers: in the order in which the teacher reads them.
        rng: the number of draws does not depend on `leaning`.
        with_reference: whether the teacher is shown the right answer.
        leaning: whether the first of two answers within a point of each other gets a point more.
        guessing: as `find` takes it.
    """
    first, second = (find(question, answer, with_reference=with_reference, guessing=guessing) for answer in answers)
    scores = (_noisy(noiseless_score(question, first), rng), _noisy(noiseless_score(question, second), rng))
    if leaning and abs(scores[0] - scores[1]) <= 1:
        scores = (min(scores[0] + 1, 10), scores[1])
    wording = rng.choice(_FINDINGS[first][1]), rng.choice(_FINDINGS[second][1])
    reason = f"Assistant 1 {wording[0]}, while Assistant 2 {wording[1]}. {_verdict(*scores)}"
    return TeacherReview(scores=scores, reason=reason)
