"""Metrics for short answers: exact match, F1 over tokens (HotpotQA) or spans (DROP, Quoref), and self-preference.

Source: QA-Judge, sections 3, 5.2, and 6.2, Tables 6 and 13, and the original code.
"""

import math
from collections import Counter
from collections.abc import Hashable, Sequence
from typing import NamedTuple

import numpy as np
from scipy.optimize import linear_sum_assignment

from judgelm.metrics.resampling import Estimate, Flags, Resampling, share
from judgelm.parsing.short_answers import Gold, QaRules, drop_normalised, exact_match, hotpot_normalised, is_number

_CLOSED_ANSWERS = frozenset({"yes", "no", "noanswer"})


class AnswerMatch(NamedTuple):
    """Exact match and F1 of a predicted answer."""

    exact: bool
    f1: float


class TokenF1(NamedTuple):
    """Token overlap between a prediction and a gold answer."""

    f1: float
    precision: float
    recall: float


_NOTHING_IN_COMMON = TokenF1(0.0, 0.0, 0.0)


def match(predicted: str, golds: Sequence[Gold], rules: QaRules) -> AnswerMatch:
    """Return the best exact match and, independently, the best F1 over all gold answers.

    The rules `drop` and `quoref` skip gold answers whose first span is blank. `strict` uses HotpotQA's F1.

    Example:
        >>> match("Barack H. Obama", [("Barack Obama",), ("Barack H Obama",)], "strict")
        AnswerMatch(exact=True, f1=1.0)

    Source: QA-Judge's code, `run_eval.py`.
    """
    exact = exact_match(predicted, golds, rules)
    if rules in ("drop", "quoref"):
        scores = [drop_f1([predicted], gold) for gold in golds if gold[0].strip()]
    else:
        scores = [token_f1(predicted, " ".join(gold)).f1 for gold in golds]
    return AnswerMatch(exact=exact, f1=max(scores, default=0.0))


def token_f1(predicted: str, gold: str) -> TokenF1:
    """Compute F1, precision, and recall over multisets of normalised tokens.

    All three are 0 if the answers differ and either is `yes`, `no`, or `noanswer`.

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
    """Compute the F1 of two answers with several spans, rounded to two decimals like the official script.

    Spans are matched one to one to maximise the sum of F1 over token *sets*; the sum is divided by the larger number of
    spans. A span's F1 is 0 if the gold span has numbers and the predicted span contains none of them.

    Source: DROP (Dua et al. 2019), section 5 and official evaluation script.
    """
    if not predicted or not gold:
        raise ValueError("drop F1: an answer has no spans")
    ours, theirs = ([set(drop_normalised(span).split()) for span in side] for side in (predicted, gold))
    scores = np.array([[_span_f1(predicted, gold) for predicted in ours] for gold in theirs])
    paired = scores[linear_sum_assignment(scores, maximize=True)]
    return round(float(paired.sum() / max(len(ours), len(theirs))), 2)


def _span_f1(predicted: set[str], gold: set[str]) -> float:
    numbers = {token for token in gold if is_number(token)}
    if numbers and numbers.isdisjoint(predicted):
        return 0.0
    common = len(predicted & gold)
    precision = common / len(predicted) if predicted else 1.0
    recall = common / len(gold) if gold else 1.0
    return 2 * precision * recall / (precision + recall) if precision + recall else 0.0


PREFERENCE_THRESHOLDS = (1.0, 5 / 6, 4 / 6)
"""Minimum shares of the other judges that must say incorrect: 100 %, 83 %, and 67 %."""


class Preference(NamedTuple):
    """Share of answers without an exact match that only one judge considers correct.

    At least `needed` judges (share `threshold` of the `others`) must consider the answer incorrect.
    """

    threshold: float
    needed: int
    others: int
    share: Estimate | None


def preferences(
    own: Flags, others: Flags, questions: Sequence[Hashable], resampling: Resampling
) -> tuple[Preference, ...]:
    """Compute the share of answers that only the model's own judge accepts, for each of `PREFERENCE_THRESHOLDS`.

    `own` has shape (n,) and `others` (n, k); True means correct.
    """
    if own.ndim != 1 or others.ndim != 2 or len(own) != len(others):
        raise ValueError(f"preference: expected shapes (n,) and (n, k), got {own.shape} and {others.shape}")
    k = others.shape[1]
    if k == 0:
        raise ValueError("preference: expected at least one other judge")
    against = k - others.sum(axis=1)
    result = []
    for threshold in PREFERENCE_THRESHOLDS:
        needed = math.ceil(threshold * k - 1e-9)  # in floating point, 5/6 of 6 exceeds 5
        only_own = share(own & (against >= needed), questions, resampling) if len(own) else None
        result.append(Preference(threshold=threshold, needed=needed, others=k, share=only_own))
    return tuple(result)
