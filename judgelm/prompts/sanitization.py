"""Candidate text can never close its own block.

An answer that contains `[The End of Assistant 1's Answer]`, `### Response:` or `</s>` could pretend that its block
has ended and write the judge's verdict itself. Look-alikes of such markers, in any case, with other blanks, invisible
characters, accents, full-width or foreign letters, are sanitized by exchanging their brackets and hashes for plain
characters; the words stay readable. How many were found is counted in the judgment.
"""

import re
from collections.abc import Iterable
from functools import cache

from judgelm.prompts.confusables import BEGINNINGS, fold

_HARMLESS = str.maketrans({"[": "(", "]": ")", "<": "(", ">": ")", "#": "*", "|": "/", "{": "(", "}": ")"})
_PLAIN = re.compile(r"[\t\n\r -~]*")


class Sanitizer:
    """Finds confusables of given markers in a text and sanitizes them.

    Args:
        markers: marker texts; `{n}` in one stands for any number, so that `Assistant 7` cannot open a block either.
        exact: whether only the literal text counts (special tokens), not its look-alikes.
    """

    def __init__(self, markers: Iterable[str], *, exact: bool = False) -> None:
        known = sorted(set(markers), key=len)[::-1]
        patterns = [re.escape(marker) if exact else _loose(marker) for marker in known]
        self._find = re.compile("|".join(patterns), 0 if exact else re.IGNORECASE) if patterns else None
        self._begins = None if exact or not known else _beginnings(known)
        self._exact = exact

    def __call__(self, text: str) -> tuple[str, int]:
        """The sanitized text and how many markers were found in it."""
        if self._find is None or (self._begins is not None and self._begins.search(text) is None):
            return text, 0
        if self._exact or _PLAIN.fullmatch(text):
            return self._find.subn(lambda match: _sanitize(match[0]), text)
        return self._sanitize_folded(text)

    def _sanitize_folded(self, text: str) -> tuple[str, int]:
        """Search in a folded copy of the text and sanitize the same places in the text itself."""
        assert self._find is not None
        folded, origin = fold(text)
        pieces: list[str] = []
        done = count = 0
        for match in self._find.finditer(folded):
            start, end = origin[match.start()], origin[match.end() - 1] + 1
            if start < done:
                continue
            pieces += [text[done:start], _sanitize(match[0])]
            done, count = end, count + 1
        return "".join(pieces) + text[done:], count


@cache
def sanitizer_for(markers: tuple[str, ...]) -> Sanitizer:
    """The sanitizer of a template's markers, made once."""
    return Sanitizer(markers)


def _beginnings(markers: list[str]) -> re.Pattern[str] | None:
    """A pattern for the first characters of all markers, which most texts lack; None where one could be a letter."""
    firsts = {marker[0] for marker in markers}
    if not firsts <= {"[", "#", "<"}:
        return None
    return re.compile("[" + re.escape("".join(first + BEGINNINGS[first] for first in sorted(firsts))) + "]")


def _loose(marker: str) -> str:
    """A pattern for a marker with any blanks between its letters and signs, and any number where it has `{n}`."""
    parts = re.findall(r"\{n\}|\w|[^\w\s]", marker)
    known = {"{n}": r"\d+", "'": "['`]"}
    return r"\s*".join(known.get(part, re.escape(part)) for part in parts)


def _sanitize(marker: str) -> str:
    sanitized = marker.translate(_HARMLESS)
    return sanitized if sanitized != marker else f"{marker[0]} {marker[1:]}"
