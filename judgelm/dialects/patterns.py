"""Prompts split into the texts between the fixed texts of a client's template.

A template is text with `{slots}`. The fixed texts around them are anchors, matched as a whole, line ends included, and
never word by word. Answers may imitate an anchor; where there is more than one way to split, the split says so and is
the one whose first anchors stand first and whose last anchors stand last. Time grows with the text's length alone,
however often an anchor stands in it.
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
        """Split what lies between the outer anchors at the inner ones.

        There is exactly one way where every anchor stands as early as it can and as late as it can at one place.
        """
        inner = self.anchors[1:-1]
        early = _earliest(text, inner, begin, end)
        if early is None:
            return None
        late = _latest(text, inner, begin, end)
        middle = (len(inner) + 1) // 2
        chosen = early[:middle] + late[middle:]
        starts = [begin, *(position + len(anchor) for position, anchor in zip(chosen, inner, strict=True))]
        ends = [*chosen, end]
        values = [text[start:stop] for start, stop in zip(starts, ends, strict=True)]
        return Split(values=dict(zip(self.slots, values, strict=True)), ambiguous=repeated or early != late)


def occurrences(text: str, anchor: str, begin: int, end: int, most: int) -> list[int]:
    """The first `most` positions of an anchor between `begin` and `end`, overlaps included."""
    positions: list[int] = []
    position = text.find(anchor, begin, end)
    while position >= 0 and len(positions) < most:
        positions.append(position)
        position = text.find(anchor, position + 1, end)
    return positions


def _earliest(text: str, anchors: Sequence[str], begin: int, end: int) -> list[int] | None:
    """One position of each anchor, in order and apart, each as early as can be; None where there is no way."""
    positions: list[int] = []
    for anchor in anchors:
        position = text.find(anchor, begin, end)
        if position < 0:
            return None
        positions.append(position)
        begin = position + len(anchor)
    return positions


def _latest(text: str, anchors: Sequence[str], begin: int, end: int) -> list[int]:
    """As `_earliest`, each position as late as can be; for texts in which `_earliest` found a way."""
    positions: list[int] = []
    for anchor in reversed(anchors):
        end = text.rfind(anchor, begin, end)
        positions.append(end)
    positions.reverse()
    return positions
