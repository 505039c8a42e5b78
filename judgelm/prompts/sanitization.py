"""Candidate text can neither close its own block nor become a token or a role of a chat.

An answer that contains `[The End of Assistant 1's Answer]`, `### Response:` or `</s>` could pretend that its block has
ended and write the judge's verdict itself. Confusables of such markers, in any case, with other blanks or signs in
their place, invisible characters, accents, full-width or foreign letters, digits and brackets, are sanitized by
exchanging their brackets and hashes for plain characters; the words stay readable. How many were sanitized is counted
in the judgment. Folding a text to what it looks like in plain letters only finds imitations and never changes a text: a
rare mistake costs nothing where no marker is imitated.

Special and added tokens in untrusted text are matched exactly, since only the literal text becomes the token. Some
tokenizers look for them after folding the text (full-width letters made plain): there their confusables count too. Role
markers that are plain text (`[INST]`, `USER:`) are read off the chat template itself; those with brackets or hashes
count with their confusables.

A chat template comes with the model, and its loops may be endless. transformers runs templates in jinja's sandbox,
which bounds neither time nor memory. Here the lines that a template runs, the memory that the process gains meanwhile
and the length of the text are bounded. A single operation is not interrupted; powers, of which one can take for ever,
are refused. Counting lines slows a rendering down (0.4 instead of 0.01 ms for a short template), so it ends once a
template has rendered 50 conversations, and goes on for those that are longer than all before.
"""

import json
import re
import sys
import time
import tomllib
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import cache, cached_property, lru_cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from types import FrameType
from typing import Any

import psutil
from jinja2 import Environment, TemplateError, TemplateRuntimeError

from judgelm.parsing.thinking import CLOSE, OPEN, Thinking
from judgelm.records import ThinkingMode

_TABLES: dict[str, dict[str, str]] = tomllib.loads(
    Path(__file__).with_name("confusables.toml").read_text(encoding="utf-8")
)
_SIGNS, _LETTERS, _COMPOSED, _OTHERS, _DIGIT_FOR, ROMAN = (
    _TABLES[name] for name in ("signs", "letters", "composed", "others", "digits", "roman")
)
OPENING, CLOSING = "\u27e6", "\u27e7"
"""What every other bracket is folded to: it passes for a square one and for an angle bracket alike."""
_QUOTES = frozenset("\u201a\u201e\u2e42\u301d\u301e\u301f")
"""Quotation marks that Unicode counts as brackets."""
_TABLE = str.maketrans({odd: plain for table in (_SIGNS, _LETTERS) for plain, odds in table.items() for odd in odds})
_FILLERS = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0\ufffc\ufffd")
_DRAWN_BLANK = {"\u2800": " "}
"""The braille pattern without dots is drawn as a blank."""
_HIDDEN = frozenset(("Cf", "Cc", "Cn", "Co", "Cs", "Mc", "Me", "Mn"))

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
_ROMAN_FOR = {str(number): chr(0x215F + number) for number in range(1, 10)}
_MIN_LETTERS = 4
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
        begins = None if exact or not known else _beginnings(known)
        self._begins = None if begins is None else re.compile(f"[{re.escape(begins)}]")
        self._ascii_begins = tuple(filter(str.isascii, begins or ""))
        self._exact = exact

    def __call__(self, text: str) -> tuple[str, int]:
        """The sanitized text and how many markers were found in it."""
        if self._find is None or (self._begins is not None and not self._may_begin(text)):
            return text, 0
        if self._exact or _PLAIN.fullmatch(text):
            return self._find.subn(lambda match: _sanitize(match[0]), text)
        return self._sanitize_folded(text)

    def _may_begin(self, text: str) -> bool:
        """True if a text has the first character of a marker or what looks like it; most have not."""
        assert self._begins is not None
        if text.isascii():  # to look for a few characters one by one is faster than for a set of them
            return any([begin in text for begin in self._ascii_begins])
        return self._begins.search(text) is not None

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


def _beginnings(markers: list[str]) -> str | None:
    """The first characters of all markers, and what looks like them; None where one could be a letter."""
    firsts = {marker[0] for marker in markers}
    if not firsts <= {"[", "#", "<"}:
        return None
    return "".join(first + beginnings(first) for first in sorted(firsts))


def _loose(marker: str) -> str:
    """A pattern for a marker and what looks like it.

    Blanks may stand between its letters. In a marker of several letters any signs may, a digit may stand for a letter,
    and any short text for `{n}`: `[1]` and `[S]` are ordinary text, `[The_End_of_Assistant_One's_Answer]` is not.
    """
    parts = _PART.findall(marker)
    wordy = sum(part.isalpha() for part in parts) >= _MIN_LETTERS
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


MAX_LINES = 200_000
"""Lines of a template in one rendering; a conversation takes some hundreds."""
_MAX_SECONDS = 5.0
_MAX_BYTES = 256 << 20
_CHECKED_EVERY_S = 0.002
_TEXT_ROOM, _TIMES = 100_000, 10
_WATCHED = 50
_FILE = "<template>"  # jinja's name for a template that is no file
_ERRORS = (ValueError, TypeError, ArithmeticError, LookupError, AttributeError, RuntimeError, MemoryError)


_rendered: dict[str, tuple[int, int]] = {}
"""Conversations that each template rendered, and the characters of the longest."""


