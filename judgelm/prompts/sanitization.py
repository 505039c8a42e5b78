"""Sanitizes untrusted text, so that an answer cannot end its block or add a special token or chat role.

In markers such as `[The End of Assistant 1's Answer]` and `### Response:`, brackets and hashes are replaced with plain
characters. The same applies to confusables of markers, which differ in case, spacing, invisible characters, or foreign
letters and brackets. Special tokens are matched exactly, unless the tokenizer normalises text first.
"""

import json
import re
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import Any

from jinja2 import TemplateError

from judgelm.prompts.chat_rendering import render_chat

_TABLES: dict[str, dict[str, str]] = tomllib.loads(Path(__file__).with_name("confusables.toml").read_text("utf-8"))
_SIGNS, _LETTERS, _COMPOSED, _OTHERS, _DIGIT_FOR, ROMAN = (
    _TABLES[name] for name in ("signs", "letters", "composed", "others", "digits", "roman")
)
OPENING, CLOSING = "\u27e6", "\u27e7"
"""Other brackets are folded to these, which match both square and angle brackets."""
_QUOTES = frozenset("\u201a\u201e\u2e42\u301d\u301e\u301f")
"""Quotation marks that Unicode classifies as brackets."""
_TABLE = str.maketrans({odd: plain for table in (_SIGNS, _LETTERS) for plain, odds in table.items() for odd in odds})
_FILLERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\ufffc\ufffd")
_DRAWN_BLANK = {"\u2800": " "}  # blank braille pattern
_HIDDEN = frozenset(("Cf", "Cc", "Cn", "Co", "Cs", "Mc", "Me", "Mn"))

_NAMED = re.compile(
    r"(?:LATIN (?:SMALL|CAPITAL) LETTER|LATIN LETTER SMALL CAPITAL|NEGATIVE (?:CIRCLED|SQUARED) LATIN CAPITAL LETTER"
    r"|REGIONAL INDICATOR SYMBOL LETTER) (?:SCRIPT |DOTLESS |LONG )?([A-Z])(?: WITH [A-Z ]+)?"
)


@lru_cache(maxsize=4096)
def plain_form(character: str) -> str:
    """Return the plain text that a character looks like; empty if it is invisible."""
    if character in _DRAWN_BLANK:
        return _DRAWN_BLANK[character]
    if "\u2160" <= character <= "\u217f":
        return character
    # look up confusables first, because decomposition turns ´ into a space with an accent
    decomposed = unicodedata.normalize("NFKD", character.translate(_TABLE)).translate(_TABLE)
    return "".join(_letter(part) for part in decomposed if not is_invisible(part))


def is_invisible(character: str) -> bool:
    """Return whether a character is invisible, such as a mark, a filler, or a control character."""
    if character.isspace():
        return False
    return unicodedata.category(character) in _HIDDEN or character in _FILLERS


@cache
def beginnings(sign: str) -> str:
    """Return all characters that look like this bracket or hash."""
    odd = _SIGNS[sign] + _COMPOSED[sign] + _OTHERS.get(sign, "")
    if sign == "#":
        return odd
    brackets = (letter for letter in map(chr, range(0xA0, 0x10000)) if unicodedata.category(letter) == "Ps")
    return odd + "".join(bracket for bracket in brackets if plain_form(bracket) == OPENING)


def _letter(character: str) -> str:
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
    return "-" if category == "Lm" else confusable  # a modifier letter, such as a length mark


@cache
def _unicode_confusables() -> dict[str, str]:
    table = json.loads(files("confusable_homoglyphs").joinpath("confusables.json").read_text("utf-8"))
    pairs = ((odd, plain["c"]) for odd, plains in table.items() for plain in plains)
    return {odd: plain for odd, plain in pairs if plain.isascii() and len(plain) == len(odd) == 1}


