"""Simulated models of differing skill and vice, and the answers they write."""

import random
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, get_args

from benchmarks.synthetic.questions import WORDS, Question

Vice = Literal["correct", "wrong", "partial", "off_topic", "evasive", "rambling", "truncated", "empty"]
VICES: tuple[Vice, ...] = get_args(Vice)


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulatedAnswer:
    """An answer of a simulated model, with its hidden properties.

    Attributes:
        vice: the behaviour; `correct` is the absence of a vice.
        right: whether the right answer can be read from the text (a rambling answer may be right or wrong).
    """

    text: str
    vice: Vice
    right: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Generator:
    """A simulated model.

    Attributes:
        weights: how often it shows each vice, in percent and in the order of `VICES`.
        skill: share of its ramblings that hold the right answer.
    """

    model_id: str
    weights: tuple[int, ...]
    skill: float


# In percent:                        correct, wrong, partial, off-topic, evasive, rambling, truncated, empty
GENERATORS: tuple[Generator, ...] = (
    Generator(model_id="sim-expert", weights=(74, 6, 6, 1, 2, 7, 3, 1), skill=0.9),
    Generator(model_id="sim-solid", weights=(55, 13, 12, 2, 4, 8, 4, 2), skill=0.8),
    Generator(model_id="sim-talkative", weights=(25, 8, 8, 3, 2, 50, 3, 1), skill=0.75),
    Generator(model_id="sim-cautious", weights=(38, 5, 8, 2, 35, 6, 3, 3), skill=0.8),
    Generator(model_id="sim-hasty", weights=(32, 22, 12, 2, 2, 3, 24, 3), skill=0.6),
    Generator(model_id="sim-careless", weights=(25, 32, 25, 4, 3, 6, 3, 2), skill=0.5),
    Generator(model_id="sim-dreamer", weights=(22, 14, 10, 30, 4, 14, 4, 2), skill=0.4),
    Generator(model_id="sim-novice", weights=(12, 40, 16, 8, 8, 8, 4, 4), skill=0.3),
)
_CUMULATIVE: Mapping[str, tuple[int, ...]] = {
    generator.model_id: tuple(accumulate(generator.weights)) for generator in GENERATORS
}

_PLAIN = ("{}", "{}", "{}.", "It is {}.", "The answer is {}.")
_RAMBLES = (
    "Well, that is a good question. I think it is {} and I hope this helps.",
    "Let me think about this. In the end it is {} I believe.",
    "Thank you for asking. My answer would be {} as far as I know.",
    "There is much to say about this, but {} is what I would say.",
)
_EVASIONS = (
    "I am not sure.",
    "That is hard to say.",
    "It depends on many things.",
    "I do not know, sorry.",
    "I would rather not answer this.",
)
_OFF_TOPIC = (
    "I like the {0} near my {1}.",
    "My favourite word is {0}.",
    "Did you see the {0} and the {1}?",
    "The {0} is under the {1}.",
)
_STUMPS = ("The answer is", "It is", "I think it", "The")


def _drawn(question: Question, rng: random.Random) -> tuple[str, ...]:
    """The pieces of a right answer: any of the acceptable ones where the question leaves it open."""
    return tuple(rng.sample(question.choices, len(question.parts))) if question.free else question.parts


def _phrased(question: Question, text: str, rng: random.Random) -> str:
    return rng.choice(_PLAIN).format(text) if question.sentence else text


def _other(piece: str, question: Question, rng: random.Random) -> str:
    """A piece from the pool that is not `piece`, and not acceptable either where several are."""
    while True:
        other = rng.choice(question.pool)
        if other != piece and other not in question.choices:
            return other


def _right_text(question: Question, rng: random.Random) -> str:
    return question.render(_drawn(question, rng))


def _wrong_text(question: Question, rng: random.Random) -> str:
    """An answer with nothing right in it, or one that misses the asked form altogether."""
    parts = _drawn(question, rng)
    if question.bad_joiner is not None and rng.random() < 0.5:
        return question.bad_joiner.join(parts[:-1] if len(parts) > 2 else (*parts, parts[0]))
    if set(question.pool) == set(parts):  # sorting: a wrong order is the only way to be wrong
        return question.render(parts[::-1] if rng.random() < 0.5 else (*parts[2:], *parts[:2]))
    return question.render(tuple(_other(part, question, rng) for part in parts))


def _partial_text(question: Question, rng: random.Random) -> str:
    """An answer with one of several pieces wrong; a single piece is hedged with a second one."""
    parts = _drawn(question, rng)
    spot = rng.randrange(len(parts))
    other = _other(parts[spot], question, rng)
    if len(parts) > 1:
        return question.render((*parts[:spot], other, *parts[spot + 1 :]))
    return " or ".join((parts[0], other) if rng.random() < 0.5 else (other, parts[0]))


def _truncated_text(question: Question, rng: random.Random) -> str:
    """The first half of a list of pieces, or a sentence that ends before its point."""
    parts = _drawn(question, rng)
    first_half = parts[: len(parts) // 2]
    if not first_half:
        return rng.choice(_STUMPS)
    return question.opening + question.joiner.join(first_half) + question.joiner.rstrip()


def answer(question: Question, generator: Generator, rng: random.Random) -> SimulatedAnswer:
    """Let one generator answer one question: draw its vice, then its text."""
    (vice,) = rng.choices(VICES, cum_weights=_CUMULATIVE[generator.model_id])
    right = vice == "correct"
    match vice:
        case "correct":
            text = _phrased(question, _right_text(question, rng), rng)
        case "wrong":
            text = _phrased(question, _wrong_text(question, rng), rng)
        case "partial":
            text = _phrased(question, _partial_text(question, rng), rng)
        case "off_topic":
            text = rng.choice(_OFF_TOPIC).format(rng.choice(WORDS), rng.choice(WORDS))
        case "evasive":
            text = rng.choice(_EVASIONS)
        case "rambling":
            right = rng.random() < generator.skill
            core = _right_text(question, rng) if right else _wrong_text(question, rng)
            text = rng.choice(_RAMBLES).format(core)
        case "truncated":
            text = _truncated_text(question, rng)
        case "empty":
            text = ""
    return SimulatedAnswer(text=text, vice=vice, right=right)
