"""Building blocks for replies: verdicts, explanations, and probabilities."""

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Literal

from judgelm.dialects.contract import ChatRequest, JudgeResult, JudgeTask, Render, Reply, ReplyText, digest
from judgelm.records import TokenLogprobs, Winner

_LOWEST, _HIGHEST = 1.0, 10.0  # the scale of `JudgeResult`
_MARGIN = 0.1  # difference to set if the scores contradict the winner


def each_reply(text: ReplyText) -> Render:
    """Return a `Dialect.render` that renders each reply from a separate draw."""

    def render(task: JudgeTask, request: ChatRequest, result: JudgeResult) -> Reply:
        return Reply(texts=tuple([text(task, request, drawn) for drawn in results_per_reply(request, result)]))

    return render


def same_reply(text: Callable[[JudgeTask, JudgeResult], str]) -> Render:
    """Return a `Dialect.render` that renders the same text for all replies."""
    return lambda task, request, result: Reply(texts=(text(task, result),) * request.n)


def results_per_reply(request: ChatRequest, result: JudgeResult) -> tuple[JudgeResult, ...]:
    """Return a draw for each reply, or copies of the result if there are too few draws."""
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
    """Rescale a score from [1, 10] to the client's scale. `whole` rounds it to an integer (halves to even)."""
    low, high = scale
    rescaled = round(low + (score - _LOWEST) / (_HIGHEST - _LOWEST) * (high - low), 9)  # avoid float noise at halves
    return float(round(rescaled)) if whole else rescaled


def expected_grade(result: JudgeResult) -> float:
    """Return the expected score of a single answer, from 1 to 10."""
    if result.scores:
        return result.scores[0]
    if not result.grades:
        raise ValueError("the result has neither scores nor grades")
    return sum(score * share for score, share in result.grades) / sum(share for _, share in result.grades)


def grade_text(result: JudgeResult, scale: tuple[float, float] | None, *, whole: bool = False) -> str:
    """Format the expected grade on the client's scale."""
    assert scale is not None, "grade tasks have a scale"
    return format_number(rescale(expected_grade(result), scale, whole=whole))


def winner_of_two(task: JudgeTask, result: JudgeResult) -> Literal[1, 2]:
    """Return the better answer. Ties are broken by probability, then by the hash of the answers."""
    if result.winner == 1 or result.winner == 2:
        return result.winner
    if result.first_better is not None and result.first_better != 0.5:
        return 1 if result.first_better > 0.5 else 2
    first, second = (digest(answer) for answer in task.sample.answers[:2])
    return 1 if first <= second else 2


def winner_name(first: str, second: str) -> ReplyText:
    """Return a function that returns the name of the better answer."""
    return lambda task, request, result: first if winner_of_two(task, result) == 1 else second


def winner_with_ties(task: JudgeTask, result: JudgeResult, *, ties: bool = True) -> Winner:
    """Return the winner. If `ties` is False, ties are broken as in `winner_of_two`."""
    return "tie" if ties and result.winner == "tie" else winner_of_two(task, result)


def winner_sentence(task: JudgeTask, result: JudgeResult, *, ties: bool = True) -> str:
    """Return a sentence that names the winner."""
    winner = winner_with_ties(task, result, ties=ties)
    return "Both assistants are equally good." if winner == "tie" else f"Assistant {winner} is better."


def consistent_scores(task: JudgeTask, result: JudgeResult, *, ties: bool = True) -> tuple[str, str]:
    """Return the expected scores, adjusted if they contradict the winner."""
    first, second = (round(score, 2) for score in result.scores)
    winner = winner_with_ties(task, result, ties=ties)
    if (first == second) if winner == "tie" else ((first > second) if winner == 1 else (first < second)):
        return format_number(first), format_number(second)
    middle = round((first + second) / 2, 2)
    if winner == "tie":
        return format_number(middle), format_number(middle)
    lower = min(max(middle - _MARGIN / 2, _LOWEST), _HIGHEST - _MARGIN)
    pair = format_number(lower + _MARGIN), format_number(lower)
    return pair if winner == 1 else (pair[1], pair[0])


def best_answer(task: JudgeTask, result: JudgeResult) -> int:
    """Return the index of the best answer. Ties are broken by hash."""
    highest = max(result.scores)
    best = [index for index, score in enumerate(result.scores) if score == highest]
    return min(best, key=lambda index: digest(task.sample.answers[index]))


def is_fulfilled(result: JudgeResult) -> bool:
    """Return whether the answer is correct or meets the criterion."""
    probability = result.correct if result.correct is not None else rescale(expected_grade(result), (0.0, 1.0))
    return probability >= 0.5