def fold(text: str) -> tuple[str, list[int]]:
    """Return the text in plain letters, with each character's index in the original text."""
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
_LINE_START = r"(?:(?<=\n)|\A)[^\w\n]*+"
_ROMAN_FOR = {str(number): chr(0x215F + number) for number in range(1, 10)}
_FIRST_LETTER = re.compile(r"\A\W*+\w|\A.", re.DOTALL)
_MIN_LETTERS = 4
_PLAIN = re.compile(r"[\t\n\r -~]*")


class Sanitizer:
    """Finds and sanitizes markers and their confusables.

    Args:
        markers: marker texts; `{n}` matches any number, so that `Assistant 7` cannot open a block either. A marker that
            starts with a line break is only found at the start of a line.
        exact: match only literal text, as for special tokens.
    """

    def __init__(self, markers: Iterable[str], *, exact: bool = False) -> None:
        known = sorted(set(markers), key=len)[::-1]
        patterns = [re.escape(marker) if exact else _loose(marker) for marker in known]
        self._find = re.compile("|".join(patterns), 0 if exact else re.IGNORECASE) if patterns else None
        begins = None if exact or not known else _beginnings(known)
        self._begins = None if begins is None else re.compile(f"[{re.escape(begins)}]")
        self._ascii_begins = tuple(filter(str.isascii, begins or ""))
        self._exact = exact
        self._sanitize = _break_word if any(marker.startswith("\n") for marker in known) else _sanitize

    def __call__(self, text: str) -> tuple[str, int]:
        """Return the sanitized text and the number of markers found."""
        if self._find is None or (self._begins is not None and not self._may_begin(text)):
            return text, 0
        if self._exact or _PLAIN.fullmatch(text):
            return self._find.subn(lambda match: self._sanitize(match[0]), text)
        return self._sanitize_folded(text)

    def _may_begin(self, text: str) -> bool:
        assert self._begins is not None
        if text.isascii():  # faster than a regular expression for a few characters
            return any([begin in text for begin in self._ascii_begins])
        return self._begins.search(text) is not None

    def _sanitize_folded(self, text: str) -> tuple[str, int]:
        assert self._find is not None
        folded, origin = fold(text)
        pieces: list[str] = []
        done = count = 0
        for match in self._find.finditer(folded):
            start, end = origin[match.start()], origin[match.end() - 1] + 1
            if start < done:
                continue
            pieces += [text[done:start], self._sanitize(match[0])]
            done, count = end, count + 1
        return "".join(pieces) + text[done:], count


@cache
def sanitizer_for(markers: tuple[str, ...]) -> Sanitizer:
    """Return the cached sanitizer for these markers."""
    return Sanitizer(markers)


def _beginnings(markers: list[str]) -> str | None:
    firsts = {marker[0] for marker in markers}
    if not firsts <= {"[", "#", "<"}:
        return None
    return "".join(first + beginnings(first) for first in sorted(firsts))


def _loose(marker: str) -> str:
    """Return a pattern for a marker and its confusables.

    Markers with several letters also match if they contain other punctuation, digits in place of letters, or short text
    in place of `{n}`, such as `[The_End_of_Assistant_One's_Answer]`.
    """
    start = _LINE_START if marker.startswith("\n") else ""
    parts = _PART.findall(marker)
    wordy = sum(part.isalpha() for part in parts) >= _MIN_LETTERS
    if wordy:
        words = [index for index, part in enumerate(parts) if _is_word(part)]
        parts = [part for index, part in enumerate(parts) if not words[0] < index < words[-1] or _is_word(part)]
    pattern = start + _look(parts[0], wordy)
    for before, part in pairwise(parts):
        beside_word = _is_word(before) and _is_word(part)
        beside_word |= (_is_word(before) or _is_word(part)) and (before in _OUTER or part in _OUTER)
        pattern += (_ANY_SIGNS if wordy and beside_word else _BLANKS) + _look(part, wordy)
    return pattern


def _is_word(part: str) -> bool:
    return part == "{n}" or part.isalnum()


