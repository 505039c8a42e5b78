"""Candidate text can never close its own block.

An answer that contains `[The End of Assistant 1's Answer]`, `### Response:` or `</s>` could pretend that its block
has ended and write the judge's verdict itself. Look-alikes of such markers, in any case, with other blanks, zero-width
characters or full-width letters, are defused by exchanging their brackets and hashes for plain characters of the
same number; the words stay readable. How many were found is counted in the judgment.
"""

import re
import unicodedata
from collections.abc import Iterable

_DEFUSED = str.maketrans({"[": "(", "]": ")", "<": "(", ">": ")", "#": "*", "|": "/", "{": "(", "}": ")"})
_IGNORABLE = re.compile("[\u00ad\u200b-\u200f\u202a-\u202e\u2060-\u2064\ufe00-\ufe0f\ufeff]")
_CONFUSABLE = str.maketrans("’‘ʼ′⟨⟩❲❳〔〕", "''''<>[][]")


class Neutraliser:
    """Finds look-alikes of given markers in a text and defuses them.

    Args:
        markers: marker texts; `{n}` in one stands for any number, so that `Assistant 7` cannot open a block either.
        exact: whether only the literal text counts (special tokens), not its look-alikes.
    """

    def __init__(self, markers: Iterable[str], *, exact: bool = False) -> None:
        patterns = [re.escape(marker) if exact else _loose(marker) for marker in sorted(set(markers), key=len)[::-1]]
        self._find = re.compile("|".join(patterns), 0 if exact else re.IGNORECASE) if patterns else None
        self._exact = exact

    def __call__(self, text: str) -> tuple[str, int]:
        """The defused text and how many markers were found in it."""
        if self._find is None or not text:
            return text, 0
        if self._exact or text.isascii():
            return self._find.subn(lambda match: _defuse(match[0]), text)
        if self._find.search(_fold_whole(text)) is None:
            return text, 0
        return self._defuse_folded(text)

    def _defuse_folded(self, text: str) -> tuple[str, int]:
        """Search in a compatibility-folded copy of the text and defuse the same places in the text itself."""
        assert self._find is not None
        folded, origin = _fold(text)
        pieces: list[str] = []
        done = found = 0
        for match in self._find.finditer(folded):
            start, end = origin[match.start()], origin[match.end() - 1] + 1
            if start < done:
                continue
            pieces += [text[done:start], _defuse(match[0])]
            done, found = end, found + 1
        return "".join(pieces) + text[done:], found


def _loose(marker: str) -> str:
    """A pattern for a marker with any blanks between its words and any number where it has `{n}`."""
    words = [re.escape(word).replace(r"\{n\}", r"\d+") for word in marker.split()]
    pattern = r"\s*".join(words)
    return pattern.replace(r"\[", r"\[\s*", 1).replace(r"\]", r"\s*\]") if marker.startswith("[") else pattern


def _defuse(marker: str) -> str:
    defused = marker.translate(_DEFUSED)
    return defused if defused != marker else f"{marker[0]} {marker[1:]}"


def _fold_whole(text: str) -> str:
    """What `_fold` gives, at the speed of C but without the places; composed letters are no part of any marker."""
    return _IGNORABLE.sub("", unicodedata.normalize("NFKC", text).translate(_CONFUSABLE))


def _fold(text: str) -> tuple[str, list[int]]:
    """NFKC, ignorable characters dropped, quotation marks made plain; with each character's index in the text."""
    folded: list[str] = []
    origin: list[int] = []
    for index, character in enumerate(text):
        if character.isascii():
            folded.append(character)
            origin.append(index)
        elif not _IGNORABLE.match(character):
            plain = unicodedata.normalize("NFKC", character).translate(_CONFUSABLE)
            folded.append(plain)
            origin.extend([index] * len(plain))
    return "".join(folded), origin
