"""Prompts split into the texts between the fixed texts of a client's template.

A template is text with `{slots}`. The fixed texts around them are anchors, matched as a whole, line ends included,
and never word by word. Answers may imitate an anchor; where there is more than one way to split, the split says so
and is the one whose first anchors stand first and whose last anchors stand last. Time grows with the text's length
alone, however often an anchor stands in it.

`resolve_split` chooses among the ways: texts that a client shows twice (the questions of two conversations) must be
the same at both places; of what is left, the split is taken whose texts leave the fewest torn blocks (an end without
its start, a start without its end). It stays in doubt. What is tried and compared is limited, so that a prompt which
imitates its template a hundred thousand times does not stop a server.
"""

import re
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import islice
from pathlib import Path

from judgelm.yaml_files import read_yaml

_SLOT = re.compile(r"(?<!\{)\{([a-z_0-9]+)\}(?!\})")
_LITERAL = re.compile(r"\{(\{[a-z_0-9]+\})\}")


@dataclass(frozen=True, slots=True, kw_only=True)
class TemplateSplit:
    """The slots' texts, and whether another split would have been possible."""

    values: Mapping[str, str]
    ambiguous: bool


@dataclass(frozen=True)
class Pattern:
    """A client's template.

    Args:
        template: with `{slot}` where the client puts a text in; two slots never touch. `{{word}}` is `{word}` itself,
            and all other braces stand for themselves.
        anywhere: whether more text may stand before the first anchor and behind the last.
    """

    template: str
    anywhere: bool = False

    @cached_property
    def anchors(self) -> tuple[str, ...]:
        """Fixed texts, one more than there are slots."""
        return tuple(_LITERAL.sub(r"\1", part) for part in _SLOT.split(self.template)[::2])

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """Names, in their order."""
        return tuple(_SLOT.split(self.template)[1::2])

    def split(self, text: str) -> TemplateSplit | None:
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

    def _between(self, text: str, begin: int, end: int, repeated: bool) -> TemplateSplit | None:
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
        return TemplateSplit(values=dict(zip(self.slots, values, strict=True)), ambiguous=repeated or early != late)


def literal(text: str) -> str:
    """A fixed text as a template has it, with no word in it that would be a slot."""
    return re.sub(r"\{[a-z_0-9]+\}", r"{\g<0>}", text)


def _templates() -> dict[str, Pattern]:
    file = read_yaml(Path(__file__).with_name("templates.yaml"))
    return {
        name: Pattern(text, anywhere=section == "anywhere")
        for section, texts in file.items()
        for name, text in texts.items()
    }


TEMPLATES: dict[str, Pattern] = _templates()
"""Prompts of all clients that consist of fixed texts around slots, by name."""


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


_MOST_POSITIONS = 5_000
"""Borders that are tried."""

_CHARACTERS_PER_POSITION = 1_000
"""Comparing so many characters of what is shown twice counts as one more border tried."""

_MOST_WAYS = 100
_MOST_MARKS = 100_000
"""Starts and ends of blocks that are counted over all ways."""

Blocks = Sequence[tuple[str, str]]
"""Start and end of each block of a template."""

Way = tuple[tuple[int, int], ...]
"""Begin and end of the text in each slot."""


