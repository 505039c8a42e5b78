"""Numbers and words of replies, the same for all dialects."""

import hashlib
import re
from dataclasses import replace
from typing import Literal

from judgelm.dialects.contract import ChatRequest, JudgeResult, JudgeTask
from judgelm.records import Winner

_LOWEST, _HIGHEST = 1.0, 10.0  # the judge's own scale
_LONGEST_REASON = 600  # characters

_MARKUP = re.compile(r"[\[\](){}<>`*#|\\\"$^~_]")
_PHRASES = re.compile(
    r"(?i)\b(?:final\s+(?:decision|verdict|answer|judge?ment|score)|grade|rating|score|result|verdict)\s*(?:is\b|=|:)"
)
_NUMBERS = re.compile(r"\d+(?:[.,/]\d+)*")
_SPACES = re.compile(r"\s+")


def rescale(score: float, scale: tuple[float, float], *, whole: bool = False) -> float:
    """A score in [1, 10] on a client's scale (lowest, highest), linearly.

    Args:
        score: expected or drawn, in [1, 10].
        scale: the client's lowest and highest grade.
        whole: for clients that take whole numbers only; halves go to the even neighbour.
    """
    low, high = scale
    found = round(low + (score - _LOWEST) / (_HIGHEST - _LOWEST) * (high - low), 9)  # 9: no noise of floats at halves
    return float(round(found)) if whole else found


def format_number(number: float, digits: int = 2) -> str:
    """A number without needless zeros: "8", "7.5", "6.33"."""
    text = f"{number:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def winner_of_two(case: JudgeTask, finding: JudgeResult) -> Literal[1, 2]:
    """The better answer for clients that know no tie.

    A tie goes to the likelier one (`first_better`); at exactly 0.5, or where it is not known, to the one whose hash is
    lower, so that the order shown does not matter.
    """
    if finding.winner == 1 or finding.winner == 2:
        return finding.winner
    if finding.first_better is not None and finding.first_better != 0.5:
        return 1 if finding.first_better > 0.5 else 2
    first, second = (digest(answer) for answer in case.sample.answers[:2])
    return 1 if first <= second else 2


def digest(text: str) -> str:
    """A text's hash, to decide what the judge leaves open."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def scores_in_words(finding: JudgeResult) -> str:
    """Such as "Scores: 8.2 and 6.1 out of 10."; empty where there are none."""
    if not finding.scores:
        return ""
    numbers = [format_number(score, 1) for score in finding.scores]
    joined = numbers[0] if len(numbers) == 1 else ", ".join(numbers[:-1]) + " and " + numbers[-1]
    return f"{'Score' if len(numbers) == 1 else 'Scores'}: {joined} out of 10."


def safe_reason(reason: str | None, *, digits: bool = True) -> str:
    """The judge's words on one line, without anything that a parser could read as a verdict.

    Brackets, quotes and markup go, so do colons and phrases that announce a verdict, and all that is longer than 600
    characters.

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


def results_per_reply(asked: ChatRequest, finding: JudgeResult) -> tuple[JudgeResult, ...]:
    """What each of the replies says: of several, one draw each; of one, the finding itself.

    A draw's winner is the answer with the higher score in it; the finding's own words stand in the first reply only.
    """
    if asked.n == 1 or len(finding.draws) < asked.n:
        return (finding,) * asked.n
    drawn = [replace(finding, scores=draw, winner=_higher(draw), reason=None) for draw in finding.draws[: asked.n]]
    return (replace(drawn[0], reason=finding.reason), *drawn[1:])


def _higher(scores: tuple[float, ...]) -> Winner | None:
    if len(scores) != 2:
        return None
    first, second = scores
    return "tie" if first == second else 1 if first > second else 2


def scores_and_reason(finding: JudgeResult, room: int | None) -> str:
    """Scores in words and the judge's reason on one line.

    Args:
        finding: what the judge says.
        room: characters that there are (a token has one at the least), None for any number; what does not fit is left
            out from the end, and nothing remains where the scores do not fit.
    """
    words = scores_in_words(finding)
    if room is not None and len(words) > room:
        return ""
    reason = safe_reason(finding.reason)
    return f"{words} {reason if room is None else reason[: max(0, room - len(words) - 1)]}".strip()


def explanation(finding: JudgeResult, *, digits: bool = True) -> str:
    """What a reply says beside its verdict: the judge's numbers, and its own words where it wrote any; one line.

    Args:
        finding: what the judge says.
        digits: False for clients that look for numbers in the whole text, or want none in the reason.
    """
    parts = [scores_in_words(finding)] if digits else []
    if digits and finding.correct is not None:
        parts.append(f"Fulfilled with probability {format_number(finding.correct)}.")
    parts.append(safe_reason(finding.reason, digits=digits))
    return " ".join(part for part in parts if part) or "Judged as a whole."


def expected_grade(finding: JudgeResult) -> float:
    """The one answer's expected score, in [1, 10].

    Raises:
        ValueError: neither `scores` nor `grades` are there.
    """
    if finding.scores:
        return finding.scores[0]
    if not finding.grades:
        raise ValueError("a grade needs scores or grades")
    return sum(score * share for score, share in finding.grades) / sum(share for _, share in finding.grades)
