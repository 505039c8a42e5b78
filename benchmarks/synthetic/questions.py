"""Synthetic questions: six kinds, several phrasings each, and what a right answer looks like.

A `Question` describes its right answer by parts, so that one set of simulated generators can answer any
kind rightly, partly rightly or wrongly without knowing the kind. Vices and scores are not defined here.
"""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal, get_args
from zlib import crc32

Kind = Literal["fact", "reference_fact", "copy", "arithmetic", "format", "order"]
KINDS: tuple[Kind, ...] = get_args(Kind)

LISTS: Mapping[str, tuple[str, ...]] = {
    "animals": ("otter", "horse", "eagle", "whale", "tiger", "sheep", "camel", "goose", "mouse", "zebra"),
    "fruits": ("apple", "grape", "lemon", "mango", "peach", "cherry", "melon", "plum", "pear", "fig"),
    "colours": ("red", "green", "blue", "black", "white", "brown", "pink", "grey", "purple", "orange"),
    "tools": ("hammer", "saw", "drill", "file", "wrench", "chisel", "shovel", "rake", "axe", "ladder"),
}
WORDS: tuple[str, ...] = tuple(word for words in LISTS.values() for word in words)


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """One question and the parts of its answers.

    Attributes:
        text: text of the question.
        parts: the pieces of the right answer; `opening + joiner.join(parts) + closing` is the right answer's text.
        pool: source of wrong pieces; may contain right ones.
        free: any distinct pieces from `choices` are right, `parts` being only an example.
        choices: the acceptable pieces of a free question.
        sentence: whether "The answer is X." is as good as "X" (not where the question requires a form).
        bad_joiner: joiner of an answer in the wrong form; None where the question requires no form.
    """

    kind: Kind
    text: str
    parts: tuple[str, ...]
    pool: tuple[str, ...]
    opening: str = ""
    joiner: str = " "
    closing: str = ""
    free: bool = False
    choices: tuple[str, ...] = ()
    sentence: bool = False
    bad_joiner: str | None = None

    def render(self, parts: tuple[str, ...]) -> str:
        """The text of an answer with these pieces, in the required form."""
        return self.opening + self.joiner.join(parts) + self.closing


def _invented_words(count: int, seed: int) -> tuple[str, ...]:
    """Distinct invented names of two syllables, capitalised."""
    rng = random.Random(seed)
    names: dict[str, None] = {}
    while len(names) < count:
        syllables = (rng.choice("bdfgklmnprstvz") + rng.choice("aeiou") for _ in range(2))
        names["".join(syllables).capitalize() + rng.choice("lmnrsx")] = None
    return tuple(names)


# One draw for all names, so that no two roles share a name.
_NAMES = _invented_words(60, seed=1)
_ENTITIES, _SHIPS, _HARBOURS = _NAMES[:24], _NAMES[24:48], _NAMES[48:]
_ATTRIBUTES: Mapping[str, tuple[str, ...]] = {
    "stone": ("amber", "jade", "opal", "ruby", "pearl", "onyx", "topaz", "garnet", "quartz", "beryl"),
    "metal": ("iron", "copper", "gold", "tin", "zinc", "lead", "nickel", "cobalt", "bronze", "steel"),
    "tree": ("oak", "pine", "birch", "maple", "willow", "cedar", "elm", "ash", "larch", "beech"),
}


def _fact_table() -> dict[tuple[str, str], str]:
    """The one fixed table of (entity, attribute) -> value that every split and every seed shares."""
    rng = random.Random(2)
    return {(entity, name): rng.choice(values) for name, values in _ATTRIBUTES.items() for entity in _ENTITIES}


FACTS: Mapping[tuple[str, str], str] = _fact_table()
_FACT_KEYS = tuple(FACTS)

_FACT_PHRASINGS = (
    "Which {1} belongs to {0}?",
    "What is the {1} of {0}?",
    "Name the {1} of {0}.",
    "{0} has a {1}. Which one?",
    "Tell me which {1} {0} has.",
    "The {1} of {0} is what?",
)
_SHIP_PHRASINGS = (
    "In which harbour is the ship {0}?",
    "Where is the ship {0} today?",
    "Name the harbour of the ship {0}.",
    "The ship {0} is in which harbour?",
)
_COPY_PHRASINGS: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("repeat", ("Repeat these words: {}", "Copy this text: {}", "Say again: {}", "Write the same words: {}")),
    ("reverse", ("Reverse these words: {}", "Write in reverse order: {}", "Say these words from last to first: {}")),
    ("first", ("Give the first two words of: {}", "Which two words come first in: {}", "The first two words of: {}")),
    ("last", ("Give the last two words of: {}", "Which two words come last in: {}", "The last two words of: {}")),
    ("upper", ("Write in upper case: {}", "Make all letters large: {}", "Change to capital letters: {}")),
    ("dashes", ("Join with dashes: {}", "Put a dash between the words: {}", "Connect these words with dashes: {}")),
)
_UPPER_WORDS = tuple(word.upper() for word in WORDS)
_PLUS_PHRASINGS = ("What is {} plus {}?", "Add {} and {}.", "Compute {} + {}.", "How much is {} and {}?")
_MINUS_PHRASINGS = ("What is {} minus {}?", "From {} take away {}.", "Compute {} - {}.", "How much is {} less {}?")
_NUMBER_WORDS = {2: "two", 3: "three", 4: "four"}
_COMMA_PHRASINGS = (
    "List {} {}, separated by commas.",
    "Name {} {} with commas between them.",
    "Give me {} {}. Put commas between them.",
)
_JSON_PHRASINGS = ("List {} {} as a JSON list.", "Name {} {} in JSON form.", "Give me {} {}. Write a JSON list.")
_EXACT_PHRASINGS = (
    "Write exactly {} {}, only spaces between.",
    "Use exactly {} words, all {}, no commas.",
    "Give exactly {} {} and nothing else.",
)
_YES_PHRASINGS = (
    "Yes or no only: is {} more than {}?",
    "Is {} larger than {}? Say only yes or no.",
    "Answer only yes or no: {} is above {}?",
)
_SORT_PHRASINGS = ("Sort from small to large: {}", "Put in rising order: {}", "Order these, smallest first: {}")
_COUNT_PHRASINGS = ("How many words are here: {}", "Count the words: {}", "Give the number of words in: {}")


