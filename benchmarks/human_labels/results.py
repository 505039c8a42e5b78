"""All figures of one set: the baselines, and each judge beside them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from benchmarks.human_labels import baselines
from benchmarks.human_labels.judging import JudgedSet
from benchmarks.human_labels.measures import (
    BANDS,
    Calibration,
    Decided,
    Floats,
    Verdicts,
    agreement_credits,
    calibration,
    decided,
    decided_credits,
    difference,
    position,
    protocol_credits,
    share_of,
)
from benchmarks.human_labels.sets import HumanSet, Rows
from judgelm.metrics.resampling import Estimate, Resampling, mean
from judgelm.studies.pair_metrics import PositionEstimates

Indices = NDArray[np.int_]
CONSTANT, LONGER, GENERATOR = "constant label", "longer answer", "generator's win rate"
CROSS_FITTED = "generator's win rate, cross-fitted"
TRIVIAL = (CONSTANT, LONGER, GENERATOR)
"""Those that "the best trivial baseline" is chosen from; the cross-fitted one knows labels of the set itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """Shares right, in [0, 1].

    Attributes:
        agreement: over all labels, ties included, by antisymmetrised P(first better).
        decided: over the labels that name a winner; half for a P of exactly 0.5.
        protocol: by the authors' protocol.
    """

    agreement: Estimate
    decided: Estimate
    protocol: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Band:
    """Pairs with a decided label whose longer answer is `above` to `up_to` times as long; None: no end."""

    above: float
    up_to: float | None
    judge: Estimate
    longer: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeResult:
    """A judge on a set.

    Attributes:
        n: pairs of the set that it judged.
        tie_threshold: fitted on dev, 0 where the set's labels are never ties.
        over_trivial: agreement minus that of the best trivial baseline, paired.
        decided_over_trivial: the same over decided labels, with the baseline that is best there.
        position: of each order's P; None where each answer was judged by itself.
        consistent_lines: share of pairs with the same winner in both orders' greedy score lines.
        names_longer: share of pairs of unequal length whose longer answer P prefers.
        bands: accuracy on decided labels, by difference in length.
        categories: the same by the set's own categories; empty where it has one.
        seconds: a pair took, without loading; None where it was not recorded.
    """

    n: int
    figures: Figures
    tie_threshold: float
    over_trivial: Estimate
    decided_over_trivial: Estimate
    position: PositionEstimates | None
    consistent_lines: float | None
    names_longer: Estimate | None
    calibration: Calibration | None
    bands: tuple[Band, ...]
    failures: Mapping[str, int]
    cut: int
    assigned: float | None
    prompt_tokens: int
    reply_tokens: int | None
    categories: Mapping[str, Estimate]
    seconds: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetResult:
    """A set.

    Attributes:
        ties: labels that are ties, of n.
        baselines: by name.
        best: the trivial baseline of the highest agreement; `best_decided` of the highest over decided labels.
        judges: by name.
        first_over: agreement of the first judge minus that of each other, over the pairs that both judged.
    """

    n: int
    ties: int
    questions: int
    baselines: Mapping[str, Figures]
    best: str
    best_decided: str
    judges: Mapping[str, JudgeResult]
    first_over: Mapping[str, Estimate]


def baseline_verdicts(rows: Rows, rates: baselines.WinRates | None, seed: int) -> dict[str, Verdicts]:
    """The verdicts of every baseline that this set allows."""
    truth = rows.truth
    sides: dict[str, Floats | None] = {CONSTANT: baselines.constant(truth), LONGER: baselines.longer(rows.samples)}
    sides[GENERATOR] = None if rates is None else baselines.generator(rows.samples, rates)
    sides[CROSS_FITTED] = baselines.generator_cross_fitted(rows.samples, truth, seed)
    return {name: Verdicts.of_baseline(side) for name, side in sides.items() if side is not None}


