"""Word differences between two texts, to compare a row with its swapped version."""

import re
from collections.abc import Iterable
from difflib import SequenceMatcher
from itertools import groupby
from typing import NamedTuple

_WORD = re.compile(r"\d+(?:\.\d+)?|\w+|\s+|.", re.DOTALL)


class DiffPiece(NamedTuple):
    """A piece of a text, and whether the other text differs there."""

    text: str
    changed: bool


def diff_words(before: str, after: str) -> tuple[list[DiffPiece], list[DiffPiece]]:
    """Both texts in pieces; each one's pieces joined are the text.

    First lines, where scores stand, are compared with each other, and so is what follows them. Texts of equally many
    words, as swapped names leave them, are compared word by word, so that "1 and 2" against "2 and 1" is two changed
    words; others by their longest common runs of words.
    """
    old, new = before.partition("\n"), after.partition("\n")
    first, rest = _changes(old[0], new[0]), _changes(old[1] + old[2], new[1] + new[2])
    return first[0] + rest[0], first[1] + rest[1]


def _changes(before: str, after: str) -> tuple[list[DiffPiece], list[DiffPiece]]:
    old, new = _WORD.findall(before), _WORD.findall(after)
    if len(old) == len(new):
        differs = [old_word != other for old_word, other in zip(old, new, strict=True)]
        return _pieces(old, differs), _pieces(new, differs)
    old_differs, new_differs = [True] * len(old), [True] * len(new)
    for start, other, size in SequenceMatcher(a=old, b=new, autojunk=False).get_matching_blocks():
        old_differs[start : start + size] = new_differs[other : other + size] = [False] * size
    return _pieces(old, old_differs), _pieces(new, new_differs)


def _pieces(words: Iterable[str], differs: Iterable[bool]) -> list[DiffPiece]:
    together = groupby(zip(words, differs, strict=True), key=lambda item: item[1])
    return [DiffPiece("".join(word for word, _ in run), changed) for changed, run in together]
