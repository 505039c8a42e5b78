"""Score lines of any length, read; and how probable each score of one answer was."""

import math
from collections.abc import Sequence

from judgelm.modes.completions import failure_of, thinking_of
from judgelm.parsing.scores import parse_scores
from judgelm.records import Completion, GradeDistribution, Scores, Shown, Unparsed

_LEAST_LISTED = 1e-4


def read_scores(
    order: tuple[int, ...],
    completion: Completion,
    *,
    count: int,
    scale: tuple[float, float],
    max_tokens: int,
) -> Shown:
    """The `count` scores of a reply's first line; one that was cut off is a failure even where it begins with scores.

    Args:
        order: of the answers in the prompt.
        completion: of that prompt.
        count: how many scores the judge is to write.
        scale: lowest and highest score of the judge.
        max_tokens: the room that the reply had.
    """
    thinking = thinking_of(completion)
    if (failure := failure_of(completion)) is not None:
        return Shown(order=order, text="", thinking=thinking, failure=failure, truncations=completion.truncations)
    text = completion.texts[0]
    parsed: Scores | Unparsed = Unparsed("truncated", text, f"no end of line within {max_tokens} tokens")
    if completion.finish_reasons[0] != "length":
        parsed = parse_scores(text, count, scale)
    if isinstance(parsed, Unparsed):
        return Shown(order=order, text=text, thinking=thinking, failure=parsed, truncations=completion.truncations)
    return Shown(order=order, text=text, thinking=thinking, scores=parsed.values, truncations=completion.truncations)


def grade_distribution(scores: Sequence[float], completion: Completion) -> GradeDistribution | None:
    """The distribution over the scores of one answer.

    Args:
        scores: shape (n,), the score that each candidate of the request gives the answer; one score may come often.
        completion: with the n candidates' log-probabilities; None is returned where it has none.

    Returns:
        `expected` is NaN where nothing is assigned: a mean of nothing is not 0. The probabilities of `likeliest` are
        rounded to six places.

    Raises:
        ValueError: there are not as many log-probabilities as scores.
    """
    if completion.candidate_logprobs is None:
        return None
    masses: dict[float, float] = {}
    for score, logprob in zip(scores, completion.candidate_logprobs, strict=True):
        masses[score] = masses.get(score, 0.0) + math.exp(logprob)
    assigned = math.fsum(masses.values())
    listed = [(score, round(mass, 6)) for score, mass in masses.items() if mass >= _LEAST_LISTED]
    return GradeDistribution(
        expected=math.fsum(score * mass for score, mass in masses.items()) / assigned if assigned else math.nan,
        unassigned=max(0.0, 1 - assigned),
        likeliest=tuple(sorted(listed, key=lambda one: (-one[1], one[0]))),
        approximation=completion.approximation,
    )
