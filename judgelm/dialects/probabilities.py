"""What a finding concludes for clients that look at probabilities, choose among several, or want a yes or a no."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace

from judgelm.dialects.contract import JudgeResult, JudgeTask, TokenLogprobs
from judgelm.dialects.text import digest, expected_grade, rescale, winner_of_two

_LEAST_LOGPROB = -100.0
_PIECES = re.compile(r"\s*[^\W\d_]+|\s*\d|\s*[^\w\s]|\s*_|\s+")


def probability_first(finding: JudgeResult) -> float:
    """P(the answer shown first is better); from the winner alone where the distribution is not known."""
    if finding.first_better is not None:
        return finding.first_better
    if finding.winner == 1:
        return 1.0
    return 0.0 if finding.winner == 2 else 0.5


def likelier_answer(case: JudgeTask, finding: JudgeResult) -> int:
    """1 or 2: the answer with the greater probability, which clients conclude that read log-probabilities."""
    return winner_of_two(case, replace(finding, winner="tie", first_better=probability_first(finding)))


def best_answer(case: JudgeTask, finding: JudgeResult) -> int:
    """Place of the best of three and more answers, from 0; of equally good ones that with the lowest hash."""
    highest = max(finding.scores)
    best = [place for place, score in enumerate(finding.scores) if score == highest]
    return min(best, key=lambda place: digest(case.sample.answers[place]))


def is_fulfilled(finding: JudgeResult) -> bool:
    """Whether the one answer is correct, or fulfils the criterion; at 0.5 it is."""
    chance = finding.correct if finding.correct is not None else rescale(expected_grade(finding), (0.0, 1.0))
    return chance >= 0.5


def verdict_logprobs(text: str, verdict: str, chances: Mapping[str, float], most: int) -> tuple[TokenLogprobs, ...]:
    """Tokens of a text that ends in its verdict, the verdict a token of its own.

    Args:
        text: ends in `verdict`; what stands before it was certain.
        verdict: one of `chances`.
        chances: of each verdict that there is, in [0, 1].
        most: how many candidates are wanted at each place.
    """
    before = [
        TokenLogprobs(token=found[0], logprob=0.0, candidates=((found[0], 0.0),)[:most])
        for found in _PIECES.finditer(text[: len(text) - len(verdict)])
    ]
    ranked = sorted(((token, safe_log(chance)) for token, chance in chances.items()), key=lambda one: -one[1])
    return (
        *before,
        TokenLogprobs(token=verdict, logprob=safe_log(chances[verdict]), candidates=tuple(ranked[:most])),
    )


def safe_log(chance: float) -> float:
    """Natural log of a probability, at least -100."""
    return max(math.log(chance), _LEAST_LOGPROB) if chance > 0 else _LEAST_LOGPROB
