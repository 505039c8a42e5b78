"""Replies in the form that clients want: verdicts, words beside them, probabilities and JSON."""

import json
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from judgelm.dialects.contract import ChatRequest, JudgeResult, JudgeTask, Render, Reply, TokenLogprobs, digest
from judgelm.records import Winner

_LOWEST, _HIGHEST = 1.0, 10.0  # the judge's own scale
_APART = 0.1  # between scores that would contradict the winner


def each_reply(text: Callable[[JudgeTask, ChatRequest, JudgeResult], str]) -> Render:
    """A `Dialect.render` that writes the text of each reply from a result of its own, see `results_per_reply`."""

    def render(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> Reply:
        return Reply(texts=tuple([text(task, request, drawn) for drawn in results_per_reply(request, result)]))

    return render


def same_reply(text: Callable[[JudgeTask, JudgeResult], str]) -> Render:
    """A `Dialect.render` that gives every reply the same text."""
    return lambda task, request, result: Reply(texts=(text(task, result),) * request.n)


def results_per_reply(request: ChatRequest, result: JudgeResult) -> tuple[JudgeResult, ...]:
    """The result behind each reply: one draw each of several replies; the result itself of one.

    A draw's winner is the answer with the higher score in it. The judge's own words stand in the first reply only.
    """
    if request.n == 1 or len(result.draws) < request.n:
        return (result,) * request.n
    drawn = [replace(result, scores=draw, winner=_higher(draw), reason=None) for draw in result.draws[: request.n]]
    return (replace(drawn[0], reason=result.reason), *drawn[1:])


def _higher(scores: tuple[float, ...]) -> Winner | None:
    if len(scores) != 2:
        return None
    first, second = scores
    return "tie" if first == second else 1 if first > second else 2


def rescale(score: float, scale: tuple[float, float], *, whole: bool = False) -> float:
    """A score in [1, 10] on a client's scale (lowest, highest), linearly.

    Args:
        score: expected or drawn, in [1, 10].
        scale: the client's lowest and highest grade.
        whole: for clients that take whole numbers only; halves go to the even neighbour.
    """
    low, high = scale
    rescaled = round(low + (score - _LOWEST) / (_HIGHEST - _LOWEST) * (high - low), 9)  # no noise of floats at halves
    return float(round(rescaled)) if whole else rescaled


def expected_grade(result: JudgeResult) -> float:
    """The expected score of the one answer, in [1, 10].

    Raises:
        ValueError: there are neither `scores` nor `grades`.
    """
    if result.scores:
        return result.scores[0]
    if not result.grades:
        raise ValueError("a grade needs scores or grades")
    return sum(score * share for score, share in result.grades) / sum(share for _, share in result.grades)


def grade_text(result: JudgeResult, scale: tuple[float, float] | None, *, whole: bool = False) -> str:
    """The expected grade on a client's scale, as text."""
    assert scale is not None, "a grade has a scale"
    return format_number(rescale(expected_grade(result), scale, whole=whole))


def winner_of_two(task: JudgeTask, result: JudgeResult) -> Literal[1, 2]:
    """The better answer for clients without ties.

    A tie goes to the likelier answer (`first_better`); at exactly 0.5, or where it is not known, to the answer with the
    lower hash, so that the order shown does not matter.
    """
    if result.winner == 1 or result.winner == 2:
        return result.winner
    if result.first_better is not None and result.first_better != 0.5:
        return 1 if result.first_better > 0.5 else 2
    first, second = (digest(answer) for answer in task.sample.answers[:2])
    return 1 if first <= second else 2


def winner_name(first: str, second: str) -> Callable[[JudgeTask, ChatRequest, JudgeResult], str]:
    """A function that returns the name of the better answer, for clients without ties."""
    return lambda task, request, result: first if winner_of_two(task, result) == 1 else second


def winner_with_ties(task: JudgeTask, result: JudgeResult, *, ties: bool = True) -> Winner:
    """The winner or a tie; `winner_of_two` for a client without ties."""
    return "tie" if ties and result.winner == "tie" else winner_of_two(task, result)


def winner_sentence(task: JudgeTask, result: JudgeResult, *, ties: bool = True) -> str:
    """One sentence on who is better, for replies whose scores stand elsewhere."""
    winner = winner_with_ties(task, result, ties=ties)
    return "Both assistants are equally good." if winner == "tie" else f"Assistant {winner} is better."


def consistent_scores(task: JudgeTask, result: JudgeResult, *, ties: bool = True) -> tuple[str, str]:
    """The expected scores, of which the winner has the higher one as the client reads them.

    The winner is judged separately: where expected scores contradict it, both become their mean, 0.1 apart for a
    winner.
    """
    first, second = (round(score, 2) for score in result.scores)
    winner = winner_with_ties(task, result, ties=ties)
    if (first == second) if winner == "tie" else ((first > second) if winner == 1 else (first < second)):
        return format_number(first), format_number(second)
    middle = round((first + second) / 2, 2)
    if winner == "tie":
        return format_number(middle), format_number(middle)
    lower = min(max(middle - _APART / 2, _LOWEST), _HIGHEST - _APART)
    pair = format_number(lower + _APART), format_number(lower)
    return pair if winner == 1 else (pair[1], pair[0])


def best_answer(task: JudgeTask, result: JudgeResult) -> int:
    """Index of the best of three or more answers, from 0; of equally good answers that with the lowest hash."""
    highest = max(result.scores)
    best = [index for index, score in enumerate(result.scores) if score == highest]
    return min(best, key=lambda index: digest(task.sample.answers[index]))


def is_fulfilled(result: JudgeResult) -> bool:
    """True where the one answer is correct or fulfils the criterion, with a probability of 0.5 or more."""
    probability = result.correct if result.correct is not None else rescale(expected_grade(result), (0.0, 1.0))
    return probability >= 0.5


_LONGEST_REASON = 600  # characters

_MARKUP = re.compile(r"[\[\](){}<>`*#|\\\"$^~_]")
_PHRASES = re.compile(
    r"(?i)\b(?:final\s+(?:decision|verdict|answer|judge?ment|score)|grade|rating|score|result|verdict)\s*(?:is\b|=|:)"
)
_NUMBERS = re.compile(r"\d+(?:[.,/]\d+)*")
_SPACES = re.compile(r"\s+")


def json_text(row: Mapping[str, object]) -> str:
    """Return `row` as JSON with non-ASCII characters unescaped."""
    return json.dumps(row, ensure_ascii=False)


def format_number(value: float, digits: int = 2) -> str:
    """A number without needless zeros: "8", "7.5", "6.33"."""
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


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


def reason_and_verdict(
    request: ChatRequest,
    result: JudgeResult,
    verdict: str,
    layout: str = "{words}\n\n{verdict}",
    *,
    otherwise: str = "",
    taken: int | None = None,
) -> str:
    """A verdict with scores and a reason beside it, as far as the reply has room.

    Args:
        request: its `max_tokens` limit the reply.
        result: the judge's.
        verdict: never cut.
        layout: where each of the two goes.
        otherwise: words where there is no room for the scores; empty gives the verdict alone.
        taken: characters beside the words; None counts those of the layout.
    """
    room = room_for_words(request, len(layout.format(words="", verdict=verdict)) if taken is None else taken)
    words = scores_and_reason(result, room) or otherwise
    return layout.format(words=words, verdict=verdict) if words else verdict


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


_LEAST_LOGPROB = -100.0
_PIECES = re.compile(r"\s*[^\W\d_]+|\s*\d|\s*[^\w\s]|\s*_|\s+")


def probability_first(result: JudgeResult) -> float:
    """P(the answer shown first is better); from the winner alone where the distribution is not known."""
    if result.first_better is not None:
        return result.first_better
    if result.winner == 1:
        return 1.0
    return 0.0 if result.winner == 2 else 0.5


def likelier_answer(task: JudgeTask, result: JudgeResult) -> int:
    """1 or 2: the answer with the greater probability, as clients conclude from log-probabilities."""
    return winner_of_two(task, replace(result, winner="tie", first_better=probability_first(result)))


def verdict_logprobs(
    text: str, verdict: str, probabilities: Mapping[str, float], most: int
) -> tuple[TokenLogprobs, ...]:
    """Tokens of a text that ends in its verdict, the verdict a token of its own.

    Args:
        text: ends in `verdict`; everything before it was certain.
        verdict: one of `probabilities`.
        probabilities: of each possible verdict, in [0, 1].
        most: number of candidates wanted at each position.
    """
    before = [
        TokenLogprobs(token=piece, logprob=0.0, candidates=((piece, 0.0),)[:most])
        for piece in _PIECES.findall(text[: len(text) - len(verdict)])
    ]
    logprobs = {token: safe_log(probability) for token, probability in probabilities.items()}
    ranked = sorted(logprobs.items(), key=lambda candidate: -candidate[1])
    return (*before, TokenLogprobs(token=verdict, logprob=logprobs[verdict], candidates=tuple(ranked[:most])))


def safe_log(probability: float) -> float:
    """Natural log of a probability, at least -100."""
    return max(math.log(probability), _LEAST_LOGPROB) if probability > 0 else _LEAST_LOGPROB
