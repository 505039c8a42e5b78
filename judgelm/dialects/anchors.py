"""Prompts taken apart: what stands between the fixed texts of a client's template.

A template is text with `{slots}`. The fixed texts around them are anchors, matched as a whole, line ends included, and
never word by word. Answers may imitate an anchor; so all ways to split are counted, and where there is more than one,
the split says so and is the one whose first anchors stand first and whose last anchors stand last.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

_SLOT = re.compile(r"\{([a-z_0-9]+)\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Split:
    """The slots' texts, and whether another split would have been possible."""

    values: Mapping[str, str]
    ambiguous: bool


@dataclass(frozen=True)
class Pattern:
    """A client's template.

    Args:
        template: with `{slot}` where the client puts a text in; two slots never touch. All other braces stand for
            themselves.
        anywhere: whether more text may stand before the first anchor and behind the last.
    """

    template: str
    anywhere: bool = False

    @cached_property
    def anchors(self) -> tuple[str, ...]:
        """Fixed texts, one more than there are slots."""
        return tuple(_SLOT.split(self.template)[::2])

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """Names, in their order."""
        return tuple(_SLOT.split(self.template)[1::2])

    def split(self, text: str) -> Split | None:
        """The slots' texts, or None where the text is not of this template.

        A slot's text is what the client put in, to the byte; it may be empty.
        """
        first, last = self.anchors[0], self.anchors[-1]
        begin, end = (text.find(first), text.rfind(last)) if self.anywhere else (0, len(text) - len(last))
        if (
            begin < 0
            or end < begin + len(first)
            or not text.startswith(first, begin)
            or not text.endswith(last, 0, end + len(last))
        ):
            return None
        repeated = self.anywhere and max(text.count(first), text.count(last)) > 1
        return self._between(text, begin + len(first), end, repeated)

    def _between(self, text: str, begin: int, end: int, repeated: bool) -> Split | None:
        """Split what lies between the outer anchors at the inner ones."""
        inner = self.anchors[1:-1]
        places = [_places(text, anchor, begin, end) for anchor in inner]
        if not _ways(places, [len(anchor) for anchor in inner], most=1):
            return None
        ambiguous = repeated or _ways(places, [len(anchor) for anchor in inner], most=2) > 1
        chosen = _outermost(places, [len(anchor) for anchor in inner])
        starts = [begin, *(place + len(anchor) for place, anchor in zip(chosen, inner, strict=True))]
        ends = [*chosen, end]
        values = [text[start:stop] for start, stop in zip(starts, ends, strict=True)]
        return Split(values=dict(zip(self.slots, values, strict=True)), ambiguous=ambiguous)


def _places(text: str, anchor: str, begin: int, end: int) -> list[int]:
    """Where an anchor stands, overlaps included."""
    found = []
    place = text.find(anchor, begin, end)
    while place >= 0:
        found.append(place)
        place = text.find(anchor, place + 1, end)
    return found


def _ways(places: Sequence[Sequence[int]], lengths: Sequence[int], *, most: int) -> int:
    """How many ways there are to take one place of each anchor, in order and apart; counted up to `most`."""
    ways, ends = [1], [-1]
    for found, length in zip(places, lengths, strict=True):
        counted: list[int] = []
        passed = total = 0
        for place in found:  # places ascend, so each end before them is passed once
            while passed < len(ends) and ends[passed] <= place:
                total = min(most, total + ways[passed])
                passed += 1
            counted.append(total)
        ways, ends = counted, [place + length for place in found]
    return min(most, sum(ways))


def _outermost(places: Sequence[Sequence[int]], lengths: Sequence[int]) -> list[int]:
    """One place of each anchor: those of the first half as early as can be, those of the second as late."""
    count = len(places)
    early: list[int] = []
    for found, length_before in zip(places, [0, *lengths], strict=False):
        least = early[-1] + length_before if early else -1
        early.append(next(place for place in found if place >= least))
    late: list[int] = []
    for found, length in zip(reversed(places), reversed(lengths), strict=True):
        most = late[-1] - length if late else None
        late.append(next(place for place in reversed(found) if most is None or place <= most))
    late.reverse()
    middle = (count + 1) // 2
    return early[:middle] + late[middle:]
