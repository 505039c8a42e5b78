"""Mentions of the judged answers in a judgment: each word is a name, plain, or unclear.

Every rule depends on the surrounding words and not on which answer is named, so the result is the same in each order of
the answers: a name stays a name after a swap, and an unclear word stays unclear.
"""

import re
from bisect import bisect_left
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

from judgelm.data.swap.patterns import (
    ANSWER_NOUNS,
    ASSISTANT_NOUNS,
    ASSISTANTS_BEFORE,
    COMPARED_BEFORE,
    COUNTED,
    END_AFTER,
    JOIN,
    LABEL_AFTER,
    LABEL_BEFORE,
    LIST_GOES_ON,
    NOTHING_AFTER,
    NOUN_AFTER,
    NOUN_PLACED,
    OBJECT_AFTER,
    OPENS_BEFORE,
    OWNED_AFTER,
    OWNED_BEFORE,
    PAIRED_AFTER,
    PAIRED_BEFORE,
    PLACED_NOUN,
    PLURAL,
    POSITIONS,
    PREFERRED_BEFORE,
    QUANTITY,
    SHORT_BEFORE,
    SHOWN_BEFORE,
    SUBJECT_AFTER,
    SUBJECT_BEFORE,
    THE,
    UNSURE_NOUNS,
    VALUED,
    VERBAL,
    VERBAL_BEFORE,
    VERDICT_BEFORE,
    NounBefore,
    noun_before,
    rename_mention,
)
from judgelm.data.swap.spans import Sentences, SourceTexts, WordPositions

