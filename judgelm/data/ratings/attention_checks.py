"""Attention checks: completions spoiled on purpose, so that a rater who reads them must score them low.

Pure functions on samples; the spoiled samples are rated like any other, with `check` set in the file of ratings. They
work on judges as well as on people.

Source: Play Favorites, appendix B (attention checks). The paper does not say how words, sentences or characters are
drawn; what is done here is ours: words are what blanks separate, a sentence ends in `.`, `!`, `?` or a line end.
"""

import math
import random
import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

from judgelm.records import Sample

AttentionCheck = Literal["random_pairing", "reversed_words", "dropped_characters"]

MOST_DROPPED = 1 / 3

_SENTENCE = re.compile(r"([^.!?\n]+)([.!?\n]*)")


def attention_checks(samples: Sequence[Sample], check: AttentionCheck, *, seed: int = 0) -> list[Sample]:
    """The samples with their answers spoiled; `metadata["check"]` names how, and ids get the check's name behind.

    Args:
        samples: at least two for `random_pairing`.
        check: which of the three.
        seed: the same seed spoils in the same way.

    Raises:
        ValueError: `random_pairing` of samples that cannot be paired with another's answers.
    """
    if check == "random_pairing":
        answers = _of_others(samples, seed)
    elif check == "reversed_words":
        answers = [tuple(map(reversed_words, sample.answers)) for sample in samples]
    else:
        answers = [
            tuple(
                dropped_characters(text, seed=f"{seed}|{sample.id}|{index}")
                for index, text in enumerate(sample.answers)
            )
            for sample in samples
        ]
    return [
        replace(sample, id=f"{sample.id}#{check}", answers=new, metadata={**sample.metadata, "check": check})
        for sample, new in zip(samples, answers, strict=True)
    ]


def reversed_words(text: str) -> str:
    """The words of each sentence in reverse, sentences and their end marks in place."""
    return _SENTENCE.sub(lambda match: _reversed(match[1]) + match[2], text)


def dropped_characters(text: str, *, share: float = MOST_DROPPED, seed: int | str = 0) -> str:
    """The text without a random `share` of its characters, rounded down.

    Raises:
        ValueError: `share` is not in [0, 1/3]; the paper drops up to a third.
    """
    if not 0 <= share <= MOST_DROPPED:
        raise ValueError(f"dropped_characters: share: expected 0 to 1/3, got {share}")
    count = math.floor(len(text) * share + 1e-9)
    gone = set(random.Random(str(seed)).sample(range(len(text)), count))
    return "".join(letter for index, letter in enumerate(text) if index not in gone)


def _of_others(samples: Sequence[Sample], seed: int) -> list[tuple[str, ...]]:
    """Each sample's answers replaced by those of another: samples in random order, each takes the next one's."""
    if len(samples) < 2:
        raise ValueError("random_pairing: needs at least two samples, or there is no other answer to take")
    order = list(range(len(samples)))
    random.Random(seed).shuffle(order)
    new_answers: list[tuple[str, ...]] = [()] * len(samples)
    for here, following in zip(order, [*order[1:], order[0]], strict=True):
        if len(samples[here].answers) != len(samples[following].answers):
            raise ValueError(
                f"random_pairing: sample {samples[here].id} has {len(samples[here].answers)} answers, "
                f"{samples[following].id} has {len(samples[following].answers)}; give samples with as many"
            )
        if samples[here].question == samples[following].question:
            raise ValueError(f"random_pairing: question of {samples[here].id} occurs twice; give each question once")
        new_answers[here] = samples[following].answers
    return new_answers


def _reversed(sentence: str) -> str:
    words = sentence.split()
    lead = sentence[: len(sentence) - len(sentence.lstrip())]
    return lead + " ".join(reversed(words))
