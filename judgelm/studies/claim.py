"""Estimate how often one model beats another, from judged pairs and labels for some of the pairs."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from judgelm.errors import InputError
from judgelm.jsonl import json_ready
from judgelm.metrics.resampling import Estimate, Resampling, share
from judgelm.metrics.true_win_rate import MIN_LABELS, JudgedPairs, TrueWinRate, labels_needed, true_win_rate
from judgelm.metrics.win_rate import Control, StyleControl, control_style
from judgelm.records import Judgment, Label, Sample
from judgelm.studies.leaderboard import leaderboard_study, matches_of_run
from judgelm.studies.pair_labels import first_better, label_of, pair_winner
from judgelm.studies.result import DEFAULT_RESAMPLING, Layouts, Row, StudyResult, Table, forest
from judgelm.studies.sentences import format_number, format_percents, format_share
from judgelm.studies.style_control import pair_styles

LAYOUTS = Layouts(Path(__file__).with_suffix(".yaml"))

_SHOWN = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class _ModelPair:
    id: str
    judgment: Judgment
    question: str
    first: bool

    def side(self, first_better: float) -> float:
        return first_better if self.first else 1 - first_better

    @property
    def won(self) -> float:
        return self.side(first_better(self.judgment, soft=False))

    @property
    def probability(self) -> float:
        return self.side(first_better(self.judgment))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sides:
    """`unnamed` is the number of judgments without model names, if other judgments have names."""

    model: str
    opponent: str | None
    pairs: tuple[_ModelPair, ...]
    unnamed: int
    soft: bool

    @property
    def judged(self) -> tuple[_ModelPair, ...]:
        return tuple(pair for pair in self.pairs if pair.judgment.winner is not None)


def _model_sides(
    judgments: Mapping[str, Judgment], samples: Mapping[str, Sample], model: str | None, against: str | None
) -> _Sides:
    named = {key: samples[key].answer_models for key in judgments if key in samples and samples[key].answer_models}
    soft = all(judgment.probability is not None for judgment in judgments.values() if judgment.winner is not None)
    if not named:
        if model is not None or against is not None:
            raise InputError("win rate: the pairs have no model names; omit --model and --against")
        pairs = tuple(_pair(judgment, samples.get(key), True) for key, judgment in judgments.items())
        return _Sides(model="answer 1", opponent="answer 2", pairs=pairs, unnamed=0, soft=soft)
    model = _chosen(named, model, against)
    opponents = {key: set(names) - {model} for key, names in named.items() if model in names}
    chosen = [key for key, others in opponents.items() if len(others) == 1 and (against is None or against in others)]
    if not chosen:
        raise InputError(f"win rate: no judged pair compares {model} with {against or 'another model'}")
    met = set().union(*(opponents[key] for key in chosen))
    pairs = tuple(_pair(judgments[key], samples[key], named[key][0] == model) for key in chosen)
    opponent, unnamed = met.pop() if len(met) == 1 else None, len(judgments) - len(named)
    return _Sides(model=model, opponent=opponent, pairs=pairs, unnamed=unnamed, soft=soft)


def _chosen(named: Mapping[str, tuple[str, ...]], model: str | None, against: str | None) -> str:
    models = list(dict.fromkeys(name for names in named.values() for name in names))
    available = ", ".join(models[:_SHOWN]) + (", ..." if len(models) > _SHOWN else "")
    for name in (model, against):
        if name is not None and name not in models:
            raise InputError(f"win rate: no judged pair has an answer from {name}; available: {available}")
    if model is None and len(models) > 2:
        raise InputError(
            f"win rate: the pairs include answers from {len(models)} models; choose one with --model ({available})"
        )
    return model or next((name for name in models if name != against), models[0])


def _pair(judgment: Judgment, sample: Sample | None, first: bool) -> _ModelPair:
    question = judgment.sample_id if sample is None else sample.question or sample.id
    return _ModelPair(id=judgment.sample_id, judgment=judgment, question=question, first=first)


_SIGNIFICANT = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimOptions:
    """Options for the estimate.

    Attributes:
        model: model whose wins are counted. With at most two models, the default is the model of the first answer.
        against: use only pairs against this model.
        control: style features to control for in the judge's verdicts.
        width: target width of the interval, in [0, 1].
    """

    model: str | None = None
    against: str | None = None
    control: Control | None = None
    width: float | None = None


DEFAULT_OPTIONS = ClaimOptions()


@dataclass(frozen=True, slots=True, kw_only=True)
class ClaimCounts:
    """Number of judgments and labels; `other_models` are pairs between other models."""

    judgments: int
    unnamed: int
    other_models: int
    failed: int
    used: int
    labels: int
    labels_of_failed: int
    labels_without_judgment: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WinRateClaim:
    """A model's win rate according to the judge and the labels.

    Attributes:
        opponent: None if there are several opponents.
        soft: whether the judge's P(better) is used instead of its verdicts.
        uncontrolled: the judge's win rate before style control; None if there is no control.
        control: the fit, or the reason why it is not possible.
        labels_needed: number of labels for the target width, or the reason why it is unknown.
    """

    model: str
    opponent: str | None
    counts: ClaimCounts
    soft: bool
    estimates: TrueWinRate
    uncontrolled: Estimate | str | None
    control: StyleControl | str | None
    width: float | None
    labels_needed: int | str | None
    warnings: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """Return plain values, without the pairs' adjusted preferences."""
        plain = asdict(self)
        if isinstance(self.control, StyleControl):
            del plain["control"]["adjusted"]
        return dict(json_ready(plain))

    def rows(self) -> list[tuple[str, Estimate | str]]:
        """Return the name and value of each estimate, most reliable last."""
        judge = "judge's P(better)" if self.soft else "judge's verdicts"
        plain = [] if self.uncontrolled is None else [(f"{judge}, not controlled", self.uncontrolled)]
        ending = ", controlled" if isinstance(self.control, StyleControl) else ""
        verdicts = [(f"judge's verdicts{ending}", self.estimates.verdicts)] if self.soft else []
        return [
            *plain,
            *verdicts,
            (f"{judge}{ending}", self.estimates.judge),
            ("labels alone", self.estimates.labels),
            ("Rogan-Gladen", self.estimates.rogan_gladen),
            ("PPI++", self.estimates.ppi),
        ]

    @property
    def name(self) -> str:
        """The names of the model and its opponent."""
        return f"{self.model} against {self.opponent or 'the others'}"