def render_chat(tokenizer: Any, messages: list[dict[str, Any]], **options: object) -> str:
    """The conversation in the tokenizer's chat template, as one string; `options` go to `apply_chat_template`.

    Raises:
        TemplateError: the template fails or refuses the messages, or needs more than a template may.
        ValueError: the tokenizer has none.
    """
    template = getattr(tokenizer, "chat_template", None)
    if isinstance(template, str) and _has_power(template):
        raise TemplateRuntimeError("it computes a power, which no chat needs")
    given = sum(len(str(message.get("content"))) for message in messages)
    rendered, longest = _rendered.get(str(template), (0, 0))
    try:
        with nullcontext() if rendered >= _WATCHED and given <= longest else _bounded():
            text: str = tokenizer.apply_chat_template(messages, tokenize=False, **options)
    except TemplateError:
        raise
    except _ERRORS as error:
        if template is None:
            raise
        raise TemplateRuntimeError(f"{type(error).__name__}: {error}") from error
    _rendered[str(template)] = (rendered + 1, max(longest, given))
    if len(text) > _TEXT_ROOM + _TIMES * given:
        raise TemplateRuntimeError(f"it makes a text of {len(text):,} characters out of {given:,}")
    return text


@lru_cache(maxsize=64)
def _has_power(template: str) -> bool:
    """True if an expression has `**`, other than before the arguments of a call."""
    before = ""
    for _, kind, value in Environment().lex(template):
        if kind == "operator" and value == "**" and before not in ("(", ","):
            return True
        before = before if kind == "whitespace" else value
    return False


@contextmanager
def _bounded() -> Iterator[None]:
    """Context in which templates of this thread run at most so many lines and gain so much memory.

    Raises:
        TemplateRuntimeError: in the template, at its next line.
    """
    lines, began = 0, time.thread_time()
    memory, check_at = 0, began + _CHECKED_EVERY_S  # memory is read only once a template takes that long

    def on_line(frame: FrameType, event: str, _: object) -> Any:
        nonlocal lines, memory, check_at
        lines += 1
        if lines > MAX_LINES:
            raise TemplateRuntimeError(f"it runs more than {MAX_LINES:,} lines")
        if (now := time.thread_time()) > check_at:
            if now - began > _MAX_SECONDS:
                raise TemplateRuntimeError(f"it takes more than {_MAX_SECONDS:g} seconds")
            now_used = psutil.Process().memory_info().rss
            memory = memory or now_used
            if now_used - memory > _MAX_BYTES:
                raise TemplateRuntimeError(f"it takes more than {_MAX_BYTES >> 20} MB of memory")
            check_at = time.thread_time() + _CHECKED_EVERY_S
        return on_line

    def on_call(frame: FrameType, event: str, _: object) -> Any:
        return on_line if frame.f_code.co_filename == _FILE else None

    tracer = sys.gettrace()
    sys.settrace(on_call)
    try:
        yield
    finally:
        sys.settrace(tracer)


_SENTINELS = ("zq0qz", "zq1qz", "zq2qz", "zq3qz")
_SIGNED = re.compile(
    r"(?<!#)#{2,}+[^\S\n]*\w[\w ]{0,30}:?|<{1,2}[^<>\n]{1,40}>{1,2}|\[[^\[\]\n]{1,40}\]"  # ### User:  <<SYS>>  [/INST]
)
_WORD_BEFORE_CONTENT = re.compile(r"(?<!\w)(\w+:)\s*$")


class SpecialTokenSanitizer:
    """Takes a tokenizer's special tokens out of untrusted text, and in a chat the role markers too.

    Args:
        tokenizer: a transformers fast tokenizer.
    """

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._tokens = special_tokens(tokenizer)
        self._of_tokens = [Sanitizer(self._tokens, exact=True)]
        if folded := {token for token in _found_when_folded(tokenizer) if not token.isalnum()} & self._tokens:
            self._of_tokens.append(Sanitizer(folded))

    def __call__(self, text: str, *, chat: bool) -> tuple[str, int]:
        """The sanitized text, and how many tokens and markers were in it."""
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
    """Special and added tokens; a blank or a plain word that was added to a vocabulary is text like any other."""
    added = (token for token in tokenizer.get_added_vocab() if not token.isspace() and not token.isalnum())
    return {*tokenizer.all_special_tokens, *added}


def role_markers(tokenizer: Any) -> set[str]:
    """Text that the chat template writes around messages and plain text could imitate; empty without a template.

    Found by rendering a conversation: whatever stands in brackets or behind hashes between the messages, and a word
    with a colon right before one.
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
    """Tokens that the tokenizer also finds where a look-alike stands, since it folds the text before it looks."""
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


NO_THINKING = f"\n{CLOSE}\n\n"
"""Ends a block that a chat template has opened, where the judge is not to think."""

_OPENED = re.compile(rf"{OPEN}\s*\Z")


NOT_ASKED = Thinking()


def opening_of(prompt: str) -> str:
    """The opened block, blanks included, that a prompt ends in; empty where it ends in none."""
    match = _OPENED.search(prompt, max(0, len(prompt) - 64))
    return "" if match is None else match[0]


def template_arguments(mode: ThinkingMode) -> dict[str, bool]:
    """Arguments for chat templates: `enable_thinking` (Qwen, GLM, SmolLM), `thinking` (DeepSeek, Granite)."""
    return {} if mode == "absent" else dict.fromkeys(("enable_thinking", "thinking"), mode == "on")
