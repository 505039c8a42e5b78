"""A tokenizer's chat template: rendered within bounds, its role markers, and its arguments for thinking.

The template comes with the model, and its loops may be endless. transformers runs templates in jinja's sandbox, which
bounds neither time nor memory. Here the lines that a template runs, the memory that the process gains meanwhile and the
length of the text are bounded. A single operation is not interrupted; powers, of which one can take for ever, are
refused. Counting lines slows a rendering down (0.4 instead of 0.01 ms for a short template), so it ends once a template
has rendered 50 conversations, and goes on for those that are longer than all before.

Special and added tokens in untrusted text are matched exactly, since only the literal text becomes the token. Some
tokenizers look for them after folding the text (full-width letters made plain): there their confusables count too. Role
markers that are plain text (`[INST]`, `USER:`) are read off the chat template itself; those with brackets or hashes
count with their confusables.
"""

import re
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import cached_property, lru_cache
from types import FrameType
from typing import Any

import psutil
from jinja2 import Environment, TemplateError, TemplateRuntimeError

from judgelm.parsing.thinking import CLOSE, OPEN, Thinking
from judgelm.prompts.sanitization import Sanitizer
from judgelm.records import ThinkingMode

MOST_LINES = 200_000
"""Lines of a template in one rendering; a conversation takes some hundreds."""
_MOST_SECONDS = 5.0
_MOST_BYTES = 256 << 20
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
        if lines > MOST_LINES:
            raise TemplateRuntimeError(f"it runs more than {MOST_LINES:,} lines")
        if (now := time.thread_time()) > check_at:
            if now - began > _MOST_SECONDS:
                raise TemplateRuntimeError(f"it takes more than {_MOST_SECONDS:g} seconds")
            now_used = psutil.Process().memory_info().rss
            memory = memory or now_used
            if now_used - memory > _MOST_BYTES:
                raise TemplateRuntimeError(f"it takes more than {_MOST_BYTES >> 20} MB of memory")
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
