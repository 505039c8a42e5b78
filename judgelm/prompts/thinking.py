"""The thinking of reasoning models: a `<think>` block that stands before the reply and is no part of it.

Every reply is separated here, once, before any mode or parser sees it (`judgelm.modes.thinking`). Engines give a reply
with the block's opening, also where the chat template wrote that into the prompt (`opening_of`), so that a block that
was begun and has no end is always seen as one.
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

from judgelm.records import ThinkingMode

OPEN, CLOSE = "<think>", "</think>"
SKIPPED = f"\n{CLOSE}\n\n"
"""Ends a block that a chat template has opened, where the judge is not to think."""

_OPENED = re.compile(rf"{OPEN}\s*\Z")
_BARE_CLOSE = re.compile(rf"^[ \t]*{CLOSE}|{CLOSE}[ \t]*$", re.MULTILINE)
_BLANK = re.compile(r"\s*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """How an engine's judge thinks.

    Attributes:
        asked: what its chat template is told.
        max_tokens: room for the thinking, beside the room that each mode gives the reply.
        resumes: whether the engine knows the prompt as the model reads it and lets a reply go on behind thinking that
            stands there. Then a judge that is asked to think writes its thinking first, up to its end, and the reply
            in a request of its own, with the reply's own stop strings, grammar, candidates and forced beginning.
    """

    asked: ThinkingMode = "absent"
    max_tokens: int = 4096
    resumes: bool = False

    def within(self, window: int | None) -> "Thinking":
        """At most half of the judge's window is for thinking."""
        if window is None or self.max_tokens <= window // 2:
            return self
        return Thinking(asked=self.asked, max_tokens=max(1, window // 2), resumes=self.resumes)

    def described(self) -> dict[str, dict[str, str | int]]:
        """For the manifest; nothing where nobody asked for anything."""
        return {} if self.asked == "absent" else {"thinking": {"asked": self.asked, "max_tokens": self.max_tokens}}


NOT_ASKED = Thinking()


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
    place = _after_blanks(text, 0)
    parts: list[str] = []
    if bare and CLOSE in text and not text.startswith(OPEN, place) and (close := _BARE_CLOSE.search(text)):
        parts.append(text[: close.start()])
        place = _after_blanks(text, close.end())
    while text.startswith(OPEN, place):
        end = text.find(CLOSE, place)
        if end < 0:
            parts.append(text[place + len(OPEN) :])
            return Separated(text, _joined(parts), "", closed=False)
        parts.append(text[place + len(OPEN) : end])
        place = _after_blanks(text, end + len(CLOSE))
    return Separated(text[:place], _joined(parts), text[place:]) if parts else Separated("", None, text)


def reply_so_far(text: str) -> str:
    """What of an unfinished reply is no thinking."""
    begun = text.lstrip()
    return "" if len(begun) < len(OPEN) and OPEN.startswith(begun) else separate(text, bare=False).reply


def opening_of(prompt: str) -> str:
    """The opened block, blanks included, that a prompt ends in; empty where it ends in none."""
    found = _OPENED.search(prompt, max(0, len(prompt) - 64))
    return "" if found is None else found[0]


def template_arguments(asked: ThinkingMode) -> dict[str, bool]:
    """What chat templates are told: `enable_thinking` (Qwen, GLM, SmolLM), `thinking` (DeepSeek, Granite)."""
    return {} if asked == "absent" else dict.fromkeys(("enable_thinking", "thinking"), asked == "on")


def _after_blanks(text: str, place: int) -> int:
    found = _BLANK.match(text, place)
    assert found is not None, "it matches nothing too"
    return found.end()


def _joined(parts: list[str]) -> str | None:
    return "\n\n".join(stripped for part in parts if (stripped := part.strip())) or None
