"""Splits prompts at the fixed texts (anchors) in a client's template.

Answers may contain text that looks like an anchor. In linear time, `Pattern.split` places the first half of the anchors
as early as possible and the second half as late as possible. `resolve_split` runs a limited search for a split in which
repeated texts are identical and as few block marks as possible are unmatched.
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
    """The text in each slot, and whether other splits are possible."""

    values: Mapping[str, str]
    ambiguous: bool


@dataclass(frozen=True)
class Pattern:
    """A client's template with `{slot}` placeholders; `{{word}}` stands for a literal `{word}`.

    If `anywhere` is True, there may be text before the first anchor and after the last anchor.
    """

    template: str
    anywhere: bool = False

    @cached_property
    def anchors(self) -> tuple[str, ...]:
        """The fixed texts before, between, and after the slots."""
        return tuple(_LITERAL.sub(r"\1", part) for part in _SLOT.split(self.template)[::2])

    @cached_property
    def slots(self) -> tuple[str, ...]:
        """The names of the slots, in order."""
        return tuple(_SLOT.split(self.template)[1::2])

    def split(self, text: str) -> TemplateSplit | None:
        """Return the exact text in each slot, or None if the text does not match."""
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
        """The split is unambiguous if the earliest and the latest positions are the same."""
        inner = self.anchors[1:-1]
        early = _earliest(text, inner, begin, end)
        if early is None:
            return None
        late = _latest(text, inner, begin, end)
        middle = (len(inner) + 1) // 2
        chosen = early[:middle] + late[middle:]
        return TemplateSplit(values=self.values(text, begin, chosen, end), ambiguous=repeated or early != late)

    def values(self, text: str, begin: int, inner: Sequence[int], end: int) -> dict[str, str]:
        """Return the text in each slot, given the positions of the inner anchors."""
        starts = [begin, *(position + len(anchor) for position, anchor in zip(inner, self.anchors[1:-1], strict=True))]
        return {slot: text[start:stop] for slot, start, stop in zip(self.slots, starts, [*inner, end], strict=True)}


def literal(text: str) -> str:
    """Escape text so that it can be used as fixed text in a template."""
    return re.sub(r"\{[a-z_0-9]+\}", r"{\g<0>}", text)


TEMPLATES: dict[str, Pattern] = {
    name: Pattern(text, anywhere=section == "anywhere")
    for section, texts in read_yaml(Path(__file__).with_name("templates.yaml")).items()
    for name, text in texts.items()
}


def _earliest(text: str, anchors: Sequence[str], begin: int, end: int) -> list[int] | None:
    positions: list[int] = []
    for anchor in anchors:
        position = text.find(anchor, begin, end)
        if position < 0:
            return None
        positions.append(position)
        begin = position + len(anchor)
    return positions


def _latest(text: str, anchors: Sequence[str], begin: int, end: int) -> list[int]:
    positions: list[int] = []
    for anchor in reversed(anchors):
        end = text.rfind(anchor, begin, end)
        positions.append(end)
    positions.reverse()
    return positions


_MAX_POSITIONS = 5_000

_CHARACTERS_PER_POSITION = 1_000
"""Comparing this many characters of repeated texts counts as one position."""

_MAX_WAYS = 100
_MAX_MARKS = 100_000
"""Maximum number of block marks to count, over all splits together."""

Blocks = Sequence[tuple[str, str]]

Way = tuple[tuple[int, int], ...]
"""A possible split: the start and end positions of the text in each slot."""


def resolve_split(
    pattern: Pattern, text: str, *, same: Mapping[str, str] | None = None, blocks: Blocks = ()
) -> TemplateSplit | None:
    """Return the most likely split, or None if the text does not match.

    `same` maps slots to earlier slots that must have the same text.
    """
    outermost = pattern.split(text)
    if outermost is None or not (outermost.ambiguous or same):
        return outermost
    marks = [_marks(text, start, end) for start, end in blocks]
    max_ways = min(_MAX_WAYS, _MAX_MARKS // (1 + sum(len(kind) for kind in marks)))
    search = _Search(pattern, text, same or {})
    ways = list(islice(search.ways(0, len(pattern.anchors[0])), max_ways)) if max_ways > 1 else []
    if not ways:
        return TemplateSplit(values=outermost.values, ambiguous=True) if search.given_up or max_ways < 2 else None
    outermost_lengths = [len(outermost.values[slot]) for slot in pattern.slots]
    best = min(ways, key=lambda way: (_unmatched(way, marks), [end - start for start, end in way] != outermost_lengths))
    values = {slot: text[start:end] for slot, (start, end) in zip(pattern.slots, best, strict=True)}
    return TemplateSplit(values=values, ambiguous=len(ways) > 1 or search.given_up)


@dataclass
class _Search:
    pattern: Pattern
    text: str
    same: Mapping[str, str]
    given_up: bool = False
    tried: int = 0
    known: dict[str, tuple[int, int]] = field(default_factory=dict)
    positions: dict[str, list[int]] = field(default_factory=dict)

    def ways(self, index: int, start: int) -> Iterator[Way]:
        if index == len(self.pattern.slots):
            yield tuple(self.known[slot] for slot in self.pattern.slots)
            return
        slot, anchor = self.pattern.slots[index], self.pattern.anchors[index + 1]
        for end in self._ends(index, start):
            self.tried += 1
            if self.tried > _MAX_POSITIONS:
                self.given_up = True
                return
            self.known[slot] = (start, end)
            yield from self.ways(index + 1, end + len(anchor))

    def _ends(self, index: int, start: int) -> Iterator[int]:
        slot, anchor = self.pattern.slots[index], self.pattern.anchors[index + 1]
        last = index + 1 == len(self.pattern.slots)
        final = len(self.text) - len(anchor)  # where the last text ends
        if slot in self.same:
            before, after = self.known[self.same[slot]]
            end = start + after - before
            if self.text.startswith(anchor, end) and (not last or end == final):
                self.tried += (after - before) // _CHARACTERS_PER_POSITION
                if self.text[before:after] == self.text[start:end]:
                    yield end
        elif last:
            if start <= final:
                yield final
        else:
            positions = self._positions(anchor)
            yield from positions[bisect_left(positions, start) :]
            self.given_up = self.given_up or len(positions) > _MAX_POSITIONS

    def _positions(self, anchor: str) -> list[int]:
        if anchor not in self.positions:
            positions = self.positions[anchor] = []
            position = self.text.find(anchor)
            while position >= 0 and len(positions) <= _MAX_POSITIONS:
                positions.append(position)
                position = self.text.find(anchor, position + 1)
        return self.positions[anchor]


Mark = re.Match[str]  # group 1 is set for start marks


def _marks(text: str, start: str, end: str) -> list[Mark]:
    return list(islice(re.finditer(f"({re.escape(start)})|{re.escape(end)}", text), _MAX_MARKS))


def _unmatched(way: Way, marks: Sequence[Sequence[Mark]]) -> int:
    return sum(_unmatched_in(begin, end, kind) for begin, end in way for kind in marks)


def _unmatched_in(begin: int, end: int, marks: Sequence[Mark]) -> int:
    open_blocks = unmatched = 0
    for mark in marks[bisect_left(marks, begin, key=re.Match.start) :]:
        if mark.end() > end:
            break
        if mark[1] is not None:
            open_blocks += 1
        elif open_blocks:
            open_blocks -= 1
        else:
            unmatched += 1
    return unmatched + open_blocks


def latest_split(pattern: Pattern, text: str) -> TemplateSplit | None:
    """Place all anchors as late as possible, because a question may quote a prompt."""
    split = pattern.split(text)
    if split is None or not split.ambiguous:
        return split
    first, *inner, last = pattern.anchors
    begin, end = len(first), len(text) - len(last)
    return TemplateSplit(values=pattern.values(text, begin, _latest(text, inner, begin, end), end), ambiguous=True)
