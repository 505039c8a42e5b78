"""Exact match and F1 of a predicted answer against the gold answers of its question, in each data set's own way.

What counts as the same text is said in `judgelm.parsing.short_answers`; HotpotQA's F1 over tokens stands here, DROP's
over spans in `qa_match_drop`.

Source: QA-Judge, sections 3 and 5.2; the metrics are those that its authors' code runs.
"""

from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from judgelm.metrics.qa.drop import drop_f1
from judgelm.parsing.short_answers import Gold, QaRules, exact_match, hotpot_normalised

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
