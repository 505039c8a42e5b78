"""Elo ratings of many models by each judge, with intervals over questions.

Matches are a judge's verdicts on pairs in each order shown, or AlpacaEval's annotations.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
from scipy.stats import kendalltau, spearmanr

from judgelm.data.sources.alpaca_eval import Comparison
from judgelm.errors import InputError
from judgelm.metrics.bradley_terry import Match, Ratings, bradley_terry
from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.modes.conversation import per_order
from judgelm.parsing.scores import is_assigned
from judgelm.records import Judgment, PairVerdict, Sample, Shown
from judgelm.studies.pair_labels import grouped, label_of, orders_of
from judgelm.studies.result import DEFAULT_RESAMPLING, Forest, Row, StudyResult, Table, columns, forest, table
from judgelm.studies.sentences import file_slug, format_number


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


def leaderboard_study(
    judges: Sequence[JudgeMatches], resampling: Resampling = DEFAULT_RESAMPLING, *, notes: Sequence[str] = ()
) -> StudyResult:
    """Rate the models by each judge apart.

    Args:
        judges: their matches.
        resampling: seed and number of resamples.
        notes: what reading the files has left out, to be shown.

    Raises:
        InputError: a judge has no verdict, or no two models can be rated by it.
    """
    rated = [(judge, _ratings(judge, resampling)) for judge in judges]
    agreement = _agreement_table(rated)
    return StudyResult(
        study="leaderboard",
        title="Leaderboard",
        protocol=(
            "Bradley-Terry ratings by maximum likelihood on P(better), a verdict without probability as 1, 0.5 (tie) "
            "or 0; a pair judged in both orders is a verdict in each, with one effect of the first position for all. "
            f"Where the likelihood has no finite maximum, {_PRIOR}. "
            f"Intervals are 95 % from {resampling.resamples} resamples of questions (seed {resampling.seed}). Failed "
            "judgments are left out and counted."
        ),
        findings=tuple(sentence for judge, ratings in rated for sentence in _findings(judge, ratings)),
        counts={
            "pairs": sum(judge.pairs for judge in judges),
            "failed": sum(judge.failed for judge in judges),
            "same_model": sum(judge.same_model for judge in judges),
            "verdicts": sum(len(judge.matches) for judge in judges),
            "soft_verdicts": sum(judge.soft for judge in judges),
        },
        tables=(
            _table(rated),
            _position_table(rated),
            *([] if agreement is None else [agreement]),
        ),
        figures=tuple(_forest(judge, ratings, index) for index, (judge, ratings) in enumerate(rated)),
        warnings=(*notes, *(sentence for judge, ratings in rated for sentence in _warnings(judge, ratings))),
    )


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
    counts = {"pairs": len(judgments), "failed": failed, "same_model": same_model, "soft": soft}
    return JudgeMatches(judge=judge, matches=tuple(matches), **counts)


def matches_of_comparisons(comparisons: Iterable[Comparison]) -> list[JudgeMatches]:
    """The matches of each annotator; the order in which AlpacaEval showed the outputs is not recorded."""
    groups = grouped(comparisons, lambda comparison: comparison.annotator or "annotator")
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
    if judgment.reads_words and judgment.probability is not None:
        return [_Verdict(preference=judgment.probability, order=None, soft=True)]
    shown = per_order(judgment.shown)
    orders = None if len(shown) > 2 else orders_of(judgment)
    if orders is None or not shown:
        return [_own(judgment, None)]
    if len(shown) == 1:
        return [_own(judgment, shown[0].order)]
    swapped = orders.swapped or orders.given
    labels: dict[tuple[int, ...], int | None] = {(0, 1): orders.given.label, (1, 0): swapped.label}
    verdicts = [verdict for reply in shown if (verdict := _of_order(reply, labels[reply.order])) is not None]
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
    (first, second), preference, ordered = sample.answer_models, verdict.preference, verdict.order is not None
    if verdict.order == (1, 0):
        first, second, preference = second, first, 1 - preference
    return Match(first=first, second=second, preference=preference, question=sample.question, ordered=ordered)


_FEWEST_COMMON = 3
_NOTE = (
    "Elo: 400 points are odds of 10 to 1; the mean of all rated models is 1000. Intervals are 95 %, from resamples of "
    "questions; rank from and to bound the rank in the same resamples. Win rate: mean P(better) over the model's own "
    "matches, a tie is half a win; it depends on who it met. n: verdicts, two of a pair judged in both orders."
)
_PRIOR = (
    "with one more tie of each model against a virtual player of mean strength, and one between equal players for the "
    "position"
)


def _ratings(judge: JudgeMatches, resampling: Resampling) -> Ratings:
    if not judge.matches:
        raise InputError(f"leaderboard: none of {judge.pairs} pairs of {judge.judge} has a verdict on two models")
    try:
        return bradley_terry(judge.matches, resampling)
    except ValueError as error:
        raise InputError(f"leaderboard of {judge.judge}: {error}") from error


def _win_rates(judge: JudgeMatches) -> dict[str, float]:
    values: dict[str, list[float]] = {}
    for match in judge.matches:
        values.setdefault(match.first, []).append(match.preference)
        values.setdefault(match.second, []).append(1 - match.preference)
    return {model: float(np.mean(preferences)) for model, preferences in values.items()}


def _table(rated: Sequence[tuple[JudgeMatches, Ratings]]) -> Table:
    rows: list[Row] = []
    for judge, ratings in rated:
        rates = _win_rates(judge)
        rows += [
            (judge.judge, row.model, row.rank, row.best_rank, row.worst_rank, row.elo, rates[row.model], row.elo.n)
            for row in ratings.rated
        ]
        rows += [(judge.judge, model, None, None, None, None, rates[model], None) for model in ratings.unrated]
    return table(
        rows,
        columns("text", judge="Judge", model="Model"),
        columns("count", rank="Rank", best_rank="Rank from", worst_rank="Rank to"),
        columns("number", elo="Elo ↑"),
        columns("share", win_rate="Win rate ↑"),
        columns("count", n="n"),
        name="leaderboard",
        title="Leaderboard",
        note=_NOTE + " Empty: no rating; the warnings say why.",
    )


def _position_table(rated: Sequence[tuple[JudgeMatches, Ratings]]) -> Table:
    def cells(judge: JudgeMatches, position: Estimate | str) -> Row:
        known = (position, "") if isinstance(position, Estimate) else (None, position)
        return (judge.judge, *known, judge.pairs, judge.failed, judge.same_model, judge.soft)

    return table(
        [cells(judge, ratings.position) for judge, ratings in rated],
        columns("text", judge="Judge"),
        columns("number", first_position="First position, Elo points"),
        columns("text", reason="No estimate because"),
        columns("count", pairs="Pairs", failed="Failed", same_model="One model twice", soft="Soft verdicts"),
        name="judges",
        title="Judges",
        note="First position: what standing first is worth; 0 for a judge without position bias.",
    )


def _agreement_table(rated: Sequence[tuple[JudgeMatches, Ratings]]) -> Table | None:
    """Rank correlations of each two judges over the models that both rate; None without such a pair."""
    rows: list[Row] = []
    for (judge, ratings), (other, others) in combinations(rated, 2):
        points = {row.model: row.elo.value for row in ratings.rated}
        their_points = {row.model: row.elo.value for row in others.rated}
        common = [model for model in points if model in their_points]
        if len(common) >= _FEWEST_COMMON:
            sides = [points[model] for model in common], [their_points[model] for model in common]
            tau, rho = kendalltau(*sides).statistic, spearmanr(*sides).statistic
            rows.append((judge.judge, other.judge, float(rho), float(tau), len(common)))
    if not rows:
        return None
    return table(
        rows,
        columns("text", judge="Judge", other="Other judge"),
        columns("number", spearman="Spearman's ρ", kendall="Kendall's τ"),
        columns("count", models="Models"),
        name="rank-correlation",
        title="Do judges rank alike?",
    )


def _forest(judge: JudgeMatches, ratings: Ratings, index: int) -> Forest:
    return forest(
        [(row.model, row.elo) for row in ratings.rated],
        name=f"elo-{index + 1}-{file_slug(judge.judge)}",
        title=f"Elo by {judge.judge}",
        x_label="Elo points, mean of all models 1000",
        no_effect=1000.0,
    )


def _findings(judge: JudgeMatches, ratings: Ratings) -> list[str]:
    best = ratings.rated[0]
    never_lost = " It never lost, not even in part." if best.record == "unbeaten" else ""
    lines = [f"{judge.judge}: {best.model} is first with Elo {format_number(best.elo, '.0f')}.{never_lost}"]
    level = [row.model for row in ratings.rated[1:] if row.best_rank == 1 or row.record == "unbeaten"]
    if level:
        lines.append(f"{judge.judge}: the first rank may as well be that of {', '.join(level[:5])}.")
    if isinstance(ratings.position, Estimate):
        points = format_number(ratings.position, "+.0f")
        lines.append(f"{judge.judge}: standing first is worth {points} Elo points.")
    return lines


def _warnings(judge: JudgeMatches, ratings: Ratings) -> list[str]:
    lines = [f"{judge.judge}: {model} has no rating: {reason}." for model, reason in ratings.unrated.items()]
    if ratings.regularised:
        lines.append(
            f"{judge.judge}: the likelihood has no finite maximum: some models, or the first position, always won. "
            f"Ratings are fitted {_PRIOR}; intervals without a limit are open."
        )
    for row in ratings.rated:
        if row.record != "mixed":
            verb, place = ("lost", "before") if row.record == "unbeaten" else ("won", "behind")
            lines.append(
                f"{judge.judge}: {row.model} never {verb}, not even in part, and stands {place} all others; its rating "
                "depends on these ties."
            )
    if ratings.separable_resamples:
        lines.append(
            f"{judge.judge}: {ratings.separable_resamples:,} resamples have no finite maximum and are fitted {_PRIOR}."
        )
    if isinstance(ratings.position, str):
        lines.append(f"{judge.judge}: no effect of the first position: {ratings.position}.")
    return lines