def resolve_split(
    pattern: Pattern, text: str, *, same: Mapping[str, str] | None = None, blocks: Blocks = ()
) -> TemplateSplit | None:
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
    most_ways = min(_MOST_WAYS, _MOST_MARKS // (1 + sum(len(kind) for kind in marks)))
    search = _Search(pattern, text, same or {})
    ways = list(islice(search.ways(0, len(pattern.anchors[0])), most_ways)) if most_ways > 1 else []
    if not ways:
        return TemplateSplit(values=outermost.values, ambiguous=True) if search.given_up or most_ways < 2 else None
    outer = _way(pattern, outermost)
    best = min(ways, key=lambda way: (_torn(way, marks), way != outer))
    values = {slot: text[start:end] for slot, (start, end) in zip(pattern.slots, best, strict=True)}
    return TemplateSplit(values=values, ambiguous=len(ways) > 1 or search.given_up)


@dataclass
class _Search:
    """Goes through all ways to split a text, those with early anchors first."""

    pattern: Pattern
    text: str
    same: Mapping[str, str]
    given_up: bool = False
    tried: int = 0
    known: dict[str, tuple[int, int]] = field(default_factory=dict)
    positions: dict[str, list[int]] = field(default_factory=dict)

    def ways(self, index: int, start: int) -> Iterator[Way]:
        """All ways to fill the slots from `index` on, whose first text starts at `start`."""
        if index == len(self.pattern.slots):
            yield tuple(self.known[slot] for slot in self.pattern.slots)
            return
        slot, anchor = self.pattern.slots[index], self.pattern.anchors[index + 1]
        for end in self._ends(index, start):
            self.tried += 1
            if self.tried > _MOST_POSITIONS:
                self.given_up = True
                return
            self.known[slot] = (start, end)
            yield from self.ways(index + 1, end + len(anchor))

    def _ends(self, index: int, start: int) -> Iterator[int]:
        """Possible ends of the text in the slot at `index`."""
        slot, anchor = self.pattern.slots[index], self.pattern.anchors[index + 1]
        last = index + 1 == len(self.pattern.slots)
        behind = len(self.text) - len(anchor)  # where the last text ends
        if slot in self.same:
            before, after = self.known[self.same[slot]]
            end = start + after - before
            if self.text.startswith(anchor, end) and (not last or end == behind):
                self.tried += (after - before) // _CHARACTERS_PER_POSITION
                if self.text[before:after] == self.text[start:end]:
                    yield end
        elif last:
            if start <= behind:
                yield behind
        else:
            positions = self._positions(anchor)
            yield from positions[bisect_left(positions, start) :]
            self.given_up = self.given_up or len(positions) > _MOST_POSITIONS

    def _positions(self, anchor: str) -> list[int]:
        """The positions of an anchor: at most one more than are tried."""
        if anchor not in self.positions:
            self.positions[anchor] = occurrences(self.text, anchor, 0, len(self.text), _MOST_POSITIONS + 1)
        return self.positions[anchor]


def _way(pattern: Pattern, split: TemplateSplit) -> Way:
    """Begin and end of each text of a split."""
    borders: list[tuple[int, int]] = []
    end = 0
    for slot, anchor in zip(pattern.slots, pattern.anchors, strict=False):
        start = end + len(anchor)
        end = start + len(split.values[slot])
        borders.append((start, end))
    return tuple(borders)


@dataclass(frozen=True, slots=True)
class _Mark:
    """A block's start or end in the text."""

    begin: int
    end: int
    opens: bool


def _marks(text: str, start: str, end: str) -> list[_Mark]:
    """Every start and end of a kind of block, in the text's order, up to the number that is counted."""
    matches = re.finditer(f"{re.escape(start)}|{re.escape(end)}", text)
    return [_Mark(match.start(), match.end(), match[0] == start) for match in islice(matches, _MOST_MARKS)]


def _torn(way: Way, marks: Sequence[Sequence[_Mark]]) -> int:
    """Starts without an end and ends without a start, within each text."""
    return sum(_torn_in(begin, end, kind) for begin, end in way for kind in marks)


def _torn_in(begin: int, end: int, marks: Sequence[_Mark]) -> int:
    open_blocks = torn = 0
    for mark in marks[bisect_left(marks, begin, key=lambda mark: mark.begin) :]:
        if mark.end > end:
            break
        if mark.opens:
            open_blocks += 1
        elif open_blocks:
            open_blocks -= 1
        else:
            torn += 1
    return torn + open_blocks


def latest_split(pattern: Pattern, text: str) -> TemplateSplit | None:
    """As `Pattern.split`, but of several ways the one with every border as late as can be.

    For templates whose first inner anchor opens an answer, which questions that quote such a prompt hold.

    Args:
        pattern: of whole texts (not `anywhere`).
        text: the prompt.
    """
    split = pattern.split(text)
    if split is None or not split.ambiguous:
        return split
    first, *inner, last = pattern.anchors
    end = len(text) - len(last)
    values = []
    for anchor in reversed(inner):
        begin = text.rfind(anchor, len(first), end)
        values.append(text[begin + len(anchor) : end])
        end = begin
    values.append(text[len(first) : end])
    return TemplateSplit(values=dict(zip(pattern.slots, reversed(values), strict=True)), ambiguous=True)
