"""Separate a model's thinking from the reply that follows it.

Three formats are supported: `<think> ... </think>`, Mistral's `[THINK] ... [/THINK]`, and Harmony's channels with or
without special tokens (`analysis ... assistantfinal`).
"""

import re
from dataclasses import dataclass
from typing import NamedTuple

from judgelm.records import ThinkingMode

OPEN, CLOSE = "<think>", "</think>"
_TAGS = ((OPEN, CLOSE), ("[THINK]", "[/THINK]"))
_BLANK = re.compile(r"\s*")
_MARK = re.compile(r"[<\[]|\A\s*(?:analysis|final)")
"""Replies that do not match contain no thinking."""

_CONTEXT = 200
_SENTENCE_ENDS = ".!?…。！？)]}*_>|"
_QUOTES = "\"'`“”‘’«»"

_BEGUN = ("<|start|>assistant", "<|channel|>", "analysis<|message|>")
_CHANNELS = re.compile(rf"\s*(?:{'|'.join(map(re.escape, _BEGUN))})")
_FINAL = re.compile(
    r"(?:\A\s*|<\|start\|>assistant\s*)<\|channel\|>final\b[^<\n]{0,60}(?:<\|constrain\|>[^<\n]{0,40})?<\|message\|>"
)
_MESSAGE = re.compile(
    r"(?:<\|(?:end|call|return)\|>\s*)?(?:<\|start\|>[^<\n]{0,60})?(?:<\|channel\|>)?[a-z]{0,20}[^<\n]{0,60}<\|message\|>"
    r"|<\|(?:end|call|return|start)\|>"
)
_ENDS = ("<|return|>", "<|end|>", "<|call|>")
_STRIPPED = re.compile(r"\s*analysis(?=[^\s:.,;!?)\]}'’\"-])")
_STRIPPED_FINAL = "assistantfinal"
_STRIPPED_ONLY = re.compile(r"\s*final(?=[A-Z0-9\[<*])")
_STRIPPED_NEXT = re.compile("assistant(?:analysis|commentary)")


class Separated(NamedTuple):
    """A reply and its thinking. `block + reply` is the whole text, except for a channel's end marker.

    Attributes:
        block: everything before the reply, including tags and whitespace; empty if there is no thinking.
        thinking: the text inside the block; None if it is empty.
        reply: the remaining text.
        closed: False if the thinking does not end, so that there is no reply.
    """

    block: str
    thinking: str | None
    reply: str
    closed: bool = True


def separate(text: str, *, bare: bool = True) -> Separated:
    """Separate the thinking from the reply.

    The thinking ends at the last closing tag at the start or end of a line, or at the end of a sentence. A tag within a
    sentence is treated as a quotation from an answer.

    Args:
        text: the reply.
        bare: accept thinking without an opening tag, which may already be in the server's chat template.
    """
    if not _MARK.search(text):
        return Separated("", None, text)  # the usual case
    begin = _after_blanks(text, 0)
    opened = [tags for tags in _TAGS if text.startswith(tags[0], begin)]
    if not opened and (channels := _separate_channels(text, bare=bare)) is not None:
        return channels
    for opening, closing in opened or (_TAGS if bare else ()):
        close = _last_close(text, closing)
        inside = begin + len(opening) if opened else 0
        end = None if close is None else _after_blanks(text, close + len(closing))
        if end is not None and not text.startswith(opening, end):
            return Separated(text[:end], _joined(_between(text[inside:close], opening, closing)), text[end:])
        if opened:
            return Separated(text, _joined(_between(text[inside:], opening, closing)), "", closed=False)
    return Separated("", None, text)


def reply_so_far(text: str) -> str:
    """Return the part of an unfinished reply that is not thinking."""
    begun = text.lstrip()
    openings = (*(opening for opening, _ in _TAGS), *_BEGUN)
    if begun == "analysis" or any(len(begun) < len(opening) and opening.startswith(begun) for opening in openings):
        return ""
    return separate(text, bare=False).reply