def _look(part: str, wordy: bool) -> str:
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


def _break_word(marker: str) -> str:
    """Like `_sanitize`, for markers at the start of a line, which may follow blanks and punctuation."""
    sanitized = marker.translate(_HARMLESS)
    return sanitized if sanitized != marker else _FIRST_LETTER.sub(r"\g<0> ", marker, count=1)


_SENTINELS = ("zq0qz", "zq1qz", "zq2qz", "zq3qz")
_SIGNED = re.compile(
    r"(?<!#)#{2,}+[^\S\n]*\w[\w ]{0,30}:?|<{1,2}[^<>\n]{1,40}>{1,2}|\[[^\[\]\n]{1,40}\]"  # ### User:  <<SYS>>  [/INST]
)
_WORD_BEFORE_CONTENT = re.compile(r"(?<!\w)(\w+:)\s*$")


class SpecialTokenSanitizer:
    """Sanitizes a fast tokenizer's special tokens and, in chats, role markers."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._tokens = special_tokens(tokenizer)
        self._of_tokens = [Sanitizer(self._tokens, exact=True)]
        if folded := {token for token in _found_when_folded(tokenizer) if not token.isalnum()} & self._tokens:
            self._of_tokens.append(Sanitizer(folded))

    def __call__(self, text: str, *, chat: bool) -> tuple[str, int]:
        """Return the sanitized text and the number of tokens and markers found."""
        total = 0
        for sanitizer in (*self._of_tokens, *(self._of_roles if chat else ())):
            text, count = sanitizer(text)
            total += count
        return text, total

    @cached_property
    def _of_roles(self) -> tuple[Sanitizer, ...]:
        markers = role_markers(self._tokenizer) - self._tokens
        words = {marker for marker in markers if not _SIGNED.fullmatch(marker)}
        return Sanitizer(markers - words), Sanitizer(words, exact=True)


def special_tokens(tokenizer: Any) -> set[str]:
    """Return special and added tokens, except spaces and plain words."""
    added = (token for token in tokenizer.get_added_vocab() if not token.isspace() and not token.isalnum())
    return {*tokenizer.all_special_tokens, *added}


def role_markers(tokenizer: Any) -> set[str]:
    """Return the plain-text markers that the chat template writes around messages.

    Markers are text in brackets or after hashes, and words followed by a colon before a message.
    """
    for roles in (("system", "user", "assistant", "user"), ("user", "assistant", "user")):
        messages = [{"role": role, "content": text} for role, text in zip(roles, _SENTINELS, strict=False)]
        try:
            text = render_chat(tokenizer, messages, add_generation_prompt=True)
        except (ValueError, TemplateError):
            continue
        return {marker.strip() for piece in re.split("|".join(_SENTINELS), text) for marker in _markers(piece)}
    return set()


def _markers(piece: str) -> Iterator[str]:
    yield from _SIGNED.findall(piece)
    if word := _WORD_BEFORE_CONTENT.search(_SIGNED.sub("", piece)):
        yield word[1]


def _found_when_folded(tokenizer: Any) -> Iterator[str]:
    normalizer = getattr(getattr(tokenizer, "backend_tokenizer", None), "normalizer", None)
    if normalizer is None:
        return
    for token in tokenizer.added_tokens_decoder.values():
        plain = normalizer.normalize_str(token.content)
        variants = (variant for variant in _variants(token.content) if variant != token.content)
        if token.normalized and any(normalizer.normalize_str(variant) == plain for variant in variants):
            yield token.content


def _variants(token: str) -> tuple[str, ...]:
    wide = "".join(chr(ord(sign) + 0xFEE0) if "!" <= sign <= "~" else sign for sign in token)
    hidden = "".join(f"{sign}\u200b" for sign in token)
    accented = "".join(f"{sign}\u0301" for sign in token)
    return wide, token.upper(), token.lower(), hidden, accented, "".join(f"{sign}\0" for sign in token)