_MAX_REASON = 600  # characters
_MARKUP = re.compile(r"[\[\](){}<>`*#|\\\"$^~_]")
_PHRASES = re.compile(
    r"(?i)\b(?:final\s+(?:decision|verdict|answer|judge?ment|score)|grade|rating|score|result|verdict)\s*(?:is\b|=|:)"
)
_NUMBERS = re.compile(r"\d+(?:[.,/]\d+)*")
_SPACES = re.compile(r"\s+")


def format_number(value: float, digits: int = 2) -> str:
    """Format a number without trailing zeros: "8", "7.5", "6.33"."""
    text = f"{value:.{digits}f}"
    return text.rstrip("0").rstrip(".") if "." in text else text


def scores_in_words(result: JudgeResult) -> str:
    """Format the scores, for example "Scores: 8.2 and 6.1 out of 10."."""
    if not result.scores:
        return ""
    numbers = [format_number(score, 1) for score in result.scores]
    joined = numbers[0] if len(numbers) == 1 else ", ".join(numbers[:-1]) + " and " + numbers[-1]
    return f"{'Score' if len(numbers) == 1 else 'Scores'}: {joined} out of 10."


def safe_reason(reason: str | None, *, digits: bool = True) -> str:
    """Return the reason on one line, without anything that a parser could mistake for a verdict."""
    if reason is None:
        return ""
    text = _MARKUP.sub(" ", reason)
    if not digits:
        text = _NUMBERS.sub(" ", text)
    text = _SPACES.sub(" ", text).strip()[:_MAX_REASON]
    while _PHRASES.search(text):  # removing a phrase may create a new one
        text = _SPACES.sub(" ", _PHRASES.sub(" ", text))
    return text.replace(":", ",").strip()


def room_for_words(request: ChatRequest, taken: int) -> int | None:
    """Return how many characters still fit into `max_tokens`, at one token per character, or None if unlimited."""
    return None if request.max_tokens is None else max(0, request.max_tokens - taken)


def scores_and_reason(result: JudgeResult, room: int | None) -> str:
    """Return the scores and the reason on a single line of at most `room` characters."""
    words = scores_in_words(result)
    if room is not None and len(words) > room:
        return ""
    reason = safe_reason(result.reason)
    return f"{words} {reason if room is None else reason[: max(0, room - len(words) - 1)]}".strip()


def explanation(result: JudgeResult, *, digits: bool = True) -> str:
    """Return the scores and the reason on a single line. If `digits` is False, omit all numbers."""
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
    """Return a verdict with the scores and a reason, truncated to fit into `max_tokens`.

    `otherwise` replaces scores that do not fit. `taken` is the length of the rest of the reply.
    """
    room = room_for_words(request, len(layout.format(words="", verdict=verdict)) if taken is None else taken)
    words = scores_and_reason(result, room) or otherwise
    return layout.format(words=words, verdict=verdict) if words else verdict


def words_and_verdict(request: ChatRequest, words: str, verdict: str, layout: str = "{words}\n\n{verdict}") -> str:
    """Return a verdict with an explanation, truncated to fit into `max_tokens`."""
    bare = layout.format(words="", verdict=verdict)
    words = words[: room_for_words(request, len(bare))].rstrip()
    return layout.format(words=words, verdict=verdict) if words else verdict


_MIN_LOGPROB = -100.0
_PIECES = re.compile(r"\s*[^\W\d_]+|\s*\d|\s*[^\w\s]|\s*_|\s+")


def probability_first(result: JudgeResult) -> float:
    """Return P(the first answer is better)."""
    if result.first_better is not None:
        return result.first_better
    if result.winner == 1:
        return 1.0
    return 0.0 if result.winner == 2 else 0.5


def likelier_answer(task: JudgeTask, result: JudgeResult) -> int:
    """Return which answer is more likely to be better: 1 or 2."""
    return winner_of_two(task, replace(result, winner="tie", first_better=probability_first(result)))


def verdict_logprobs(
    text: str, verdict: str, probabilities: Mapping[str, float], most: int
) -> tuple[TokenLogprobs, ...]:
    """Return log-probabilities for a text that ends with the verdict; other tokens have probability 1."""
    before = [
        TokenLogprobs(token=piece, logprob=0.0, candidates=((piece, 0.0),)[:most])
        for piece in _PIECES.findall(text[: len(text) - len(verdict)])
    ]
    logprobs = {token: safe_log(probability) for token, probability in probabilities.items()}
    ranked = sorted(logprobs.items(), key=lambda candidate: -candidate[1])
    return (*before, TokenLogprobs(token=verdict, logprob=logprobs[verdict], candidates=tuple(ranked[:most])))


def safe_log(probability: float) -> float:
    """Return the natural logarithm of a probability, clipped at -100."""
    return max(math.log(probability), _MIN_LOGPROB) if probability > 0 else _MIN_LOGPROB
