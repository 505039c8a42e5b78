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
    "[": "【⟦〚⁅❲〔⦋⦍⦏⟬⸢⌈⌊⎡⎣〖〘「『",
    "]": "】⟧〛⁆❳〕⦌⦎⦐⟭⸣⌉⌋⎤⎦〗〙」』",
    "#": "♯⌗⋕",
    "<": "⟨≺❬〈《",
    ">": "⟩≻❭〉》",
    "|": "￨∣ǀ│┃❘❙",
    ":": "׃",
    "'": "´ʿ׳΄᾽᾿",
    "`": "ˋ‵",
}
_LETTERS = {
    **{"c": "ϲ", "e": "ε", "f": "ẝ", "k": "κк", "m": "мʍ", "n": "пη", "t": "тτ", "u": "ц", "x": "χ"},
    **{"C": "Ϲ", "I": "ӀІΙꓲ", "Q": "Ԛ"},
}
BEGINNINGS = {
    "[": _SIGNS["["] + "［﹇︗︹︻﹁﹃﹝｢🄪🉀🉁🉂🉃🉄🉅🉆🉇🉈",
    "#": _SIGNS["#"] + "＃﹟",
    "<": _SIGNS["<"] + "＜﹤‹❮˂≮⊀\u2329︽︿ᐸᚲ𝈶",
}
"""Every character whose plain form holds the sign, more than its confusables: some decompose into them."""

_TABLE = str.maketrans({odd: plain for table in (_SIGNS, _LETTERS) for plain, odds in table.items() for odd in odds})
_BLANK_FILLERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
_BLANKS = {"\u2800": " "}
"""The braille pattern without dots is drawn as a blank."""

_NAMED = re.compile(
    r"(?:LATIN (?:SMALL|CAPITAL) LETTER|LATIN LETTER SMALL CAPITAL|NEGATIVE (?:CIRCLED|SQUARED) LATIN CAPITAL LETTER"
    r"|REGIONAL INDICATOR SYMBOL LETTER) (?:SCRIPT |DOTLESS |LONG )?([A-Z])(?: WITH [A-Z ]+)?"
)


@lru_cache(maxsize=4096)
def plain_form(character: str) -> str:
    """The plain text that a character looks like; empty for an invisible one."""
    if character in _BLANKS:
        return _BLANKS[character]
    # ´ has a confusable of its own, and would else become a blank with an accent
    decomposed = unicodedata.normalize("NFKD", character.translate(_TABLE)).translate(_TABLE)
    return "".join(_letter(part) for part in decomposed if not is_invisible(part))


def is_invisible(character: str) -> bool:
    """True for a format or control character, a combining mark or a filler, which no reader sees in a marker."""
    if character.isspace():
        return False
    return unicodedata.category(character) in ("Cf", "Cc", "Mn", "Me") or character in _BLANK_FILLERS


def _letter(character: str) -> str:
    """The digit, the letter of the name (`ø`, small capitals, letters in boxes), or the confusable of TR39."""
    if character.isascii():
        return character
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    if (letter := _NAMED.fullmatch(unicodedata.name(character, ""))) is not None:
        return letter[1].lower() if "SMALL" in letter[0] else letter[1]
    return _unicode_confusables().get(character, character)


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
