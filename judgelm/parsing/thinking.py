"""Thinking models' replies: a `<think>` block that precedes the reply is separated from it.

`judgelm.modes.thinking` separates every reply once, before any mode or parser reads it. Engines return a reply with the
block's opening, even where the chat template wrote it into the prompt (`judgelm.prompts.thinking.opening_of`), so that
a block without an end is always recognised.
"""

import re
from typing import NamedTuple

OPEN, CLOSE = "<think>", "</think>"
_BARE_CLOSE = re.compile(rf"^[ \t]*{CLOSE}|{CLOSE}[ \t]*$", re.MULTILINE)
_BLANK = re.compile(r"\s*")


class Separated(NamedTuple):
    """A reply taken apart: `block + reply` is all of it.

    Attributes:
        block: everything before the reply, tags and blanks included; empty where there is no thinking.
        thinking: what stands in the block; None where it says nothing.
        reply: what is left for a parser.
        closed: whether the thinking has an end; without one there is no reply.
    """

    block: str
    thinking: str | None
    reply: str
    closed: bool = True


def separate(text: str, *, bare: bool = True) -> Separated:
    """Take the thinking off a reply.

    A reply that begins with `<think>` is thinking up to `</think>`; several such blocks in a row are all thinking.

    Args:
        text: the reply.
        bare: whether a reply that does not begin with `<think>` is thinking up to a `</think>` that begins or ends its
            line: a server's chat template may have opened the block. A tag within a line is a quotation, since a judge
            may speak of what an answer holds.
    """
    position = _after_blanks(text, 0)
    parts: list[str] = []
    if bare and CLOSE in text and not text.startswith(OPEN, position) and (close := _BARE_CLOSE.search(text)):
        parts.append(text[: close.start()])
        position = _after_blanks(text, close.end())
    while text.startswith(OPEN, position):
        end = text.find(CLOSE, position)
        if end < 0:
            parts.append(text[position + len(OPEN) :])
            return Separated(text, _joined(parts), "", closed=False)
        parts.append(text[position + len(OPEN) : end])
        position = _after_blanks(text, end + len(CLOSE))
    return Separated(text[:position], _joined(parts), text[position:]) if parts else Separated("", None, text)


def reply_so_far(text: str) -> str:
    """The part of an unfinished reply that is not thinking."""
    begun = text.lstrip()
    return "" if len(begun) < len(OPEN) and OPEN.startswith(begun) else separate(text, bare=False).reply


def _after_blanks(text: str, position: int) -> int:
    blanks = _BLANK.match(text, position)
    assert blanks is not None, "it matches nothing too"
    return blanks.end()


def _joined(parts: list[str]) -> str | None:
    return "\n\n".join(stripped for part in parts if (stripped := part.strip())) or None