def claim_win_rate(
    judgments: Mapping[str, Judgment],
    labels: Mapping[str, Label],
    samples: Mapping[str, Sample],
    options: ClaimOptions = DEFAULT_OPTIONS,
) -> WinRateClaim:
    """Estimate how often a model beats another; a tie counts as half a win.

    Failed judgments are excluded. The labelled pairs must be a random subset.

    Raises:
        InputError: there is no verdict, a model must be specified, or there are no answers for the style control.
    """
    sides = _model_sides(judgments, samples, options.model, options.against)
    if not sides.judged:
        raise InputError(f"win rate of {sides.model}: none of the {len(sides.pairs)} judgments has a verdict on a pair")
    columns = _judged_pairs(sides, labels, {})
    uncontrolled, control = None, None
    if options.control is not None:
        uncontrolled = true_win_rate(columns).judge
        control, adjusted = _control(judgments, samples, sides, options.control)
        columns = _judged_pairs(sides, labels, adjusted)
    estimates = true_win_rate(columns)
    counts = _counts(judgments, labels, sides)
    return WinRateClaim(
        model=sides.model,
        opponent=sides.opponent,
        counts=counts,
        soft=sides.soft,
        estimates=estimates,
        uncontrolled=uncontrolled,
        control=control,
        width=options.width,
        labels_needed=None if options.width is None else _needed(columns, options.width),
        warnings=tuple(_warnings(counts, estimates)),
    )


def _counts(judgments: Mapping[str, Judgment], labels: Mapping[str, Label], sides: _Sides) -> ClaimCounts:
    used = {pair.id for pair in sides.judged}
    failed = {pair.id for pair in sides.pairs} - used
    return ClaimCounts(
        judgments=len(judgments),
        unnamed=sides.unnamed,
        other_models=len(judgments) - sides.unnamed - len(sides.pairs),
        failed=len(failed),
        used=len(used),
        labels=len(used & labels.keys()),
        labels_of_failed=len(failed & labels.keys()),
        labels_without_judgment=len(labels.keys() - judgments.keys()),
    )


def _judged_pairs(sides: _Sides, labels: Mapping[str, Label], adjusted: Mapping[str, float]) -> JudgedPairs:
    pairs = sides.judged
    verdicts = np.array([pair.won for pair in pairs])
    proxy = np.array([pair.probability for pair in pairs], dtype=np.float64) if sides.soft else verdicts
    if adjusted:
        proxy = np.array([pair.side(adjusted[pair.id]) for pair in pairs])
        verdicts = np.where(verdicts == 0.5, 0.5, (np.sign(proxy - 0.5) + 1) / 2)
    truth = np.full(len(pairs), np.nan)
    for index, pair in enumerate(pairs):
        label = labels.get(pair.id)
        if label is not None:
            truth[index] = pair.side((label_of(pair_winner(label)) + 1) / 2)
    return JudgedPairs(verdicts=verdicts, proxy=proxy, labels=truth, clusters=[pair.question for pair in pairs])


