"""F1 as DROP defines it, for answers of one span or several; Quoref uses the same.

Source: DROP (Dua et al. 2019), section 5 and official evaluation script.
"""

from collections.abc import Sequence

import numpy as np
from scipy.optimize import linear_sum_assignment

from judgelm.parsing.short_answers import drop_normalised, is_number


def drop_f1(predicted: Sequence[str], gold: Sequence[str]) -> float:
    """F1 of a predicted answer and one gold answer, both given as spans.

    Spans are paired one to one so that the sum of their F1 is highest, each F1 over the *sets* of tokens; it is 0 where
    the gold span has numbers and the predicted one has none of them. The sum is divided by the larger number of spans.

    Args:
        predicted: at least one span.
        gold: at least one span.

    Returns:
        In [0, 1], rounded to two decimals as the official script has it.

    Raises:
        ValueError: a side has no span.
    """
    if not predicted or not gold:
        raise ValueError("drop F1: an answer without a span")
    ours, theirs = ([set(drop_normalised(span).split()) for span in side] for side in (predicted, gold))
    scores = np.array([[_span_f1(one, other) for one in ours] for other in theirs])
    paired = scores[linear_sum_assignment(scores, maximize=True)]
    return round(float(paired.sum() / max(len(ours), len(theirs))), 2)


def _span_f1(predicted: set[str], gold: set[str]) -> float:
    """F1 over two sets of tokens; an empty prediction has precision 1, an empty gold span recall 1, as there."""
    numbers = {token for token in gold if is_number(token)}
    if numbers and numbers.isdisjoint(predicted):
        return 0.0
    common = len(predicted & gold)
    precision = common / len(predicted) if predicted else 1.0
    recall = common / len(gold) if gold else 1.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0
