"""Special and added tokens of a tokenizer, and the role markers of its chat template, in untrusted text.

Special tokens are matched exactly, since only the literal text becomes the token. Some tokenizers look for them after
folding the text (full-width letters made plain): there their look-alikes count too. Role markers that are plain text
(`[INST]`, `USER:`) are read off the chat template itself; those with brackets or hashes count with their look-alikes.
"""

import re
from collections.abc import Iterator
from functools import cached_property
from typing import Any

from jinja2 import TemplateError

from judgelm.prompts.chat_templates import render_chat
from judgelm.prompts.sanitization import Sanitizer

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