def _control(
    judgments: Mapping[str, Judgment], samples: Mapping[str, Sample], sides: _Sides, control: Control
) -> tuple[StyleControl | str, dict[str, float]]:
    missing = next((pair.id for pair in sides.judged if not _has_answers(samples.get(pair.id))), None)
    if missing is not None:
        raise InputError(f"control for {control}: pair {missing} has no answers; pass the judged pairs with --samples")
    judged = {key: judgment for key, judgment in judgments.items() if judgment.winner is not None}
    usable = {key: judgment for key, judgment in judged.items() if _has_answers(samples.get(key))}
    chosen = [samples[key] for key in usable]
    if len(chosen) < 2:
        return "at least two pairs are needed", {}
    preferences = np.array([first_better(judgment, sides.soft) for judgment in usable.values()])
    differences, models = pair_styles(chosen, control)
    fit = control_style(preferences, differences, [sample.question for sample in chosen], models)
    return fit, {} if isinstance(fit, str) else dict(zip(usable, fit.adjusted.tolist(), strict=True))


def _has_answers(sample: Sample | None) -> bool:
    return sample is not None and len(sample.answers) == 2


def _needed(columns: JudgedPairs, width: float) -> int | str:
    if columns.labelled.sum() < MIN_LABELS:
        return f"at least {MIN_LABELS} labels are needed to measure the difference between the labels and the judge"
    needed = labels_needed(columns, width)
    if needed is None:
        return f"even with labels on all {len(columns.labels):,} pairs, the interval would be wider; judge more pairs"
    return needed


def _warnings(counts: ClaimCounts, estimates: TrueWinRate) -> list[str]:
    lines = []
    if counts.failed:
        lines.append(
            f"{counts.failed:,} judgments failed and are excluded ({counts.labels_of_failed:,} of them labelled). "
            "The estimates cover only pairs with a verdict."
        )
    if estimates.drift is not None and estimates.drift < _SIGNIFICANT:
        lines.append(
            f"The judge's values differ between labelled and unlabelled pairs (Welch's test, p = "
            f"{estimates.drift:.2g}), so the labelled pairs are probably not a random sample. Rogan-Gladen and PPI++ "
            "assume a random sample."
        )
    return lines


def claim_sentences(claim: WinRateClaim) -> list[str]:
    """Summarise the claim, with the most important sentence first."""
    name = f"Win rate of {claim.model} against {claim.opponent or 'the others'}"
    estimates = claim.estimates
    basis = f"{claim.counts.labels:,} labels and {claim.counts.used:,} judged pairs"
    if isinstance(estimates.ppi, Estimate):
        first = f"{name}: {format_share(estimates.ppi)}, estimated by PPI++ from {basis}."
    elif isinstance(estimates.labels, Estimate):
        first = f"{name}: {format_share(estimates.labels)}, from the labels alone (PPI++: {estimates.ppi})."
    else:
        first = f"{name} cannot be estimated from {basis}: {estimates.labels}."
    if isinstance(claim.labels_needed, int):
        needed = f"An interval {100 * (claim.width or 0):g} points wide requires about {claim.labels_needed:,} labels."
    else:
        needed = "" if claim.labels_needed is None else f"Number of labels for this width: {claim.labels_needed}."
    return [first, *([needed] if needed else [])]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelComparison:
    """Judged answers from two models to the same questions.

    Attributes:
        models: the first model is the author of the first answer in each pair, and its wins are counted.
        labels: human labels for some of the pairs.
        stages: stage name -> run manifest.
    """

    models: tuple[str, str]
    judge: str
    judgments: Mapping[str, Judgment]
    samples: Mapping[str, Sample]
    labels: Mapping[str, Label]
    questions: int
    stages: Mapping[str, Mapping[str, Any]]
    warnings: tuple[str, ...] = ()