def figures_of(
    human_set: HumanSet, rows: Rows, verdicts: Verdicts, tie_threshold: float, resampling: Resampling
) -> Figures:
    """The three shares of verdicts."""
    winners = np.flatnonzero(rows.truth != 0)
    named = rows.part(winners)
    right = decided_credits(verdicts.probability[winners], named.truth)
    by_protocol = protocol_credits(verdicts, rows.truth, human_set.protocol, tie_threshold)
    return Figures(
        agreement=share_of(agreement_credits(verdicts, rows.truth, tie_threshold), rows.questions, resampling),
        decided=share_of(right, named.questions, resampling),
        protocol=share_of(by_protocol, rows.questions, resampling),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Entrant:
    """A judge's verdicts on a set, its tie threshold from dev labels, and its decided dev pairs (None without dev)."""

    judged: JudgedSet
    tie_threshold: float
    dev: Decided | None


def result_of(
    human_set: HumanSet,
    rows: Rows,
    rates: baselines.WinRates | None,
    entrants: Mapping[str, Entrant],
    resampling: Resampling,
) -> SetResult:
    """All figures of a set.

    Args:
        human_set: the set.
        rows: its pairs.
        rates: of generators, fitted on training rows; None without.
        entrants: judges by name, the first being compared with each of the others.
        resampling: seed and number of resamples.
    """
    known = baseline_verdicts(rows, rates, resampling.seed)
    figures = {name: figures_of(human_set, rows, verdicts, 0.0, resampling) for name, verdicts in known.items()}
    trivial = [name for name in TRIVIAL if name in known]
    best = max(trivial, key=lambda name: figures[name].agreement.value)
    best_decided = max(trivial, key=lambda name: figures[name].decided.value)
    if not human_set.ties:
        entrants = {name: replace(entrant, tie_threshold=0.0) for name, entrant in entrants.items()}
    beside = (known[best], known[best_decided])
    return SetResult(
        n=len(rows.samples),
        ties=int((rows.truth == 0).sum()),
        questions=len(set(rows.questions)),
        baselines=figures,
        best=best,
        best_decided=best_decided,
        judges={name: judge_result(human_set, rows, entrant, beside, resampling) for name, entrant in entrants.items()},
        first_over=dict(_first_over(entrants, resampling)) if entrants else {},
    )


def _first_over(entrants: Mapping[str, Entrant], resampling: Resampling) -> Iterator[tuple[str, Estimate]]:
    first = next(iter(entrants.values()))
    for name, other in list(entrants.items())[1:]:
        (ours, theirs), rows = _shared(first.judged, other.judged)
        credits = (
            agreement_credits(first.judged.verdicts.part(ours), rows.truth, first.tie_threshold),
            agreement_credits(other.judged.verdicts.part(theirs), rows.truth, other.tie_threshold),
        )
        yield name, difference(*credits, rows.questions, resampling)


def _shared(first: JudgedSet, second: JudgedSet) -> tuple[tuple[Indices, Indices], Rows]:
    """The places of the pairs that both judged, in each, and those pairs."""
    place = {sample.id: index for index, sample in enumerate(second.rows.samples)}
    ours = np.array([index for index, sample in enumerate(first.rows.samples) if sample.id in place], dtype=int)
    theirs = np.array([place[first.rows.samples[index].id] for index in ours], dtype=int)
    return (ours, theirs), first.rows.part(ours)


def judge_result(
    human_set: HumanSet, rows: Rows, entrant: Entrant, beside: tuple[Verdicts, Verdicts], resampling: Resampling
) -> JudgeResult:
    """A judge's figures; `beside` are the best trivial verdicts on `rows` over all and over decided labels."""
    judged, threshold = entrant.judged, entrant.tie_threshold
    place = {sample.id: index for index, sample in enumerate(rows.samples)}
    chosen = np.array([place[sample.id] for sample in judged.rows.samples], dtype=int)
    beside, rows = (beside[0].part(chosen), beside[1].part(chosen)), judged.rows
    verdicts, truth, questions = judged.verdicts, rows.truth, rows.questions
    winners = np.flatnonzero(truth != 0)
    named = rows.part(winners)
    right, right_beside = (decided_credits(side.probability[winners], named.truth) for side in (verdicts, beside[1]))
    over = agreement_credits(verdicts, truth, threshold) - agreement_credits(beside[0], truth, 0.0)
    pairs = decided(verdicts.probability, truth, questions)
    return JudgeResult(
        n=len(rows.samples),
        figures=figures_of(human_set, rows, verdicts, threshold, resampling),
        tie_threshold=threshold,
        over_trivial=mean(over, questions, resampling),
        decided_over_trivial=difference(right, right_beside, named.questions, resampling),
        position=None if judged.is_order_free else position(verdicts, questions, resampling),
        consistent_lines=judged.consistent,
        names_longer=_names_longer(rows, verdicts.probability, resampling),
        calibration=calibration(pairs, entrant.dev, resampling) if pairs.outcome.size else None,
        bands=tuple(_bands(named, right, resampling)),
        failures=judged.failures,
        cut=judged.cut,
        assigned=judged.assigned,
        prompt_tokens=judged.prompt_tokens,
        reply_tokens=judged.reply_tokens,
        categories=dict(_by_category(named, right, resampling)),
        seconds=None if judged.seconds is None else judged.seconds / len(rows.samples),
    )


def _by_category(named: Rows, right: Floats, resampling: Resampling) -> Iterator[tuple[str, Estimate]]:
    categories = np.array([sample.category or "" for sample in named.samples])
    names = sorted(set(categories.tolist()))
    for name in names if len(names) > 1 else ():
        inside = np.flatnonzero(categories == name)
        yield name, share_of(right[inside], [named.questions[index] for index in inside], resampling)


@dataclass(frozen=True, slots=True, kw_only=True)
class Pooled:
    """All sets together, over the labels that name a winner.

    Attributes:
        decided: a judge's share right.
        first_over: the first judge's minus it, over the pairs that both judged.
        over: its share minus that of the judge named by `beside`, over the pairs that both judged.
    """

    decided: Estimate
    first_over: Estimate
    beside: str | None
    over: Estimate | None


def pooled(
    judged: Mapping[str, Mapping[str, JudgedSet]], beside: Mapping[str, str | None], resampling: Resampling
) -> dict[str, Pooled]:
    """The judges that judged as many sets as the first; questions of different sets are different clusters.

    Args:
        judged: judge -> set -> verdicts; the first judge is compared with each.
        beside: judge -> another judge that it is compared with.
        resampling: seed and number of resamples.
    """
    first = next(iter(judged.values()), {})
    return {
        judge: Pooled(
            decided=_share(by_set, resampling),
            first_over=_minus(first, by_set, resampling),
            beside=(other := beside.get(judge)),
            over=_minus(by_set, judged[other], resampling) if other is not None and other in judged else None,
        )
        for judge, by_set in judged.items()
        if by_set.keys() >= first.keys()
    }


def _share(by_set: Mapping[str, JudgedSet], resampling: Resampling) -> Estimate:
    credit, clusters = _decided_together(
        {name: (part, np.arange(len(part.rows.samples))) for name, part in by_set.items()}
    )
    return share_of(credit, clusters, resampling)


def _minus(first: Mapping[str, JudgedSet], other: Mapping[str, JudgedSet], resampling: Resampling) -> Estimate:
    places = {name: _shared(part, other[name])[0] for name, part in first.items()}
    ours, clusters = _decided_together({name: (part, places[name][0]) for name, part in first.items()})
    theirs, _ = _decided_together({name: (other[name], places[name][1]) for name in first})
    return difference(ours, theirs, clusters, resampling)


def _decided_together(parts: Mapping[str, tuple[JudgedSet, Indices]]) -> tuple[Floats, list[tuple[str, str]]]:
    """Credits of some places of each set, where the label names a winner, and their clusters."""
    credit: list[Floats] = []
    clusters: list[tuple[str, str]] = []
    for name, (judged, places) in parts.items():
        winners = places[judged.rows.truth[places] != 0]
        rows = judged.rows.part(winners)
        credit.append(decided_credits(judged.verdicts.probability[winners], rows.truth))
        clusters += [(name, question) for question in rows.questions]
    return np.concatenate(credit), clusters


def _names_longer(rows: Rows, probability: Floats, resampling: Resampling) -> Estimate | None:
    longer = baselines.longer(rows.samples)
    chosen = np.flatnonzero((longer != 0.5) & ~np.isnan(probability))
    if not chosen.size:
        return None
    alike = decided_credits(probability[chosen], np.where(longer[chosen] > 0.5, 1, -1))
    return share_of(alike, [rows.questions[index] for index in chosen], resampling)


def _bands(named: Rows, right: Floats, resampling: Resampling) -> Iterator[Band]:
    ratios = baselines.length_ratios(named.samples)
    longer_right = decided_credits(baselines.longer(named.samples), named.truth)
    for above, up_to in BANDS:
        inside = np.flatnonzero((ratios > above if above > 1 else ratios >= 1) & (ratios <= (up_to or np.inf)))
        if inside.size:
            questions = [named.questions[index] for index in inside]
            judge, longer = (share_of(credit[inside], questions, resampling) for credit in (right, longer_right))
            yield Band(above=above, up_to=up_to, judge=judge, longer=longer)
