"""Verdicts in the form that clients want: a winner, a score on their own scale, or a yes; one for each reply."""

from collections.abc import Callable
from dataclasses import replace
from typing import Literal

from judgelm.dialects.contract import ChatRequest, JudgeResult, JudgeTask, Reply
from judgelm.dialects.text import digest, format_number
from judgelm.records import Winner

_LOWEST, _HIGHEST = 1.0, 10.0  # the judge's own scale
_APART = 0.1  # between scores that would contradict the winner

Render = Callable[[JudgeTask, ChatRequest, JudgeResult], Reply]


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
