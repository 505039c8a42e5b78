"""Matches between models: a judge's verdicts on pairs in each order shown, or AlpacaEval's annotations."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from judgelm.data.sources.alpaca_eval import Comparison
from judgelm.errors import InputError
from judgelm.metrics.bradley_terry import Match
from judgelm.modes.conversation import per_order
from judgelm.parsing.scores import is_assigned
from judgelm.records import Judgment, PairVerdict, Sample, Shown
from judgelm.studies.pair_labels import label_of, orders_of


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeMatches:
    """All matches by one judge.

    Attributes:
        judge: name of the run or annotator.
        matches: a pair judged in both orders is two matches, which share a question and are resampled together.
        pairs: judgments read; `failed` have no verdict, `same_model` are of two answers of one model.
        soft: matches by a probability.
    """

    judge: str
    matches: tuple[Match, ...]
    pairs: int
    failed: int
    same_model: int
    soft: int


def matches_of_run(judge: str, judgments: Mapping[str, Judgment], samples: Mapping[str, Sample]) -> JudgeMatches:
    """The matches of a run over pairs, with the models' names in the samples.

    Raises:
        InputError: a judgment is not of a pair, or its sample does not name two models.
    """
    matches: list[Match] = []
    failed = same_model = soft = 0
    for key, judgment in judgments.items():
        if judgment.verdict is not None and not isinstance(judgment.verdict, PairVerdict):
            raise InputError(f"run {judge}: judgment {key}: mode {judgment.mode} names no winner; give runs of pairs")
        sample = samples.get(key)
        if sample is None or len(sample.answer_models) != 2:
            finding = "it is not among the rows" if sample is None else "its row does not name two models"
            raise InputError(f"run {judge}: judgment {key}: {finding}; give the judged pairs with --rows")
        if judgment.winner is None:
            failed += 1
        elif sample.answer_models[0] == sample.answer_models[1]:
            same_model += 1
        else:
            verdicts = _verdicts(judgment)
            soft += sum(verdict.soft for verdict in verdicts)
            matches += [_match(verdict, sample) for verdict in verdicts]
    return JudgeMatches(
        judge=judge,
        matches=tuple(matches),
        pairs=len(judgments),
        failed=failed,
        same_model=same_model,
        soft=soft,
    )


def matches_of_comparisons(comparisons: Iterable[Comparison]) -> list[JudgeMatches]:
    """The matches of each annotator; the order in which AlpacaEval showed the outputs is not recorded."""
    groups: dict[str, list[Comparison]] = {}
    for comparison in comparisons:
        groups.setdefault(comparison.annotator or "annotator", []).append(comparison)
    return [_of_comparisons(annotator, group) for annotator, group in groups.items()]


def _of_comparisons(annotator: str, group: list[Comparison]) -> JudgeMatches:
    judged = [(row, row.preference) for row in group if row.preference is not None and row.model != row.baseline]
    matches = tuple(
        Match(first=row.model, second=row.baseline, preference=preference, question=row.instruction)
        for row, preference in judged
    )
    return JudgeMatches(
        judge=annotator,
        matches=matches,
        pairs=len(group),
        failed=sum(row.preference is None for row in group),
        same_model=sum(row.preference is not None and row.model == row.baseline for row in group),
        soft=sum(match.preference not in (0.0, 0.5, 1.0) for match in matches),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Verdict:
    """P(first of the sample is better) in an order; `order` is None where it is unknown."""

    preference: float
    order: tuple[int, ...] | None
    soft: bool


def _verdicts(judgment: Judgment) -> list[_Verdict]:
    """A verdict for each order shown that has one, else the judgment's own."""
    shown = per_order(judgment.shown)
    orders = None if len(shown) > 2 else orders_of(judgment)
    if orders is None or not shown:
        return [_own(judgment, None)]
    if len(shown) == 1:
        return [_own(judgment, shown[0].order)]
    verdicts = []
    for reply in shown:
        label = (orders.given if reply.order == (0, 1) else orders.swapped or orders.given).label
        verdict = _of_order(reply, label)
        verdicts += [] if verdict is None else [verdict]
    return verdicts or [_own(judgment, None)]


def _of_order(reply: Shown, label: int | None) -> _Verdict | None:
    """None where the order failed, or its score lines have too little probability."""
    distribution = reply.distribution
    if distribution is not None and reply.failure is None:
        if not is_assigned(distribution):
            return None
        shown_first = distribution.first_better
        preference = shown_first if reply.order == (0, 1) else 1 - shown_first
        return _Verdict(preference=preference, order=reply.order, soft=True)
    return None if label is None else _Verdict(preference=(label + 1) / 2, order=reply.order, soft=False)


def _own(judgment: Judgment, order: tuple[int, ...] | None) -> _Verdict:
    assert judgment.winner is not None  # failures are counted before
    if judgment.probability is not None:
        return _Verdict(preference=judgment.probability, order=order, soft=True)
    return _Verdict(preference=(label_of(judgment.winner) + 1) / 2, order=order, soft=False)


def _match(verdict: _Verdict, sample: Sample) -> Match:
    first, second = sample.answer_models
    if verdict.order == (1, 0):
        preference = 1 - verdict.preference
        return Match(first=second, second=first, preference=preference, question=sample.question, ordered=True)
    return Match(
        first=first,
        second=second,
        preference=verdict.preference,
        question=sample.question,
        ordered=verdict.order is not None,
    )
