"""Rank models separately for each judge: Elo ratings and pairwise win rates, with and without length control.

For ratings, each order of a pair is one match, and so is each AlpacaEval annotation. Win rates count each pair once.

Source: Chatbot Arena (Chiang et al. 2024); AlpacaEval (Li et al. 2023) and Length-Controlled AlpacaEval (Dubois et al.
2024).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path

import numpy as np
from scipy.stats import kendalltau, spearmanr

from judgelm.data.readers.values import similar_names_notes
from judgelm.data.sources.alpaca_eval import Comparison
from judgelm.errors import InputError
from judgelm.metrics.bradley_terry import Match, Ratings, bradley_terry
from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.metrics.win_rate import discrete, length_controlled, weighted
from judgelm.modes.conversation import per_order
from judgelm.parsing.scores import is_assigned
from judgelm.records import Judgment, PairVerdict, Sample, Shown
from judgelm.studies.pair_labels import first_better, grouped, orders_of
from judgelm.studies.result import DEFAULT_RESAMPLING, Cell, Forest, Layouts, Row, StudyResult, Table, forest
from judgelm.studies.sentences import file_slug, format_number, format_share

LAYOUTS = Layouts(Path(__file__).with_suffix(".yaml"))


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeMatches:
    """Matches judged in one run or by one annotator.

    Attributes:
        matches: two for a pair judged in both orders, which are resampled together.
        comparisons: one per pair; the preference is None if the judge failed.
    """

    judge: str
    matches: tuple[Match, ...]
    comparisons: tuple[Comparison, ...]

    @property
    def soft(self) -> int:
        """Number of matches with a probability other than 0, 0.5, or 1."""
        return sum(match.preference not in (0.0, 0.5, 1.0) for match in self.matches)

    @property
    def failed(self) -> int:
        """Number of pairs without a verdict."""
        return sum(pair.preference is None for pair in self.comparisons)

    @property
    def same_model(self) -> int:
        """Number of pairs with a verdict whose answers are from the same model."""
        return sum(pair.preference is not None and pair.model == pair.baseline for pair in self.comparisons)


def leaderboard_study(
    judges: Sequence[JudgeMatches], resampling: Resampling = DEFAULT_RESAMPLING, *, notes: Sequence[str] = ()
) -> StudyResult:
    """Rate the models and compare them pairwise, separately for each judge.

    `notes` are added to the warnings.

    Raises:
        InputError: a judge has no verdicts, or fewer than two models can be rated.
    """
    rated = [(judge, _ratings(judge, resampling)) for judge in judges]
    win_rates = _duels(judges, resampling)
    duels = win_rates.records()
    pairs = [pair for judge in judges for pair in judge.comparisons]
    return StudyResult(
        study="leaderboard",
        title="Leaderboard",
        protocol=(
            "Bradley-Terry ratings are fitted to P(better) by maximum likelihood. A verdict without a "
            "probability counts as 1, 0.5 (tie), or 0. A pair judged in both orders counts as two verdicts. All models "
            "share one first-position effect. "
            f"If the likelihood has no finite maximum, ratings are fitted {_PRIOR}. "
            f"Intervals are 95 % from {resampling.resamples} resamples of questions (seed {resampling.seed}). Failed "
            "judgments are excluded and counted."
        ),
        findings=(*(line for judge, ratings in rated for line in _findings(judge, ratings)), *_duel_findings(duels)),
        counts={
            "pairs": len(pairs),
            "failed": sum(judge.failed for judge in judges),
            "same_model": sum(judge.same_model for judge in judges),
            "verdicts": sum(len(judge.matches) for judge in judges),
            "soft_verdicts": sum(judge.soft for judge in judges),
        },
        tables=(_table(rated), win_rates, _position_table(rated), *_agreement_tables(rated)),
        figures=(
            *(_forest(judge, ratings, index) for index, (judge, ratings) in enumerate(rated, 1)),
            _duel_forest(duels),
        ),
        warnings=(
            *notes,
            *similar_names_notes(name for pair in pairs for name in (pair.baseline, pair.model)),
            *(sentence for judge, ratings in rated for sentence in _warnings(judge, ratings)),
        ),
    )


def matches_of_run(judge: str, judgments: Mapping[str, Judgment], samples: Mapping[str, Sample]) -> JudgeMatches:
    """Convert judgments of pairs to matches; the model names come from the samples.

    Raises:
        InputError: a judgment is not of a pair, or its sample does not have two model names.
    """
    matches: list[Match] = []
    comparisons: list[Comparison] = []
    for key, judgment in judgments.items():
        if judgment.verdict is not None and not isinstance(judgment.verdict, PairVerdict):
            raise InputError(
                f"run {judge}: judgment {key}: mode {judgment.mode} does not pick a winner; use runs that judged pairs"
            )
        sample = samples.get(key)
        if sample is None or len(sample.answer_models) != 2:
            finding = "no row has this id" if sample is None else "its row does not have two model names"
            raise InputError(f"run {judge}: judgment {key}: {finding}; pass the judged pairs with --rows")
        comparisons.append(_comparison(judge, judgment, sample))
        if judgment.winner is not None and sample.answer_models[0] != sample.answer_models[1]:
            matches += [_match(verdict, sample) for verdict in _verdicts(judgment)]
    return JudgeMatches(judge=judge, matches=tuple(matches), comparisons=tuple(comparisons))


def _comparison(judge: str, judgment: Judgment, sample: Sample) -> Comparison:
    preference = None if judgment.winner is None else 1 - first_better(judgment)
    return Comparison(
        instruction=sample.question,
        baseline=sample.answer_models[0],
        model=sample.answer_models[1],
        annotator=judge,
        preference=preference,
        lengths=(len(sample.answers[0]), len(sample.answers[1])),
    )


def matches_of_comparisons(comparisons: Iterable[Comparison]) -> list[JudgeMatches]:
    """Group comparisons by annotator; AlpacaEval does not record the display order."""
    groups = grouped(comparisons, lambda comparison: comparison.annotator or "annotator")
    judges = []
    for annotator, group in groups.items():
        matches = tuple(
            Match(first=row.model, second=row.baseline, preference=row.preference, question=row.instruction)
            for row in group
            if row.preference is not None and row.model != row.baseline
        )
        judges.append(JudgeMatches(judge=annotator, matches=matches, comparisons=tuple(group)))
    return judges


_Verdict = tuple[float, tuple[int, ...] | None]
"""P(the sample's first answer is better), and the display order (None if unknown)."""


def _verdicts(judgment: Judgment) -> list[_Verdict]:
    own, shown = first_better(judgment), per_order(judgment.shown)
    if (judgment.reads_words and judgment.probability is not None) or not shown or len(shown) > 2:
        return [(own, None)]
    if len(shown) == 1:
        return [(own, shown[0].order)]
    if (orders := orders_of(judgment)) is None:
        return [(own, None)]
    swapped = orders.swapped or orders.given
    labels: dict[tuple[int, ...], int | None] = {(0, 1): orders.given.label, (1, 0): swapped.label}
    return [verdict for reply in shown if (verdict := _of_order(reply, labels[reply.order]))] or [(own, None)]


def _of_order(reply: Shown, label: int | None) -> _Verdict | None:
    distribution = reply.distribution
    if distribution is None or reply.failure is not None:
        return None if label is None else ((label + 1) / 2, reply.order)
    better = distribution.first_better
    return (better if reply.order == (0, 1) else 1 - better, reply.order) if is_assigned(distribution) else None


def _match(verdict: _Verdict, sample: Sample) -> Match:
    (preference, order), (first, second) = verdict, sample.answer_models
    if order == (1, 0):
        first, second, preference = second, first, 1 - preference
    question, ordered = sample.question or sample.id, order is not None
    return Match(first=first, second=second, preference=preference, question=question, ordered=ordered)


_MIN_COMMON_MODELS = 3
_PRIOR = (
    "with one tie added per model against a virtual player of fitted strength, and one tie between equal players for "
    "the position effect"
)


def _ratings(judge: JudgeMatches, resampling: Resampling) -> Ratings:
    if not judge.matches:
        pairs = len(judge.comparisons)
        raise InputError(
            f"leaderboard: none of the {pairs} pairs judged by {judge.judge} has a verdict and two different models"
        )
    try:
        return bradley_terry(judge.matches, resampling)
    except ValueError as error:
        raise InputError(f"leaderboard for {judge.judge}: {error}") from error


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
    return LAYOUTS.table("leaderboard", rows)


def _position_table(rated: Sequence[tuple[JudgeMatches, Ratings]]) -> Table:
    def cells(judge: JudgeMatches, position: Estimate | str) -> Row:
        known = (position, "") if isinstance(position, Estimate) else (None, position)
        return (judge.judge, *known, len(judge.comparisons), judge.failed, judge.same_model, judge.soft)

    return LAYOUTS.table("judges", [cells(judge, ratings.position) for judge, ratings in rated])


def _agreement_tables(rated: Sequence[tuple[JudgeMatches, Ratings]]) -> list[Table]:
    rows: list[Row] = []
    for (judge, ratings), (other, others) in combinations(rated, 2):
        points = {row.model: row.elo.value for row in ratings.rated}
        their_points = {row.model: row.elo.value for row in others.rated}
        common = [model for model in points if model in their_points]
        if len(common) >= _MIN_COMMON_MODELS:
            sides = [points[model] for model in common], [their_points[model] for model in common]
            tau, rho = kendalltau(*sides).statistic, spearmanr(*sides).statistic
            rows.append((judge.judge, other.judge, float(rho), float(tau), len(common)))
    return [LAYOUTS.table("rank-correlation", rows)] if rows else []


def _forest(judge: JudgeMatches, ratings: Ratings, index: int) -> Forest:
    words = LAYOUTS.figure("elo", index=index, judge=judge.judge, slug=file_slug(judge.judge))
    return forest([(row.model, row.elo) for row in ratings.rated], **words, no_effect=1000.0)


def _findings(judge: JudgeMatches, ratings: Ratings) -> list[str]:
    best = ratings.rated[0]
    unbeaten = " It is unbeaten." if best.record == "unbeaten" else ""
    lines = [
        f"{judge.judge}: {best.model} is ranked first with an Elo rating of {format_number(best.elo, '.0f')}.{unbeaten}"
    ]
    level = [row.model for row in ratings.rated[1:] if row.best_rank == 1 or row.record == "unbeaten"]
    if level:
        lines.append(f"{judge.judge}: not significantly worse: {', '.join(level[:5])}.")
    if isinstance(ratings.position, Estimate):
        points = format_number(ratings.position, "+.0f")
        lines.append(f"{judge.judge}: the first-position advantage, in Elo points, is {points}.")
    return lines


def _warnings(judge: JudgeMatches, ratings: Ratings) -> list[str]:
    lines = [f"{judge.judge}: {model} has no rating: {reason}." for model, reason in ratings.unrated.items()]
    if ratings.regularised:
        lines.append(
            f"{judge.judge}: the likelihood has no finite maximum because some models, or the first position, always "
            f"won. Ratings are fitted {_PRIOR}. Intervals can be unbounded on one side."
        )
    for row in ratings.rated:
        if row.record != "mixed":
            verb, place = ("lost", "first") if row.record == "unbeaten" else ("won", "last")
            lines.append(
                f"{judge.judge}: {row.model} never {verb}, so it is ranked {place}; its rating depends on the added "
                "ties."
            )
    if ratings.separable_resamples:
        lines.append(
            f"{judge.judge}: in {ratings.separable_resamples:,} resamples, the likelihood has no finite maximum, so "
            f"ratings are fitted {_PRIOR}."
        )
    if isinstance(ratings.position, str):
        lines.append(f"{judge.judge}: the first-position effect cannot be estimated: {ratings.position}.")
    return lines


_MAX_SENTENCES = 6
_FAR = 0.1

_FAR_NOTE = (
    f"length control changes the win rate by more than {100 * _FAR:g} points because few answers have similar lengths"
)


def _duels(judges: Iterable[JudgeMatches], resampling: Resampling) -> Table:
    rows = []
    for judge in judges:
        groups: dict[frozenset[str], list[Comparison]] = {}
        for pair in judge.comparisons:
            if pair.model != pair.baseline:
                group = groups.setdefault(frozenset((pair.model, pair.baseline)), [])
                group.append(pair if not group or group[0].model == pair.model else _turned(pair))
        judged = [group for group in groups.values() if any(pair.preference is not None for pair in group)]
        duels = [_duel(judge.judge, group, resampling) for group in judged]
        rows += [row for _, row in sorted(duels, key=lambda duel: (duel[1][1], -duel[0]))]
    return LAYOUTS.table("win-rates", rows)


def _turned(pair: Comparison) -> Comparison:
    preference, lengths = None if pair.preference is None else 1 - pair.preference, (pair.lengths[1], pair.lengths[0])
    return replace(pair, model=pair.baseline, baseline=pair.model, preference=preference, lengths=lengths)


def _duel(judge: str, group: Sequence[Comparison], resampling: Resampling) -> tuple[float, Row]:
    judged = [(pair, pair.preference) for pair in group if pair.preference is not None]
    preferences = np.array([preference for _, preference in judged], dtype=np.float64)
    lengths = np.array([pair.lengths for pair, _ in judged], dtype=np.float64)
    clusters = [pair.instruction for pair, _ in judged]
    rates = [rate(preferences, clusters, resampling) for rate in (weighted, discrete)]
    length = length_controlled(preferences, lengths, clusters)
    if isinstance(length, str):
        controlled: Row = (None, None, None, length)
    else:
        controlled = (*length, _FAR_NOTE if abs(length.rate.value - rates[0].rate.value) > _FAR else "")
    return rates[0].rate.value, (
        *(group[0].model, group[0].baseline, judge, len(judged)),
        *(cell for rate in rates for cell in rate),
        *(int((np.sign(preferences - 0.5) == sign).sum()) for sign in (1, 0, -1)),
        *(*controlled, float(lengths[:, 1].mean()), len(group) - len(judged)),
    )


def _duel_forest(duels: Sequence[Mapping[str, Cell]]) -> Forest:
    return forest(
        [(f"{duel['model']} against {duel['baseline']}", duel["win_rate"], str(duel["annotator"])) for duel in duels],
        **LAYOUTS.figure("win-rate"),
        no_effect=0.5,
    )


def _duel_findings(duels: Sequence[Mapping[str, Cell]]) -> Iterator[str]:
    for duel in duels[:_MAX_SENTENCES]:
        rate, equal = duel["win_rate"], duel["length_controlled_winrate"]
        assert isinstance(rate, Estimate), "every duel has a win rate"
        controlled = f"; at equal length, {format_share(equal)}" if isinstance(equal, Estimate) else ""
        yield f"{duel['annotator']}: {duel['model']} against {duel['baseline']}: {format_share(rate)}{controlled}."
    if len(duels) > _MAX_SENTENCES:
        yield f"See the table for {len(duels) - _MAX_SENTENCES} more pairs of models."
