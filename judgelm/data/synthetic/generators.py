"""The synthetic world's answerers: named models of differing skill and vice, and the texts they write."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import accumulate
from typing import Literal, get_args

from judgelm.data.synthetic.questions import WORDS, Question

Vice = Literal["correct", "wrong", "partial", "off_topic", "evasive", "rambling", "truncated", "empty"]
VICES: tuple[Vice, ...] = get_args(Vice)


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What an answerer wrote, and what only the world knows about it.

    Attributes:
        vice: how the answerer behaved; `correct` is the absence of a vice.
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
_CUMULATIVE: Mapping[str, tuple[int, ...]] = {who.model_id: tuple(accumulate(who.weights)) for who in GENERATORS}

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


def _correct(question: Question, rng: random.Random, skill: float) -> Answer:
    del skill
    return Answer(text=_phrased(question, _right_text(question, rng), rng), vice="correct", right=True)


def _wrong(question: Question, rng: random.Random, skill: float) -> Answer:
    del skill
    return Answer(text=_phrased(question, _wrong_text(question, rng), rng), vice="wrong", right=False)


def _partial(question: Question, rng: random.Random, skill: float) -> Answer:
    """One of several pieces is wrong; a single piece is hedged with a second one."""
    del skill
    parts = _drawn(question, rng)
    spot = rng.randrange(len(parts))
    other = _other(parts[spot], question, rng)
    if len(parts) > 1:
        text = question.render((*parts[:spot], other, *parts[spot + 1 :]))
    else:
        text = " or ".join((parts[0], other) if rng.random() < 0.5 else (other, parts[0]))
    return Answer(text=_phrased(question, text, rng), vice="partial", right=False)


def _off_topic(question: Question, rng: random.Random, skill: float) -> Answer:
    del question, skill
    text = rng.choice(_OFF_TOPIC).format(rng.choice(WORDS), rng.choice(WORDS))
    return Answer(text=text, vice="off_topic", right=False)


def _evasive(question: Question, rng: random.Random, skill: float) -> Answer:
    del question, skill
    return Answer(text=rng.choice(_EVASIONS), vice="evasive", right=False)


def _rambling(question: Question, rng: random.Random, skill: float) -> Answer:
    right = rng.random() < skill
    core = _right_text(question, rng) if right else _wrong_text(question, rng)
    return Answer(text=rng.choice(_RAMBLES).format(core), vice="rambling", right=right)


def _truncated(question: Question, rng: random.Random, skill: float) -> Answer:
    """The first half of a list of pieces, or a sentence that ends before its point."""
    del skill
    parts = _drawn(question, rng)
    first_half = parts[: len(parts) // 2]
    text = (
        question.opening + question.joiner.join(first_half) + question.joiner.rstrip()
        if first_half
        else rng.choice(_STUMPS)
    )
    return Answer(text=text, vice="truncated", right=False)


def _empty(question: Question, rng: random.Random, skill: float) -> Answer:
    del question, rng, skill
    return Answer(text="", vice="empty", right=False)


_WRITERS: Mapping[Vice, Callable[[Question, random.Random, float], Answer]] = {
    "correct": _correct,
    "wrong": _wrong,
    "partial": _partial,
    "off_topic": _off_topic,
    "evasive": _evasive,
    "rambling": _rambling,
    "truncated": _truncated,
    "empty": _empty,
}


def answer(question: Question, answerer: Generator, rng: random.Random) -> Answer:
    """Let one answerer answer one question: draw its vice, then its text."""
    (vice,) = rng.choices(VICES, cum_weights=_CUMULATIVE[answerer.model_id])
    return _WRITERS[vice](question, rng, answerer.skill)
