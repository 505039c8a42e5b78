"""Which of several ways to split a prompt is taken.

Answers may imitate a template's fixed texts. Where more than one split is possible, what a client shows twice (the
questions of two conversations) must be the same at both places; of what is left, the split is taken whose texts leave
the fewest torn blocks (an end without its start, a start without its end). It stays in doubt all the same.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice

from judgelm.dialects.anchors import Pattern, Split

_MOST_PLACES = 5_000
"""Places that are tried at the most: a prompt that imitates its template a thousand times must not stop a server."""

_MOST_WAYS = 100

Blocks = Sequence[tuple[str, str]]
"""Start and end of each block of a template."""


def resolved(
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
    search = _Search(pattern, text, same or {})
    ways = list(islice(search.ways(0, len(pattern.anchors[0])), _MOST_WAYS))
    if not ways:
        return Split(values=outermost.values, ambiguous=True) if search.given_up else None
    best = min(ways, key=lambda values: (_torn(values.values(), blocks), values != outermost.values))
    return Split(values=best, ambiguous=len(ways) > 1 or search.given_up)


@dataclass
class _Search:
    """Goes through all ways to split a text, those with early anchors first."""

    pattern: Pattern
    text: str
    same: Mapping[str, str]
    given_up: bool = False
    tried: int = 0
    known: dict[str, str] = field(default_factory=dict)

    def ways(self, place: int, start: int) -> Iterator[dict[str, str]]:
        """All ways to fill the slots from `place` on, whose first text starts at `start`."""
        if place == len(self.pattern.slots):
            yield dict(self.known)
            return
        slot, anchor = self.pattern.slots[place], self.pattern.anchors[place + 1]
        for end in self._ends(place, start):
            self.tried += 1
            if self.tried > _MOST_PLACES:
                self.given_up = True
                return
            self.known[slot] = self.text[start:end]
            yield from self.ways(place + 1, end + len(anchor))

    def _ends(self, place: int, start: int) -> Iterator[int]:
        """Where the text of the slot at `place` may end."""
        slot, anchor = self.pattern.slots[place], self.pattern.anchors[place + 1]
        last = place + 1 == len(self.pattern.slots)
        behind = len(self.text) - len(anchor)  # where the last text ends
        if slot in self.same:
            value = self.known[self.same[slot]]
            end = start + len(value)
            if self.text.startswith(value + anchor, start) and (not last or end == behind):
                yield end
        elif last:
            if start <= behind:
                yield behind
        else:
            end = self.text.find(anchor, start)
            while end >= 0:
                yield end
                end = self.text.find(anchor, end + 1)


def _torn(texts: Iterable[str], blocks: Blocks) -> int:
    """Starts without an end and ends without a start, within each text."""
    return sum(_torn_in(text, start, end) for text in texts for start, end in blocks)


def _torn_in(text: str, start: str, end: str) -> int:
    open_blocks = torn = 0
    for found in re.finditer(f"{re.escape(start)}|{re.escape(end)}", text):
        if found[0] == start:
            open_blocks += 1
        elif open_blocks:
            open_blocks -= 1
        else:
            torn += 1
    return torn + open_blocks
