"""Preferences as training targets: P(first answer is better), the winner it names, and the scores it maps to.

A preference is a number in [0, 1]: 1 says that the first answer is better, 0 the second, 0.5 is a tie. A hard label is
1, 0 or 0.5; a teacher that gave probabilities has anything between. Swapping the answers turns p into 1 - p.
"""

import math

from judgelm.records import Label, Winner

_SHARE_OF_SCALE = 2 / 3
_DECIMALS = 9
_HARD: dict[Winner, float] = {1: 1.0, 2: 0.0, "tie": 0.5}


def swapped_preference(preference: float) -> float:
    """1 - p, to nine decimals, as preferences are read, so that swapping twice gives p back."""
    return rounded_preference(1 - preference)


def rounded_preference(preference: float) -> float:
    """The preference to nine decimals."""
    return round(preference, _DECIMALS)


def winner_by_preference(preference: float) -> Winner:
    """The better answer: the first above 0.5, the second below, a tie at exactly 0.5."""
    return "tie" if preference == 0.5 else 1 if preference > 0.5 else 2


def preference_of(label: Label) -> float | None:
    """The target of a pair's label: its preference, else 1, 0 or 0.5 by its winner; None without a winner."""
    if label.preference is not None or label.winner is None:
        return label.preference
    return _HARD[label.winner]


def scores_by_preference(
    preference: float, scale: tuple[float, float] = (1, 10), step: float = 1
) -> tuple[float, float]:
    """The score pair of a preference, for training on score lines: 0 -> 3 9, 0.5 -> 6 6, 1 -> 9 3 on the scale 1 to 10.

    The difference of the scores is proportional to |2 p - 1|, rounded to whole steps, around the middle of the scale. A
    sure preference gets two thirds of the scale's width and not all of it: it says which answer is better and not that
    the two are as good and as bad as answers can be. Any preference but 0.5 gets at least one step, so that the
    scores name the same winner; a tie gets equal scores. 1 - p gives the same scores in the other order, and with
    rising p the first score never falls and the second never rises.

    Args:
        preference: P(first answer is better), in [0, 1].
        scale: lowest and highest score.
        step: spacing of the scores.

    Returns:
        Both scores, within the scale and on its steps.
    """
    low, high = scale
    steps = round((high - low) / step)
    sure = max(1, round(steps * _SHARE_OF_SCALE))
    lead = abs(2 * preference - 1)
    difference = 0 if lead == 0 else max(1, math.floor(lead * sure + 0.5))
    better = math.ceil((steps + difference) / 2)
    best, worst = low + better * step, low + (better - difference) * step
    return (best, worst) if preference >= 0.5 else (worst, best)


def training_scores(label: Label, scale: tuple[float, float] = (1, 10), step: float = 1) -> tuple[float, ...] | None:
    """The scores that a judge learns from a label: its own, else those of its preference; None without either."""
    if label.scores is not None or label.preference is None:
        return label.scores
    return scores_by_preference(label.preference, scale, step)
