"""Candidate text can never close its own block.

An answer that contains `[The End of Assistant 1's Answer]`, `### Response:` or `</s>` could pretend that its block has
ended and write the judge's verdict itself. Confusables of such markers, in any case, with other blanks or signs in
their place, invisible characters, accents, full-width or foreign letters, digits and brackets, are sanitized by
exchanging their brackets and hashes for plain characters; the words stay readable. How many were sanitized is counted
in the judgment.

Folding a text to what it looks like in plain letters only finds imitations and never changes a text: a rare mistake
costs nothing where no marker is imitated.
"""

import json
import re
import unicodedata
from collections.abc import Iterable
from functools import cache, lru_cache
from importlib.resources import files
from itertools import pairwise

# By hand stands what the table of TR39 lacks or takes for another sign.
_SIGNS = {
    "[": "【⟦〚⁅❲〔⦋⦍⦏⟬⸢⌈⌊⎡⎣〖〘「『⌜⌞ʃ∫",
    "]": "】⟧〛⁆❳〕⦌⦎⦐⟭⸣⌉⌋⎤⎦〗〙」』⌝⌟ʅ",
    "#": "♯⌗⋕⧣⧤⧥⩷⩨⩩ⵌ井",
    "<": "≺",
    ">": "≻",
    "|": "￨∣ǀ│┃❘❙",
    ":": "׃",
    "'": "´ʿ׳΄᾽᾿",
    "`": "ˋ‵",
}
_LETTERS = {
    **{"c": "ϲ", "e": "ε", "f": "ẝ", "k": "κк", "m": "мʍ", "n": "пη", "t": "тτ", "u": "ц", "x": "χ"},
    **{"C": "Ϲ", "I": "ӀІΙꓲ", "Q": "Ԛ"},
}
OPENING, CLOSING = "\u27e6", "\u27e7"
"""What every other bracket is folded to: it passes for a square one and for an angle bracket alike."""
_QUOTES = frozenset("\u201a\u201e\u2e42\u301d\u301e\u301f")
"""Quotation marks that Unicode counts as brackets."""
_COMPOSED = {"[": "［﹇︗︹︻﹁﹃﹝｢🄪🉀🉁🉂🉃🉄🉅🉆🉇🉈ᶴ∬∭⨌", "#": "＃﹟", "<": "＜﹤≮⊀"}
"""What decomposes into a text with the sign."""
_OTHERS = {"<": "‹❮˂ᐸᚲ𝈶"}
"""Confusables of TR39 that are no brackets by Unicode's category."""

_TABLE = str.maketrans({odd: plain for table in (_SIGNS, _LETTERS) for plain, odds in table.items() for odd in odds})
_FILLERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\ufffc\ufffd")
_DRAWN_BLANK = {"\u2800": " "}
"""The braille pattern without dots is drawn as a blank."""
_HIDDEN = frozenset(("Cf", "Cc", "Cn", "Co", "Cs", "Mc", "Me", "Mn"))
ROMAN = {"i": "ⅰ", "v": "ⅴ", "x": "ⅹ", "l": "ⅼⅰ", "c": "ⅽ", "d": "ⅾ", "m": "ⅿ"}
"""Roman numerals that are one letter each; they are not folded, since they pass for the letter and for a number."""

_NAMED = re.compile(
    r"(?:LATIN (?:SMALL|CAPITAL) LETTER|LATIN LETTER SMALL CAPITAL|NEGATIVE (?:CIRCLED|SQUARED) LATIN CAPITAL LETTER"
    r"|REGIONAL INDICATOR SYMBOL LETTER) (?:SCRIPT |DOTLESS |LONG )?([A-Z])(?: WITH [A-Z ]+)?"
)


@lru_cache(maxsize=4096)
def plain_form(character: str) -> str:
    """The plain text that a character looks like; empty for an invisible one."""
    if character in _DRAWN_BLANK:
        return _DRAWN_BLANK[character]
    if "\u2160" <= character <= "\u217f":
        return character
    # ´ has a confusable of its own, and would else become a blank with an accent
    decomposed = unicodedata.normalize("NFKD", character.translate(_TABLE)).translate(_TABLE)
    return "".join(_letter(part) for part in decomposed if not is_invisible(part))


def is_invisible(character: str) -> bool:
    """True for what no reader sees in a marker: a mark, filler, placeholder, control or unassigned character."""
    if character.isspace():
        return False
    return unicodedata.category(character) in _HIDDEN or character in _FILLERS


@cache
def beginnings(sign: str) -> str:
    """Every character whose plain form holds a bracket, a hash or what is taken for it; they are few in most texts."""
    odd = _SIGNS[sign] + _COMPOSED[sign] + _OTHERS.get(sign, "")
    if sign == "#":
        return odd
    brackets = (letter for letter in map(chr, range(0xA0, 0x10000)) if unicodedata.category(letter) == "Ps")
    return odd + "".join(bracket for bracket in brackets if plain_form(bracket) == OPENING)