def _last_close(text: str, closing: str) -> int | None:
    start = text.rfind(closing)
    while start >= 0 and not _ends_block(text, start, start + len(closing)):
        start = text.rfind(closing, 0, start)
    return start if start >= 0 else None


def _ends_block(text: str, start: int, end: int) -> bool:
    before = text[max(0, start - _CONTEXT) : start].rpartition("\n")[2]
    behind = text[end : end + _CONTEXT]
    said, follows = before.rstrip(), behind.lstrip()
    if not said:
        return True
    if said[-1] in _QUOTES or behind.lstrip(" \t")[:1] in (*_QUOTES, ",", ";", ":", ")"):
        return False
    if said[-1] in _SENTENCE_ENDS or (follows.startswith("<") and not follows.startswith(CLOSE)):
        return True
    # the tag directly follows the last word and precedes a line end or a new sentence, as in "so 8 6</think>"
    return before == said and said[-1] not in ",;:(" and not behind.lstrip(" \t")[:1].islower()


def _between(text: str, opening: str, closing: str) -> list[str]:
    return re.split(rf"{re.escape(closing)}\s*{re.escape(opening)}", text)


def _separate_channels(text: str, *, bare: bool) -> Separated | None:
    begun = _CHANNELS.match(text)
    if begun is None and (stripped := _separate_stripped(text)) is not None:
        return stripped
    finals = list(_FINAL.finditer(text)) if "<|message|>" in text and (bare or begun) else []
    if begun is None and not finals:
        return None
    start, end = finals[-1].span() if finals else (len(text), len(text))
    reply = text[end:]
    for mark in _ENDS:
        reply = reply.removesuffix(mark)
    return Separated(text[:end], _joined(_MESSAGE.split(text[:start])), reply, closed=bool(finals))


def _separate_stripped(text: str) -> Separated | None:
    start = text.rfind(_STRIPPED_FINAL) if text.lstrip().startswith("analysis") else -1
    if start < 0 and _STRIPPED.match(text) is None:
        only = _STRIPPED_ONLY.match(text)
        return None if only is None else Separated(text[: only.end()], None, text[only.end() :])
    inside = text.index("analysis") + len("analysis")
    end = len(text) if start < 0 else start + len(_STRIPPED_FINAL)
    thinking = _joined(_STRIPPED_NEXT.split(text[inside : len(text) if start < 0 else start]))
    return Separated(text[:end], thinking, text[end:], closed=start >= 0)


def _after_blanks(text: str, position: int) -> int:
    blanks = _BLANK.match(text, position)
    assert blanks is not None, "the pattern also matches an empty string"
    return blanks.end()


def _joined(parts: list[str]) -> str | None:
    return "\n\n".join(stripped for part in parts if (stripped := part.strip())) or None


@dataclass(frozen=True, slots=True, kw_only=True)
class Thinking:
    """An engine's thinking settings.

    Attributes:
        mode: thinking argument for the chat template.
        max_tokens: token limit for the thinking, in addition to the reply's limit.
        resumes: whether the engine can continue after thinking that is included in the request. The reply is then
            generated by a second request with separate stop strings, grammar, candidates, and prefill.
    """

    mode: ThinkingMode = "absent"
    max_tokens: int = 4096
    resumes: bool = False

    def within(self, window: int | None) -> "Thinking":
        """Return these settings with thinking limited to half of the judge's window."""
        if window is None or self.max_tokens <= window // 2:
            return self
        return Thinking(mode=self.mode, max_tokens=max(1, window // 2), resumes=self.resumes)

    def described(self) -> dict[str, dict[str, str | int]]:
        """Return the entry for the manifest; empty for mode `absent`."""
        return {} if self.mode == "absent" else {"thinking": {"asked": self.mode, "max_tokens": self.max_tokens}}


NOT_ASKED = Thinking()
"""Settings for engines that do not pass a thinking argument to the chat template."""
