"""Replies whose verdict stands between two marks, such as `[[A]]`, `<answer>8</answer>` or `**Result:** 4`.

Most released judges reply so. Their own parsers take a mark wherever it stands, the first or the last of several; here
all of them must agree unless one is stated as final or the card says that the last one counts, and what cannot be read
is `Unparsed`.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Literal, NamedTuple

from pydantic import ConfigDict

from judgelm.errors import ConfigError
from judgelm.parsing.verdicts import Statement, Verdict, settled, unmarked_verdicts
from judgelm.records import Scores, Unparsed

PairLabel = Literal["1", "2", "tie"]
"""The better answer's place in the order shown."""

_LONGEST = 64
"""Characters between the marks; more is text that happens to follow a mark."""
_AROUND = " \t*_`\"'.:[]()：。"
"""What a judge may put around its verdict and that says nothing."""


class _Marked(NamedTuple):
    """A text between marks, where it begins in the reply, and where its mark does."""

    written: str
    position: int
    start: int


@dataclass(frozen=True, kw_only=True)
class MarkedReply:
    r"""The format of a reply: labels of a pair, the grade of an answer, or the scores of two.

    Attributes:
        before: the text before a verdict; empty where the reply is nothing else.
        after: the text behind it; empty is the end of its line.
        patterns: regular expressions instead of marks, whose first group is the verdict; the first of them that
            matches anywhere counts. A match without the group is no verdict.
        labels: what stands there -> the answer that is better, or a tie; upper and lower case are alike.
        scale: lowest and highest number, instead of labels.
        values: how many numbers: 1 grades an answer, 2 score a pair.
        separator: what stands between two numbers of the same mark; empty where each has its own marks.
        deducts: whether the number is what an answer loses: its score is 0 less the number.
        takes: `agreeing` expects that all verdicts of a reply agree, `last` takes the last.

    Raises:
        ConfigError: both labels and a scale, or neither; or a pattern that is no regular expression.

    Example:
        >>> MarkedReply(before="[[", after="]]", labels={"A": "1", "B": "2", "C": "tie"})("So: [[B]]")
        '2'
        >>> MarkedReply(before="<score>", after="</score>", scale=(1, 5))("<score>4</score>")
        Scores(values=(4.0,))
    """

    __pydantic_config__: ClassVar[ConfigDict] = ConfigDict(extra="forbid")

    before: str = ""
    after: str = ""
    patterns: tuple[str, ...] = ()
    labels: Mapping[str, PairLabel] = field(default_factory=dict)
    scale: tuple[float, float] | None = None
    values: Literal[1, 2] = 1
    separator: str = ""
    deducts: bool = False
    takes: Literal["agreeing", "last"] = "agreeing"

    def __post_init__(self) -> None:
        """Check that it reads one kind of verdict."""
        if bool(self.labels) == (self.scale is not None):
            raise ConfigError("a reply format has labels or a scale, and not both")
        for pattern in self.patterns:
            try:
                re.compile(pattern)
            except re.error as error:
                raise ConfigError(f"pattern {pattern!r}: {error}") from error

    def __call__(self, text: str) -> PairLabel | Scores | Unparsed:
        """Read a reply without its thinking."""
        plain = text.replace("：", ":")
        marked = self._matched(plain) if self.patterns else list(self._marked(plain))
        if not marked:
            return Unparsed("off_grammar", text, f"no verdict marked by {self._marks}")
        return self._label(marked, text) if self.labels else self._scores(marked, text)

    @property
    def _marks(self) -> str:
        if self.patterns:
            return "the format of the judge's card"
        return f"{self.before!r} and {self.after!r}" if self.before else "nothing, as the whole reply"

    def _matched(self, text: str) -> list[_Marked]:
        """The verdicts of the first pattern that matches; the last one alone where that counts."""
        for pattern in self.patterns:
            if matches := list(re.finditer(pattern, text)):
                counted = matches[-1:] if self.takes == "last" else matches
                return [_Marked(match[1] or "", match.start(1), match.start()) for match in counted]
        return []

    def _marked(self, text: str) -> Iterator[_Marked]:
        """Texts between the marks, all over the reply."""
        if not self.before:
            yield _Marked(text.strip(_AROUND + "\n"), 0, 0)
            return
        end = 0
        while (mark := text.find(self.before, end)) >= 0:
            start = mark + len(self.before)
            end = text.find(self.after or "\n", start, start + _LONGEST + len(self.after))
            if end < 0 and not self.after and len(text) - start <= _LONGEST:
                end = len(text)
            if end < 0:
                end = start
                continue
            inner = text.rfind(self.before, start, end)  # a mark that was opened and not closed belongs to no verdict
            if inner >= 0:
                mark, start = inner, inner + len(self.before)
            yield _Marked(text[start:end].strip(_AROUND), mark, mark)

    def _label(self, marked: list[_Marked], text: str) -> PairLabel | Unparsed:
        known = {written.casefold(): label for written, label in self.labels.items()}
        stated = [
            Statement(Verdict(known[mark.written.casefold()], mark.position, mark.written), mark.start)
            for mark in marked
            if mark.written.casefold() in known
        ]
        if not stated:
            return Unparsed("off_grammar", text, f"{marked[-1].written!r} is none of {', '.join(self.labels)}")
        counted = self._counted(stated, text, unmarked_verdicts(text, known) if self.before else [])
        return counted if isinstance(counted, Unparsed) else known[counted.written.casefold()]

    def _scores(self, marked: list[_Marked], text: str) -> Scores | Unparsed:
        assert self.scale is not None, "a format without labels has a scale"
        read = [(mark, value) for mark in marked for value in self._numbers(mark.written)]
        groups = [read[index : index + self.values] for index in range(0, len(read), self.values)]
        if not groups or len(groups[-1]) < self.values:
            return Unparsed("off_grammar", text, f"{len(read)} numbers, expected {self.values}")
        stated = []
        for group in groups:
            first, label = group[0][0], " ".join(f"{value:g}" for _, value in group)
            written = first.written if self.patterns else ""
            stated.append(Statement(Verdict(label, first.position, written), first.start))
        counted = self._counted(stated, text, [])
        if isinstance(counted, Unparsed):
            return counted
        values = tuple(0 - float(value) if self.deducts else float(value) for value in counted.label.split())
        low, high = self.scale
        if outside := [value for value in values if not low <= value <= high]:
            return Unparsed("out_of_range", text, f"{outside[0]:g} is outside {low:g} to {high:g}")
        return Scores(values)

    def _numbers(self, written: str) -> list[float]:
        parts = written.split(self.separator or None)
        if self.patterns:
            return [float(part) for part in parts]
        return [value for part in parts if (value := _number(part)) is not None]

    def _counted(self, stated: list[Statement], text: str, unmarked: list[Statement]) -> Verdict | Unparsed:
        """The verdict that counts."""
        if self.takes == "last":
            return stated[-1].verdict
        return settled(text, [*stated, *unmarked], "")


def _number(text: str) -> float | None:
    """A number without sign or exponent, as judges write scores; `4/5` and `4 out of 5` are 4."""
    written = text.strip(_AROUND).split("/")[0].split(" out of ")[0].strip(_AROUND)
    digits = written.replace(".", "", 1)
    return float(written) if digits.isascii() and digits.isdigit() else None
