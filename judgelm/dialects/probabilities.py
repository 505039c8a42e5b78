"""Probabilities of a result for clients that read log-probabilities."""

import math
import re
from collections.abc import Mapping
from dataclasses import replace

from judgelm.dialects.contract import JudgeResult, JudgeTask, TokenLogprobs
from judgelm.dialects.verdicts import winner_of_two

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
