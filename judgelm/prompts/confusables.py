"""Confusables: what a text looks like in plain letters and signs.

They are used to find imitations, never to change a text: a rare mistake here costs nothing where no marker is imitated.
"""

import json
import re
import unicodedata
from functools import cache, lru_cache
from importlib.resources import files

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
_BLANKS = {"\u2800": " "}
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
    if character in _BLANKS:
        return _BLANKS[character]
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