def comparison_study(comparison: ModelComparison, resampling: Resampling = DEFAULT_RESAMPLING) -> StudyResult:
    """Compare two models by win rate (raw, at equal length, and corrected with labels), Elo rating, cost, and time."""
    model, opponent = comparison.models
    judgments, samples = comparison.judgments, comparison.samples
    claim = claim_win_rate(judgments, comparison.labels, samples, ClaimOptions(model=model, against=opponent))
    board = leaderboard_study([matches_of_run(comparison.judge, judgments, samples)], resampling)
    rows = _claim_rows(comparison, claim, board, resampling)
    winners = Counter(str(judgment.winner) for judgment in judgments.values())
    alone = _reads_alone(comparison)
    way = "Each answer is judged by itself" if alone else "Each pair is judged in both orders"
    return StudyResult(
        study="compare",
        title=f"{model} against {opponent}",
        protocol=f"{way}; a tie counts as half a win. {board.protocol}",
        findings=(*_comparison_findings(claim, comparison.judge), _elo_sentence(board, model)),
        counts={
            "questions": comparison.questions,
            "pairs": len(samples),
            "wins": winners["1"],
            "ties": winners["tie"],
            "losses": winners["2"],
            "failed": winners["None"],
            "labels": claim.counts.labels,
            "labels_without_pair": claim.counts.labels_without_judgment,
        },
        tables=(LAYOUTS.table("claim", rows, name=claim.name), _stage_table(comparison.stages), *board.tables),
        figures=(forest([row[:2] for row in rows[:-1]], **LAYOUTS.figure("wins", name=claim.name), no_effect=0.5),),
        warnings=(*comparison.warnings, *claim.warnings, *board.warnings),
    )


def _reads_alone(comparison: ModelComparison) -> bool:
    return any(judgment.reads_words and not judgment.compared for judgment in comparison.judgments.values())


def _claim_rows(
    comparison: ModelComparison, claim: WinRateClaim, board: StudyResult, resampling: Resampling
) -> list[tuple[str, Estimate | None, str]]:
    [duel] = board.table("win-rates")
    rate = duel["length_controlled_winrate"]
    equal = rate if isinstance(rate, Estimate) else str(duel["length_note"])
    if isinstance(equal, Estimate) and duel["model"] != claim.model:
        equal = replace(equal, value=1 - equal.value, low=1 - equal.high, high=1 - equal.low)
    shown = comparison.judgments.values()
    both = [(judged.consistent, judged.sample_id) for judged in shown if judged.consistent is not None]
    without = "each answer is judged by itself" if _reads_alone(comparison) else "judged in one order only"
    same = share(np.array([same for same, _ in both]), [key for _, key in both], resampling) if both else without
    estimates = claim.rows()
    corrected = estimates[-3:] if comparison.labels else []
    estimates = [*estimates[:-3], ("judge, at equal length", equal), *corrected, ("same winner in both orders", same)]
    return [(name, *((each, "") if isinstance(each, Estimate) else (None, each))) for name, each in estimates]


def _stage_table(stages: Mapping[str, Mapping[str, Any]]) -> Table:
    def cells(name: str, sessions: Sequence[Mapping[str, Any]]) -> Row:
        def total(*keys: str) -> float | None:
            values = [part[key] for part in sessions for key in keys if part.get(key) is not None]
            return sum(values) if values else None

        sessions = [{**session.get("engine", {}), **session} for session in sessions]
        seconds = total("collect_s", "judge_s", "load_s")
        return (name, total("prompt_tokens"), total("completion_tokens"), seconds, total("cost_usd"))

    rows = [cells(name, manifest.get("sessions", ())) for name, manifest in stages.items()]
    return LAYOUTS.table("stages", rows)


def _comparison_findings(claim: WinRateClaim, judge: str) -> Iterator[str]:
    estimates, counts = claim.estimates, claim.counts
    name = f"{claim.model} beats {claim.opponent}"
    basis = f"{counts.used:,} questions, according to {judge}"
    best = estimates.verdicts
    sentence = f"The win rate of {claim.model} is unknown: {best}"
    if isinstance(best, Estimate):
        sentence = f"{name} on {100 * best.value:.1f} % (95 % interval {format_percents(best)}) of {basis}"
    if isinstance(estimates.labels, Estimate):
        best, verb = estimates.ppi, "corrected with"
        if not isinstance(best, Estimate):
            best, verb = estimates.labels, "based only on"
        sentence += (
            f"; {verb} human labels on {counts.labels:,} of them, the share is {100 * best.value:.1f} % "
            f"({format_percents(best)})"
        )
    elif counts.labels:
        sentence += f"; {estimates.labels}, so the share is not corrected"
    yield f"{sentence}."
    if isinstance(best, str) or best.low <= 0.5 <= best.high:
        yield "The difference is not significant: the interval contains 50 %."
    else:
        by = "human labels" if isinstance(estimates.labels, Estimate) else f"{judge} (not corrected with labels)"
        yield f"{claim.model if best.low > 0.5 else claim.opponent} is better according to {by}."


def _elo_sentence(board: StudyResult, model: str) -> str:
    """Both models are equally far from the mean rating of 1000."""
    [points] = [row["elo"] for row in board.table("leaderboard") if row["model"] == model]
    assert isinstance(points, Estimate), "both models are rated, since they met"
    ahead = replace(points, **{name: 2 * (getattr(points, name) - 1000) for name in ("value", "low", "high")})
    return f"Elo lead of {model}, in points: {format_number(ahead, '+.0f')}."
