"""Which of several ways to split a prompt is taken.

Answers may imitate a template's fixed texts. Where more than one split is possible, what a client shows twice (the
questions of two conversations) must be the same at both places; of what is left, the split is taken whose texts leave
the fewest torn blocks (an end without its start, a start without its end). It stays in doubt all the same.

A prompt may imitate its template a hundred thousand times and must not stop a server: what is tried and compared is
limited, so that time grows with the text's length alone.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from judgelm.dialects.patterns import Pattern, Split, occurrences

_MOST_PLACES = 5_000
"""Borders that are tried."""

_CHARACTERS_PER_PLACE = 1_000
"""Comparing so many characters of what is shown twice counts as one more border tried."""

_MOST_WAYS = 100
_MOST_MARKS = 100_000
"""Starts and ends of blocks that are counted over all ways."""

Blocks = Sequence[tuple[str, str]]
"""Start and end of each block of a template."""

Way = tuple[tuple[int, int], ...]
"""Where each slot's text begins and ends."""


def resolve_split(
    pattern: Pattern, text: str, *, same: Mapping[str, str] | None = None, blocks: Blocks = ()
) -> Split | None:
    """The likeliest split, or None where the text is not of this template.

    Args:
        pattern: of whole texts (not `anywhere`).
        text: the prompt.
        same: slots whose text must be that of an earlier slot, as `{later: earlier}`.
        blocks: starts and ends that a text which imitates the template holds in pairs.

    Returns:
        The split; `ambiguous` is whether another one would have been possible, too.
    """
    outermost = pattern.split(text)
    if outermost is None or not (outermost.ambiguous or same):
        return outermost
    marks = [_marks(text, start, end) for start, end in blocks]
    most_ways = min(_MOST_WAYS, _MOST_MARKS // (1 + sum(len(found) for found in marks)))
    search = _Search(pattern, text, same or {})
    ways = list(islice(search.ways(0, len(pattern.anchors[0])), most_ways)) if most_ways > 1 else []
    if not ways:
        return Split(values=outermost.values, ambiguous=True) if search.given_up or most_ways < 2 else None
    outer = _way(pattern, outermost)
    best = min(ways, key=lambda way: (_torn(way, marks), way != outer))
    values = {slot: text[start:end] for slot, (start, end) in zip(pattern.slots, best, strict=True)}
    return Split(values=values, ambiguous=len(ways) > 1 or search.given_up)


@dataclass
class _Search:
    """Goes through all ways to split a text, those with early anchors first."""

    pattern: Pattern
    text: str
    same: Mapping[str, str]
    given_up: bool = False
    tried: int = 0
    known: dict[str, tuple[int, int]] = field(default_factory=dict)
    known_places: dict[str, list[int]] = field(default_factory=dict)

    def ways(self, place: int, start: int) -> Iterator[Way]:
        """All ways to fill the slots from `place` on, whose first text starts at `start`."""
        if place == len(self.pattern.slots):
            yield tuple(self.known[slot] for slot in self.pattern.slots)
            return
        slot, anchor = self.pattern.slots[place], self.pattern.anchors[place + 1]
        for end in self._ends(place, start):
            self.tried += 1
            if self.tried > _MOST_PLACES:
                self.given_up = True
                return
            self.known[slot] = (start, end)
            yield from self.ways(place + 1, end + len(anchor))

    def _ends(self, place: int, start: int) -> Iterator[int]:
        """Where the text of the slot at `place` may end."""
        slot, anchor = self.pattern.slots[place], self.pattern.anchors[place + 1]
        last = place + 1 == len(self.pattern.slots)
        behind = len(self.text) - len(anchor)  # where the last text ends
        if slot in self.same:
            before, after = self.known[self.same[slot]]
            end = start + after - before
            if self.text.startswith(anchor, end) and (not last or end == behind):
                self.tried += (after - before) // _CHARACTERS_PER_PLACE
                if self.text[before:after] == self.text[start:end]:
                    yield end
        elif last:
            if start <= behind:
                yield behind
        else:
            found = self._places(anchor)
            yield from found[bisect_left(found, start) :]
            self.given_up = self.given_up or len(found) > _MOST_PLACES

    def _places(self, anchor: str) -> list[int]:
        """Where an anchor stands, one place more than are tried at the most."""
        if anchor not in self.known_places:
            self.known_places[anchor] = occurrences(self.text, anchor, 0, len(self.text), _MOST_PLACES + 1)
        return self.known_places[anchor]


def _way(pattern: Pattern, split: Split) -> Way:
    """Where the texts of a split stand."""
    found: list[tuple[int, int]] = []
    end = 0
    for slot, anchor in zip(pattern.slots, pattern.anchors, strict=False):
        start = end + len(anchor)
        end = start + len(split.values[slot])
        found.append((start, end))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Mark:
    """A block's start or end in the text."""

    begin: int
    end: int
    opens: bool


def _marks(text: str, start: str, end: str) -> list[_Mark]:
    """Every start and end of a kind of block, in the text's order; more than can be counted are not looked for."""
    found = re.finditer(f"{re.escape(start)}|{re.escape(end)}", text)
    return [_Mark(one.start(), one.end(), one[0] == start) for one in islice(found, _MOST_MARKS)]


def _torn(way: Way, marks: Sequence[Sequence[_Mark]]) -> int:
    """Starts without an end and ends without a start, within each text."""
    return sum(_torn_in(begin, end, kind) for begin, end in way for kind in marks)


def _torn_in(begin: int, end: int, marks: Sequence[_Mark]) -> int:
    open_blocks = torn = 0
    for mark in marks[bisect_left(marks, begin, key=lambda one: one.begin) :]:
        if mark.end > end:
            break
        if mark.opens:
            open_blocks += 1
        elif open_blocks:
            open_blocks -= 1
        else:
            torn += 1
    return torn + open_blocks
