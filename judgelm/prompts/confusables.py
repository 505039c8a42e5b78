"""Characters that a reader takes for others: what a text looks like, in plain letters and signs.

Used to find imitations, never to change a text: a rare mistake here costs nothing where no marker is imitated.
"""

import re
import unicodedata
from functools import lru_cache

SIGNS = {
    "[": "［﹇【⟦〚⁅❲〔⦋⦍⦏⟬⸢⌈⌊⎡⎣〖〘「『",
    "]": "］﹈】⟧〛⁆❳〕⦌⦎⦐⟭⸣⌉⌋⎤⎦〗〙」』",
    "#": "＃﹟♯⌗⋕",
    "<": "＜﹤⟨‹≺❮❬〈《˂",
    ">": "＞﹥⟩›≻❯❭〉》˃",
    "|": "｜￨∣ǀ│┃❘❙",
    ":": "：﹕︓∶։׃꞉ː˸⁚",
    "'": "’‘‛ʼʻʽʹ′´ˈˊʾʿ׳՚ꞌ΄᾽᾿",
    "`": "ˋ｀‵",
}
BEGINNINGS = {
    "[": SIGNS["["] + "︗︹︻﹁﹃﹝｢🄪🉀🉁🉂🉃🉄🉅🉆🉇🉈",
    "#": SIGNS["#"],
    "<": SIGNS["<"] + "≮⊀\u2329︽︿",
}
"""Every character whose plain form holds the sign, more than its look-alikes: some decompose into them."""

_LETTERS = {
    **dict(zip("abcdefghijklmnopqrstuvwxyz", (
        "аαɑᴀ", "Ьʙᖯ", "сϲᴄ", "ԁɗᴅꓒ", "еεҽᴇ", "ƒꜰẝ", "ɡɢց", "һհʜ", "іιıɩӏ", "јϳᴊ", "κкᴋ", "ⅼʟӀ", "ᴍмʍ",
        "ոռɴпη", "оοօᴏσ", "рρᴘ", "ԛգզ", "гᴦʀꭇ", "ѕꜱƽ", "тτᴛ", "υսᴜц", "νѵᴠ", "ԝաᴡѡ", "хχ×", "уγүʏყ", "ᴢʐ",
    ), strict=True)),
    **dict(zip("ABCDEFGHIJKLMNOPQRSTUVWXYZ", (
        "АΑᎪꓮ", "ВΒᏴꓐ", "СϹᏟꓚ", "Ꭰꓓ", "ЕΕᎬꓰ", "Ϝꓝ", "ԌᏀꓖ", "НΗᎻꓧ", "ІΙӀꓲ", "ЈᎫꓙ", "КΚᏦꓗ", "Ꮮꓡ", "МΜᎷꓟ",
        "Νꓠ", "ОΟՕꓳ", "РΡᏢꓑ", "Ԛ", "ᎡᏒꓣ", "ЅՏᏚꓢ", "ТΤᎢꓔ", "Սꓴ", "Ѵꓦ", "ԜᎳꓪ", "ХΧꓫ", "УΥҮꓬ", "ΖᏃꓜ",
    ), strict=True)),
}  # fmt: skip
_TABLE = str.maketrans(
    {odd: plain for table in (SIGNS, _LETTERS) for plain, confusables in table.items() for odd in confusables}
)
_BLANK_FILLERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0")
_BLANKS = {"\u2800": " "}
"""The braille pattern without dots is drawn as a blank."""

_NAMED = re.compile(
    r"(?:LATIN (?:SMALL|CAPITAL) LETTER|LATIN LETTER SMALL CAPITAL|NEGATIVE (?:CIRCLED|SQUARED) LATIN CAPITAL LETTER"
    r"|REGIONAL INDICATOR SYMBOL LETTER) (?:SCRIPT |DOTLESS |LONG )?([A-Z])(?: WITH [A-Z ]+)?"
)


@lru_cache(maxsize=4096)
def plain_form(character: str) -> str:
    """What a character looks like in plain text; empty for one that nobody sees."""
    if character in _BLANKS:
        return _BLANKS[character]
    # ´ has a look-alike of its own, and would else become a blank with an accent
    decomposed = unicodedata.normalize("NFKD", character.translate(_TABLE)).translate(_TABLE)
    return "".join(_letter(one) for one in decomposed if not is_invisible(one))


def is_invisible(character: str) -> bool:
    """Format and control characters, combining marks and fillers: nothing that a reader sees in a marker."""
    if character.isspace():
        return False
    return unicodedata.category(character) in ("Cf", "Cc", "Mn", "Me") or character in _BLANK_FILLERS


def _letter(character: str) -> str:
    """Any script's digits made plain, and letters that Unicode does not decompose: `ø`, small capitals, in boxes."""
    if character.isascii():
        return character
    if character.isdecimal():
        return str(unicodedata.decimal(character))
    found = _NAMED.fullmatch(unicodedata.name(character, ""))
    if found is None:
        return character
    return found[1].lower() if "SMALL" in found[0] else found[1]


def fold(text: str) -> tuple[str, list[int]]:
    """A text as it looks, and where in the text each of its characters stood."""
    folded: list[str] = []
    origin: list[int] = []
    for index, character in enumerate(text):
        plain = character if " " <= character <= "~" else plain_form(character)
        folded += plain
        origin += [index] * len(plain)
    return "".join(folded), origin