def _letter(character: str) -> str:
    """The digit, the letter of the name (`ø`, small capitals, letters in boxes), TR39's letter, number or bracket."""
    if character.isascii():
        return character
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    if (letter := _NAMED.fullmatch(unicodedata.name(character, ""))) is not None:
        return letter[1].lower() if "SMALL" in letter[0] else letter[1]
    confusable = _unicode_confusables().get(character, character)
    if confusable.isascii() and confusable.isalpha():
        return confusable
    if character.isnumeric() and (number := unicodedata.numeric(character)).is_integer():
        return str(int(number))
    category = unicodedata.category(character)
    if category in ("Ps", "Pe") and character not in _QUOTES:
        return OPENING if category == "Ps" else CLOSING
    return "-" if category == "Lm" else confusable  # a mark of length or the like, which stands between letters


@cache
def _unicode_confusables() -> dict[str, str]:
    """Characters -> the ASCII sign that Unicode's table (TR39) has as their confusable."""
    table = json.loads(files("confusable_homoglyphs").joinpath("confusables.json").read_text("utf-8"))
    pairs = ((odd, plain["c"]) for odd, plains in table.items() for plain in plains)
    return {odd: plain for odd, plain in pairs if plain.isascii() and len(plain) == len(odd) == 1}


def fold(text: str) -> tuple[str, list[int]]:
    """A text as it looks, and where in the text each of its characters stood."""
    folded: list[str] = []
    origin: list[int] = []
    for index, character in enumerate(text):
        plain = character if " " <= character <= "~" else plain_form(character)
        folded += plain
        origin += [index] * len(plain)
    return "".join(folded), origin


_HARMLESS = str.maketrans(
    {"[": "(", "]": ")", "<": "(", ">": ")", OPENING: "(", CLOSING: ")"} | {"#": "*", "|": "/", "{": "(", "}": ")"}
)
_PART = re.compile(r"\{n\}|\w|[^\w\s]")
_BRACKETS = {"[": rf"[\[{OPENING}]", "]": rf"[\]{CLOSING}]", "<": f"[<{OPENING}]", ">": f"[>{CLOSING}]"}
_OUTER = frozenset("[]<>#")
_ANY_SIGNS = rf"(?:[^\w\[\]<>#{OPENING}{CLOSING}]|_)*+"
_ANY_NUMBER = rf"[^\n\[\]<>#{OPENING}{CLOSING}]{{0,20}}?"
_NUMBER = "[0-9\u2160-\u217f]+"
_BLANKS = r"[\s\\]*+"
_DIGIT_FOR = {"a": "4", "b": "8", "e": "3", "g": "9", "i": "1l", "l": "1i", "o": "0", "s": "5", "t": "7", "z": "2"}
_ROMAN_FOR = {str(number): chr(0x215F + number) for number in range(1, 10)}
_FEWEST_LETTERS = 4
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
    return re.compile("[" + re.escape("".join(first + beginnings(first) for first in sorted(firsts))) + "]")


def _loose(marker: str) -> str:
    """A pattern for a marker and what looks like it.

    Blanks may stand between its letters. In a marker of several letters any signs may, a digit may stand for a letter,
    and any short text for `{n}`: `[1]` and `[S]` are ordinary text, `[The_End_of_Assistant_One's_Answer]` is not.
    """
    parts = _PART.findall(marker)
    wordy = sum(part.isalpha() for part in parts) >= _FEWEST_LETTERS
    if wordy:  # signs between letters are among any signs
        words = [index for index, part in enumerate(parts) if _is_word(part)]
        parts = [part for index, part in enumerate(parts) if not words[0] < index < words[-1] or _is_word(part)]
    pattern = _look(parts[0], wordy)
    for before, part in pairwise(parts):
        beside_word = _is_word(before) and _is_word(part)
        beside_word |= (_is_word(before) or _is_word(part)) and (before in _OUTER or part in _OUTER)
        pattern += (_ANY_SIGNS if wordy and beside_word else _BLANKS) + _look(part, wordy)
    return pattern


def _is_word(part: str) -> bool:
    return part == "{n}" or part.isalnum()


def _look(part: str, wordy: bool) -> str:
    """A pattern for a letter, sign or number of a marker."""
    if part == "{n}":
        return _ANY_NUMBER if wordy else _NUMBER
    if part in _BRACKETS:
        return _BRACKETS[part]
    if part == "'":
        return "['`]"
    if not part.isalnum():
        return re.escape(part)
    odd = ROMAN.get(part.lower(), "") + _ROMAN_FOR.get(part, "") + (_DIGIT_FOR.get(part.lower(), "") if wordy else "")
    return f"[{part}{odd}]" if odd else part


def _sanitize(marker: str) -> str:
    sanitized = marker.translate(_HARMLESS)
    return sanitized if sanitized != marker else f"{marker[0]} {marker[1:]}"