AmbiguityCode = Literal[
    "bare_name",
    "former_latter",
    "no_such_answer",
    "position_word",
    "quoted_name",
    "said_in_answer",
    "unnamed_ordinal",
    "unnamed_scores",
    "unsure_noun",
    "value_or_name",
]
Reading = Literal["name", "plain"] | AmbiguityCode
_REACH = 64
_LONGEST_JOIN = 12
_THE_ALONE = re.compile(r"\s*the\s*", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """A word that names the answer at `position` (from 0)."""

    start: int
    end: int
    word: str
    form: str
    position: int


@dataclass(kw_only=True)
class MentionReader:
    """Reads the words of one text from its start; `names` are those found so far.

    `count` is the number of answers, `sources` are the texts that may be quoted.
    """

    text: str
    count: int
    sources: SourceTexts
    names: list[Mention] = field(default_factory=list)
    _starts: dict[tuple[int, str], list[int]] = field(default_factory=dict)

    @cached_property
    def sentences(self) -> Sentences:
        """Those of the text."""
        return Sentences(self.text)

    @cached_property
    def _plurals(self) -> WordPositions:
        return WordPositions(PLURAL, self.text)

    def add(self, match: re.Match[str]) -> None:
        """Add the next word as a name."""
        name = Mention(
            start=match.start(), end=match.end(), word=match[0], form=match.lastgroup or "", position=position_of(match)
        )
        self.names.append(name)
        self._starts.setdefault((name.position, name.form), []).append(name.start)

    def mentioned(self, start: int, end: int) -> set[tuple[int, str]]:
        """(position, form) of the names so far that begin in `[start, end)`."""
        return {key for key, starts in self._starts.items() if bisect_left(starts, start) < bisect_left(starts, end)}

    def read(self, match: re.Match[str]) -> Reading:
        """The reading of a word that `find_mentions` found."""
        match match.lastgroup:
            case "number" | "letter" | "bracketed" | "numeral":
                return self._numbered(match)
            case "ordinal" | "nth":
                return self._ordinal(match)
            case "side":
                return self._side(match)
            case "placement":
                return self._placement(match)
            case _:  # "assistant b": as a name, or the article of "gave the assistant a chance"
                end = match.end()
                names = SUBJECT_AFTER.match(self.text, end) or END_AFTER.match(self.text, end)
                return "bare_name" if names else "plain"

    def _before(self, pattern: re.Pattern[str], match: re.Match[str]) -> re.Match[str] | None:
        return pattern.search(self.text, max(0, match.start() - _REACH), match.start())

    def _in_range(self, match: re.Match[str]) -> bool:
        return position_of(match) in range(self.count)

    def _numbered(self, match: re.Match[str]) -> Reading:
        noun = noun_before(self.text, match.start())
        if noun is not None:
            return self._after_noun(match, noun)
        if not self._in_range(match):
            return "plain"
        listed = self._in_list(match)
        if listed != "plain" or match.lastgroup == "numeral":
            return listed
        if match.lastgroup == "letter" and self._before(VERDICT_BEFORE, match):
            return "name"
        subject = SUBJECT_AFTER.match(self.text, match.end()) and (
            self._before(SUBJECT_BEFORE, match) or self._before(SHORT_BEFORE, match)
        )
        preferred = NOTHING_AFTER.match(self.text, match.end()) and (
            self._before(PREFERRED_BEFORE, match)
            or (self._before(COMPARED_BEFORE, match) and self._named_in_sentence(match))
        )
        label = LABEL_AFTER.match(self.text, match.end()) and self._before(LABEL_BEFORE, match)
        paired = PAIRED_AFTER.match(self.text, match.end()) and self._before(PAIRED_BEFORE, match)
        return "bare_name" if subject or preferred or label or paired else "plain"

    def _after_noun(self, match: re.Match[str], before: NounBefore) -> Reading:
        """A number, letter or numeral with a noun before it."""
        noun, lead, gap, lower = before
        if lead == "reference" or (noun not in ASSISTANT_NOUNS and QUANTITY.match(self.text, match.end())):
            return "plain"
        if not self._in_range(match):
            return "no_such_answer" if noun in ASSISTANT_NOUNS and match.lastgroup == "number" else "plain"
        if match.lastgroup == "numeral" and match[0].islower():
            return self._low_numeral(match, noun)
        if any(mark in gap for mark in "\"“'‘`"):
            return "quoted_name"
        if lower and "(" in gap and not LIST_GOES_ON.match(self.text, match.end()):
            return "bare_name"  # "the assistant (1) is clear and (2) is brief"
        if noun in ASSISTANT_NOUNS:
            return "name"
        if lower and noun in ("answer", "output", "solution") and match.lastgroup == "number":
            counted = COUNTED.match(self.text, match.end())
            if lead in VERBAL and counted:
                return "plain"
            if lead in (*VERBAL, *VALUED) or noun != "answer" or counted:
                return "value_or_name"
        return "name" if noun in ANSWER_NOUNS else self._likely(match, noun)

    def _low_numeral(self, match: re.Match[str], noun: str) -> Reading:
        named = SUBJECT_AFTER.match(self.text, match.end()) or END_AFTER.match(self.text, match.end())
        if noun in ASSISTANT_NOUNS:
            return "name" if named or JOIN.match(self.text, match.end()) else "bare_name"
        return "value_or_name" if named and noun in ANSWER_NOUNS else "plain"

    def _likely(self, match: re.Match[str], noun: str) -> Reading:
        form = match.lastgroup or ""
        marks = [rename_mention(match[0], form, position) for position in range(self.count)]
        quoted = any(self.sources.contain(f"{noun} {mark}") for mark in marks)
        if noun in UNSURE_NOUNS:
            return "plain" if quoted else "unsure_noun"
        return "said_in_answer" if quoted else "name"

    def _in_list(self, match: re.Match[str]) -> Reading:
        """The reading of a word in a list with the name before it: "Assistants 1, 2 and 3"."""
        last, end = self.names[-1] if self.names else None, match.end()
        if last is None or last.form != match.lastgroup or match.start() - last.end > _LONGEST_JOIN:
            return "plain"
        join = JOIN.fullmatch(self.text, last.end, match.start())
        if join is None:
            return "plain"
        if COUNTED.match(self.text, end):
            return "plain" if join["comma"] else "bare_name"
        if join["comma"] is None or LIST_GOES_ON.match(self.text, end):
            return "name"
        names = SUBJECT_AFTER.match(self.text, end) or END_AFTER.match(self.text, end)
        return "bare_name" if names else "plain"

    def _ordinal(self, match: re.Match[str]) -> Reading:
        noun = NOUN_AFTER.match(self.text, match.end())
        if noun is None:
            if self._before(SHOWN_BEFORE, match):
                return "position_word"
            bare = self._before(THE, match) and NOTHING_AFTER.match(self.text, match.end())
            return "unnamed_ordinal" if bare else "plain"
        the = self._before(THE, match)
        if noun["several"]:
            return "unnamed_ordinal" if the and not noun["one"] else "plain"
        if noun["one"]:
            return self._first_one(match) if the else "plain"
        if self._before(ASSISTANTS_BEFORE, match) and noun["answer"]:
            return self._ranged(match)
        if self._before(OWNED_BEFORE, match):
            return "plain"
        if noun["unsure"]:
            return "unnamed_ordinal" if the else "plain"
        if noun["answer"] and OWNED_AFTER.match(self.text, noun.end()):
            return "unnamed_ordinal"
        if the or noun["answerer"]:
            return self._ranged(match)
        ends = SUBJECT_AFTER.match(self.text, noun.end()) or END_AFTER.match(self.text, noun.end())
        if ends and self._before(OPENS_BEFORE, match):  # "First answer: ...", not "First answer the question"
            return self._ranged(match)
        verb = self._before(VERBAL_BEFORE, match) and OBJECT_AFTER.match(self.text, noun.end())
        return "plain" if verb else "unnamed_ordinal"

    def _ranged(self, match: re.Match[str]) -> Reading:
        return "name" if self._in_range(match) else "no_such_answer"

    def _first_one(self, match: re.Match[str]) -> Reading:
        """The word in "the first one": of the answers as shown, unless a name or another thing stands before it."""
        if not self._in_range(match):
            return "plain"
        start = self.sentences.start(match.start(), back=1)
        near = self.mentioned(start, match.start())
        if any(form not in ("ordinal", "nth") for _, form in near):
            return "unnamed_ordinal"
        opens = _THE_ALONE.fullmatch(self.text, 0, match.start())
        clear = near or opens or self._plurals.any_in(start, match.start())
        return "name" if clear else "unnamed_ordinal"

    def _placement(self, match: re.Match[str]) -> Reading:
        """The words in "the answer above" and "the last response", but not in "the right answer"."""
        word = match[0].lower()
        if word != "right" and PLACED_NOUN.match(self.text, match.end()):
            return "position_word"
        noun = self._before(NOUN_PLACED, match)
        behind = noun and (noun["side"] or word in ("above", "below")) and NOTHING_AFTER.match(self.text, match.end())
        return "position_word" if behind else "plain"

    def _side(self, match: re.Match[str]) -> Reading:
        """The words "former" and "latter" refer to the two names before them, which are swapped in place: they stay.

        "Assistant 1 and Assistant 2 ...; the latter" becomes "Assistant 2 and Assistant 1 ...; the latter", which is
        still the answer that was meant. With no two names before it, "the latter answer" is the one shown last.
        """
        near = self.mentioned(self.sentences.start(match.start(), back=1), match.start())
        if len({position for position, form in near if form != "side"}) > 1:
            return "plain"
        noun = NOUN_AFTER.match(self.text, match.end())
        if noun is not None and (noun["answerer"] or noun["answer"]):
            return "name" if self.count == len(("former", "latter")) and self._before(THE, match) else "former_latter"
        return "former_latter" if noun or NOTHING_AFTER.match(self.text, match.end()) else "plain"

    def _named_in_sentence(self, match: re.Match[str]) -> bool:
        """True if the sentence names an answer by the same kind of word earlier: "Assistant 1 ... 2"."""
        before = self.mentioned(self.sentences.start(match.start()), match.start())
        return any(form == match.lastgroup for _, form in before)


def position_of(match: re.Match[str]) -> int:
    """The position, from 0, that a word of `find_mentions` would name; -1 where it can name none."""
    if match.lastgroup != "number":
        return POSITIONS.get(match[0], -1)
    return int(match[0]) - 1 if len(match[0]) == 1 else -1
