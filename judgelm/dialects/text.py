"""Numbers and words of replies, the same for all dialects."""

import hashlib
import re

from judgelm.dialects.contract import ChatRequest, JudgeResult

_LONGEST_REASON = 600  # characters

_MARKUP = re.compile(r"[\[\](){}<>`*#|\\\"$^~_]")
_PHRASES = re.compile(
    r"(?i)\b(?:final\s+(?:decision|verdict|answer|judge?ment|score)|grade|rating|score|result|verdict)\s*(?:is\b|=|:)"
)
_NUMBERS = re.compile(r"\d+(?:[.,/]\d+)*")
_SPACES = re.compile(r"\s+")


def format_number(value: float, digits: int = 2) -> str:
    """A number without needless zeros: "8", "7.5", "6.33"."""
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def digest(text: str) -> str:
    """A text's hash, to decide what the judge leaves open."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def scores_in_words(result: JudgeResult) -> str:
    """Such as "Scores: 8.2 and 6.1 out of 10."; empty where there are none."""
    if not result.scores:
        return ""
    numbers = [format_number(score, 1) for score in result.scores]
    joined = numbers[0] if len(numbers) == 1 else ", ".join(numbers[:-1]) + " and " + numbers[-1]
    return f"{'Score' if len(numbers) == 1 else 'Scores'}: {joined} out of 10."


def safe_reason(reason: str | None, *, digits: bool = True) -> str:
    """The judge's words on one line, without anything that a parser could read as a verdict.

    Brackets, quotes and markup are removed, and so are colons, phrases that announce a verdict, and all characters
    after the first 600.

    Args:
        reason: the judge's own words, or None.
        digits: False for clients that look for numbers in the whole text.
    """
    if reason is None:
        return ""
    text = _MARKUP.sub(" ", reason)
    if not digits:
        text = _NUMBERS.sub(" ", text)
    text = _SPACES.sub(" ", text).strip()[:_LONGEST_REASON]
    while _PHRASES.search(text):  # what is left may be one again
        text = _SPACES.sub(" ", _PHRASES.sub(" ", text))
    return text.replace(":", ",").strip()


def room_for_words(request: ChatRequest, taken: int) -> int | None:
    """Characters that a reply has room for beside `taken` others; None for any number. A token has one at the least."""
    return None if request.max_tokens is None else max(0, request.max_tokens - taken)


def scores_and_reason(result: JudgeResult, room: int | None) -> str:
    """Scores in words and the judge's reason on one line.

    Args:
        result: the judge's.
        room: characters that there are, None for any number; what does not fit is left out from the end, and nothing
            remains where the scores do not fit.
    """
    words = scores_in_words(result)
    if room is not None and len(words) > room:
        return ""
    reason = safe_reason(result.reason)
    return f"{words} {reason if room is None else reason[: max(0, room - len(words) - 1)]}".strip()


def explanation(result: JudgeResult, *, digits: bool = True) -> str:
    """The text beside a verdict: the judge's numbers, and its own words where it wrote any; one line.

    Args:
        result: the judge's.
        digits: False for clients that look for numbers in the whole text, or want none in the reason.
    """
    parts = [scores_in_words(result)] if digits else []
    if digits and result.correct is not None:
        parts.append(f"Fulfilled with probability {format_number(result.correct)}.")
    parts.append(safe_reason(result.reason, digits=digits))
    return " ".join(part for part in parts if part) or "Judged as a whole."


def words_and_verdict(request: ChatRequest, words: str, verdict: str, layout: str = "{words}\n\n{verdict}") -> str:
    """A verdict and words beside it, as far as the reply has room; the verdict alone where it has none for words.

    Args:
        request: its `max_tokens` limit the reply; a token has one character at the least.
        words: cut at their end where they are too long.
        verdict: never cut.
        layout: where each of the two goes.
    """
    bare = layout.format(words="", verdict=verdict)
    words = words[: room_for_words(request, len(bare))].rstrip()
    return layout.format(words=words, verdict=verdict) if words else verdict