def _fact(rng: random.Random) -> Question:
    key = rng.choice(_FACT_KEYS)
    text = rng.choice(_FACT_PHRASINGS).format(*key)
    return Question(kind="fact", text=text, parts=(FACTS[key],), pool=_ATTRIBUTES[key[1]], sentence=True)


def _reference_fact(rng: random.Random) -> Question:
    ship = f"{rng.choice(_SHIPS)} {rng.choice(_SHIPS)} {rng.randrange(10, 100)}"
    # A hash, not a draw: two rows about one ship must not contradict each other.
    harbour = _HARBOURS[crc32(ship.encode()) % len(_HARBOURS)]
    text = rng.choice(_SHIP_PHRASINGS).format(ship)
    return Question(kind="reference_fact", text=text, parts=(harbour,), pool=_HARBOURS, sentence=True)


def _copy(rng: random.Random) -> Question:
    task, phrasings = rng.choice(_COPY_PHRASINGS)
    words = tuple(rng.sample(WORDS, rng.randrange(3, 5)))
    parts, pool, joiner = words, WORDS, " "
    if task == "reverse":
        parts = words[::-1]
    elif task == "first":
        parts, pool = words[:2], words
    elif task == "last":
        parts, pool = words[-2:], words
    elif task == "upper":
        parts, pool = tuple(word.upper() for word in words), _UPPER_WORDS
    elif task == "dashes":
        joiner = "-"
    text = rng.choice(phrasings).format(" ".join(words))
    return Question(kind="copy", text=text, parts=parts, pool=pool, joiner=joiner)


def _near(value: int) -> tuple[str, ...]:
    """Results of a slip; all differ from `value` and none is negative."""
    return tuple(str(value + slip) for slip in (-10, -2, -1, 1, 2, 10) if value + slip >= 0)


def _arithmetic(rng: random.Random) -> Question:
    first, second = rng.randrange(2, 50), rng.randrange(2, 50)
    if rng.random() < 0.5:
        text, value = rng.choice(_PLUS_PHRASINGS).format(first, second), first + second
    else:
        first, second = max(first, second), min(first, second)
        text, value = rng.choice(_MINUS_PHRASINGS).format(first, second), first - second
    return Question(kind="arithmetic", text=text, parts=(str(value),), pool=_near(value), sentence=True)


def _format(rng: random.Random) -> Question:
    if rng.random() < 0.25:
        first, second = rng.sample(range(10, 100), 2)
        answer = "yes" if first > second else "no"
        text = rng.choice(_YES_PHRASINGS).format(first, second)
        return Question(kind="format", text=text, parts=(answer,), pool=("yes", "no"))
    subject = rng.choice(tuple(LISTS))
    count = rng.randrange(2, 5)
    phrasings, opening, joiner, closing, bad_joiner = rng.choice(
        (
            (_COMMA_PHRASINGS, "", ", ", "", " "),
            (_JSON_PHRASINGS, '["', '", "', '"]', ", "),
            (_EXACT_PHRASINGS, "", " ", "", ", "),
        )
    )
    return Question(
        kind="format",
        text=rng.choice(phrasings).format(_NUMBER_WORDS[count], subject),
        parts=tuple(rng.sample(LISTS[subject], count)),
        pool=WORDS,
        opening=opening,
        joiner=joiner,
        closing=closing,
        free=True,
        choices=LISTS[subject],
        bad_joiner=bad_joiner,
    )


def _order(rng: random.Random) -> Question:
    if rng.random() < 0.5:
        digits = rng.sample("0123456789", rng.randrange(3, 5))
        text = rng.choice(_SORT_PHRASINGS).format(" ".join(digits))
        return Question(kind="order", text=text, parts=tuple(sorted(digits)), pool=tuple(digits))
    count = rng.randrange(2, 7)
    text = rng.choice(_COUNT_PHRASINGS).format(" ".join(rng.sample(WORDS, count)))
    pool = tuple(str(value) for value in range(1, 9) if value != count)
    return Question(kind="order", text=text, parts=(str(count),), pool=pool, sentence=True)


_MAKERS: Mapping[Kind, Callable[[random.Random], Question]] = {
    "fact": _fact,
    "reference_fact": _reference_fact,
    "copy": _copy,
    "arithmetic": _arithmetic,
    "format": _format,
    "order": _order,
}


def draw_question(rng: random.Random, *, held_out: bool) -> Question:
    """Draw a question of a random kind on one side of the split.

    The side is a hash of the question's text, so no text is on both sides, whatever the seed.
    """
    maker = _MAKERS[rng.choice(KINDS)]
    while True:
        question = maker(rng)
        if is_held_out(question.text) == held_out:
            return question


def is_held_out(text: str) -> bool:
    """True for questions of the validation side, about one text in ten."""
    return crc32(text.encode()) % 10 == 0
