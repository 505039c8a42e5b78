"""Exact match and F1 of a predicted answer against the gold answers of its question, in each data set's own way.

`judgelm.parsing.short_answers` normalises the texts. F1 is HotpotQA's, over tokens, or DROP's, over spans, which Quoref
uses too.

Source: QA-Judge, sections 3 and 5.2; the metrics are those that its authors' code runs.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from judgelm.parsing.short_answers import Gold, QaRules, drop_normalised, exact_match, hotpot_normalised, is_number

_CLOSED_ANSWERS = frozenset({"yes", "no", "noanswer"})


class Match(NamedTuple):
    """Exact match and F1 of one predicted answer, F1 in [0, 1]."""

    exact: bool
    f1: float


class TokenF1(NamedTuple):
    """Overlap of the tokens of a prediction and a gold answer, each in [0, 1]."""

    f1: float
    precision: float
    recall: float


_NOTHING_IN_COMMON = TokenF1(0.0, 0.0, 0.0)


def match(predicted: str, golds: Sequence[Gold], rules: QaRules) -> Match:
    """The best exact match and the best F1 over the validated answers, each by itself.

    DROP's and Quoref's rules pass over a gold answer whose first span is blank; where nothing else is left both scores
    are 0, as in the original code.

    Args:
        predicted: the answer, one span.
        golds: the validated answers, at least one.
        rules: whose; `strict` has HotpotQA's F1.

    Raises:
        ValueError: no gold answer, or one without a span: a match with nothing is undefined, not 0.
        ConfigError: there are no such rules.

    Example:
        >>> match("Barack H. Obama", [("Barack Obama",), ("Barack H Obama",)], "strict")
        Match(exact=True, f1=1.0)

    Source: QA-Judge's code, `run_eval.py`.
    """
    exact = exact_match(predicted, golds, rules)
    if rules in ("drop", "quoref"):
        scores = [drop_f1([predicted], gold) for gold in golds if gold[0].strip()]
    else:
        scores = [token_f1(predicted, " ".join(gold)).f1 for gold in golds]
    return Match(exact=exact, f1=max(scores, default=0.0))


def token_f1(predicted: str, gold: str) -> TokenF1:
    """F1, precision and recall over the multisets of normalised tokens.

    Without a common token all three are 0, so also where both sides are empty; and where one side is `yes`, `no` or
    `noanswer` and the other is not the same.

    Source: HotpotQA (Yang et al. 2018), official evaluation script.
    """
    ours, theirs = hotpot_normalised(predicted), hotpot_normalised(gold)
    if ours != theirs and not _CLOSED_ANSWERS.isdisjoint((ours, theirs)):
        return _NOTHING_IN_COMMON
    predicted_tokens, gold_tokens = ours.split(), theirs.split()
    common = (Counter(predicted_tokens) & Counter(gold_tokens)).total()
    if common == 0:
        return _NOTHING_IN_COMMON
    precision, recall = common / len(predicted_tokens), common / len(gold_tokens)
    return TokenF1(2 * precision * recall / (precision + recall), precision, recall)


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

    Source: DROP (Dua et al. 2019), section 5 and official evaluation script.
    """
    if not predicted or not gold:
        raise ValueError("drop F1: an answer without a span")
    ours, theirs = ([set(drop_normalised(span).split()) for span in side] for side in (predicted, gold))
    scores = np.array(
        [[_span_f1(predicted_tokens, gold_tokens) for predicted_tokens in ours] for gold_tokens in theirs]
    )
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
