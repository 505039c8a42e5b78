"""Quotations, sentences and marked words of a judgment's text, by where they begin and end.

A quotation is text in straight, curly or single quotation marks, backticks, a code fence, or a block quote.
Words of an answer that are repeated without any such mark are not found.
"""

import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from operator import attrgetter

from judgelm.data.swap.patterns import SENTENCE_END

_QUOTED = re.compile(
    r"```.*?```|``[^`]+``|`[^`\n]+`"
    r"|“[^”]*”"
    r"|(?<!\w)\"(?=\S)[^\"]*(?<=\S)\"(?!\w)"
    r"|(?<!\w)‘(?=\S)(?:[^‘’]|(?<=\w)’(?=\w))*’(?!\w)"
    r"|(?<!\w)'(?=\S)(?:[^'\n]|(?<=\w)'(?=\w))*(?<=\S)'(?!\w)"
    r"|^>[^\n]*(?:\n>[^\n]*)*",
    re.DOTALL | re.MULTILINE,
)
_MARKS = re.compile(r"[\"“”'‘’`>*]")
_OPENING = re.compile(r"[\"“`‘>]|(?<!\w)'")
_SPACE = re.compile(r"\s+")
_GAP = re.compile(r"\[?(?:…|\.{3,})\]?")
_EDGE = " .,;:!?-"


@dataclass(frozen=True, slots=True, kw_only=True)
class Quote:
    """A quotation, marks included, from `start` to `end` of the text."""

    start: int
    end: int
    content: str

    def contains(self, start: int, end: int) -> bool:
        """True if the span is within the quotation."""
        return self.start < start and end < self.end


def find_quotes(text: str) -> list[Quote]:
    """All quotations, in the order of the text; a quotation within another one is part of it."""
    if not _OPENING.search(text):
        return []
    closed = text.rfind("”") + 1
    searched = text[:closed] + text[closed:].replace("“", "«")  # unclosed quotes would be searched to the end in vain
    return [Quote(start=m.start(), end=m.end(), content=text[m.start() : m.end()]) for m in _QUOTED.finditer(searched)]


def enclosing_quote(quotes: Sequence[Quote], start: int, end: int) -> Quote | None:
    """The quotation around a span, or None."""
    index = bisect_left(quotes, start, key=attrgetter("start")) - 1
    return quotes[index] if index >= 0 and quotes[index].contains(start, end) else None


@dataclass(slots=True)
class SourceTexts:
    """The texts that a judgment may quote; compared without marks, case and runs of white space."""

    texts: Sequence[str]
    _plain: list[str] | None = field(default=None, init=False)

    def contain(self, words: str) -> bool:
        """True if one text contains the words; `...` stands for omitted words."""
        if self._plain is None:  # only now: most judgments quote nothing that matters
            self._plain = [_plain_words(text) for text in self.texts]
        parts = [part for raw in _GAP.split(words) if (part := _plain_words(raw).strip(_EDGE))]
        return bool(parts) and any(_in_order(parts, text) for text in self._plain)


def _plain_words(text: str) -> str:
    return _SPACE.sub(" ", _MARKS.sub("", text)).lower().strip()


def _in_order(parts: Sequence[str], text: str) -> bool:
    at = 0
    for part in parts:
        at = text.find(part, at)
        if at < 0:
            return False
        at += len(part)
    return True


class Sentences:
    """The sentences of one text, by positions of words (not of the blanks or marks between sentences).

    Args:
        text: of the whole judgment.
    """

    def __init__(self, text: str) -> None:
        ends = list(SENTENCE_END.finditer(text))
        self._length = len(text)
        self._ends = [match.start() for match in ends]
        self._starts = [0, *(match.end() for match in ends)]
        self._led = [0]
        for before, opening in pairwise(self._starts):
            self._led.append(self._led[-1] if text[before:opening].rstrip().endswith(":") else opening)

    def start(self, position: int, *, back: int = 0) -> int:
        """Start of the sentence of a position, or of the sentence `back` sentences earlier; at least 0."""
        return self._starts[max(0, bisect_right(self._starts, position) - 1 - back)]

    def end(self, position: int) -> int:
        """End of the sentence of a position."""
        index = bisect_left(self._ends, position)
        return self._ends[index] if index < len(self._ends) else self._length

    def start_with_lead_in(self, position: int) -> int:
        """Start of the sentence of a position, together with preceding sentences that end in a colon."""
        return self._led[bisect_right(self._starts, position) - 1]


class WordPositions:
    """Positions of a pattern's words in one text.

    Args:
        pattern: of single words.
        text: of the whole judgment.
    """

    def __init__(self, pattern: re.Pattern[str], text: str) -> None:
        self._starts = [match.start() for match in pattern.finditer(text)]

    def any_in(self, start: int, end: int) -> bool:
        """True if a word begins in `[start, end)`."""
        index = bisect_left(self._starts, start)
        return index < len(self._starts) and self._starts[index] < end
