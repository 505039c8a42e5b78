"""Choosing a judge by how well it answers, and from which accuracy on self-reference pays (sections 5.2 and 5.3)."""

import math
from dataclasses import dataclass

import numpy as np
from scipy import stats

from judgelm.metrics.correctness import quality, split_change
from judgelm.metrics.correlation import fisher_interval
from judgelm.metrics.resampling import Estimate
from judgelm.studies.result import Row, Table, columns, table
from judgelm.studies.self_reference.aligned_votes import METHOD_NAMES, AlignedVotes, answer_arrays, judged_arrays
from judgelm.studies.self_reference.tables import change_of, own_accuracy
from judgelm.studies.self_reference.truth import Method

_FIELLER = 1.06  # variance of Fisher's z for Spearman's correlation, times n - 3


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeResult:
    """One judge on one data set under one method; shares in [0, 1]."""

    judge: str
    generation: float
    f1: Estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Crossover:
    """From which generation accuracy on self-reference is better than CoT; shares in [0, 1].

    Attributes:
        n: judges with a generation accuracy and a gain.
        gaining: how many of them gain.
        from_accuracy: the lowest accuracy from which on every judge gains; None where the most accurate does not.
        last_without: the highest accuracy of a judge that does not gain; None where all do.
        line: where a straight line through the gains is 0; None with fewer than three judges, where accuracies are
            all alike, or where the line does not rise.
    """

    n: int
    gaining: int
    from_accuracy: float | None
    last_without: float | None
    line: float | None


def judge_results(votes: AlignedVotes, dataset: str, method: Method) -> list[JudgeResult]:
    """The judges of which both numbers are defined, in the order given."""
    results = []
    for judge in votes.judges:
        rows = judged_arrays(votes.of(judge, method, dataset))
        f1 = quality(rows.truth, rows.judged[0], rows.questions, votes.resampling).f1
        generation = own_accuracy(votes, judge, dataset)
        if f1 is not None and generation is not None:
            results.append(JudgeResult(judge=judge, generation=generation.value, f1=f1))
    return results


def crossover(points: list[tuple[float, float]]) -> Crossover:
    """Start of the gains, from (generation accuracy, gain in F1) of each judge.

    Source: Self-Reference, section 5.2 and Figure 4 (about 50 % on MMLU-Pro).
    """
    losing = [accuracy for accuracy, gain in points if gain <= 0]
    last = max(losing, default=None)
    above = [accuracy for accuracy, gain in points if gain > 0 and (last is None or accuracy > last)]
    return Crossover(
        n=len(points),
        gaining=sum(gain > 0 for _, gain in points),
        from_accuracy=min(above, default=None),
        last_without=last,
        line=_root(points),
    )


def crossover_table(votes: AlignedVotes) -> Table:
    """Figure 4 in numbers: from which generation accuracy on self-reference is better, by data set."""
    rows: list[Row] = []
    for dataset in votes.datasets:
        points = []
        for judge in votes.judges:
            change, generation = change_of(votes, judge, dataset), own_accuracy(votes, judge, dataset)
            if change is not None and change[1].f1 is not None and generation is not None:
                points.append((generation.value, change[1].f1.value))
        result = crossover(points)
        rows.append((dataset, result.n, result.gaining, result.last_without, result.from_accuracy, result.line))
    return table(
        rows,
        columns("text", dataset="data set"),
        columns("count", n="judges", gaining="with higher F1"),
        columns("share", last_without="highest accuracy without gain", from_accuracy="all gain from"),
        columns("share", line="a line through the gains is 0 at"),
        name="crossover",
        title="From which generation accuracy on self-reference is better than CoT",
        source="Self-Reference, section 5.2 and Figure 4",
        note="The paper finds about 50 % on MMLU-Pro and expects another value elsewhere. The line is fitted by least "
        "squares to the judges' gains; it needs three judges, unlike accuracies and a rising line.",
    )


def rank_correlation(results: list[JudgeResult]) -> Estimate | None:
    """Spearman's correlation of generation accuracy and F1 over judges, with Fieller's interval.

    None with fewer than five judges, where one of the two is the same for all, or where the order is the same or
    reversed, of which the interval has no width.
    """
    value = _spearman(results)
    return None if value is None or len(results) < 5 else fisher_interval(value, len(results), variance=_FIELLER)


def selection_table(votes: AlignedVotes) -> Table:
    """Cost of choosing the judge that answers best instead of the best judge."""
    rows: list[Row] = []
    for dataset in votes.datasets:
        for method in votes.methods:
            results = judge_results(votes, dataset, method)
            if len(results) < 2:
                continue
            chosen = max(results, key=lambda result: result.generation)
            best = max(results, key=lambda result: result.f1.value)
            rank = 1 + sum(result.f1.value > chosen.f1.value for result in results)
            regret = f1_regret(votes, dataset, method, (chosen.judge, best.judge))
            keys = (dataset, METHOD_NAMES[method], len(results), chosen.judge, best.judge)
            mean = sum(result.f1.value for result in results) / len(results)
            rows.append((*keys, chosen.f1, best.f1, regret, mean, rank, _spearman(results), rank_correlation(results)))
    return table(
        rows,
        columns("text", dataset="data set", method="method"),
        columns("count", n="judges"),
        columns("text", chosen="answers best", best="judges best"),
        columns("share", chosen_f1="F1 of the first", best_f1="F1 of the second", regret="lost by the choice"),
        columns("share", mean_f1="mean F1 of all"),
        columns("count", [("place", "its place by F1")]),
        columns("number", spearman="Spearman", spearman_interval="Spearman, interval"),
        name="judge-selection",
        title="The judge that answers best, chosen as the judge",
        source="Self-Reference, section 5.3 and Figures 1, 4 and 12",
        note="Of judges with equal numbers the first given is chosen. Spearman's correlation is over judges; its "
        "interval needs five of them and an order that is not all the same. What is lost is over the answers that "
        "both judged; its interval does not know that the second judge was picked for its F1.",
    )


def f1_regret(votes: AlignedVotes, dataset: str, method: Method, judges: tuple[str, str]) -> Estimate | float | None:
    """The second judge's F1 minus the first's on the answers that both judged; 0 where they are one judge."""
    if judges[0] == judges[1]:
        return 0.0
    first, second = (
        {row.id: row for row in votes.of(judge, method, dataset) if row.judged is not None} for judge in judges
    )
    ids = [key for key in first if key in second]
    both = answer_arrays([first[key] for key in ids], [second[key] for key in ids])
    # D_J+ and D_J- differ from judge to judge; F1 over all answers is the only part that is used
    return split_change(both.own, both.truth, (both.judged[0], both.judged[1]), both.questions, votes.resampling).f1


def _spearman(results: list[JudgeResult]) -> float | None:
    generation, f1 = [result.generation for result in results], [result.f1.value for result in results]
    if len(results) < 3 or len(set(generation)) < 2 or len(set(f1)) < 2:
        return None
    return float(stats.spearmanr(generation, f1).statistic)


def _root(points: list[tuple[float, float]]) -> float | None:
    accuracies = [accuracy for accuracy, _ in points]
    if len(points) < 3 or np.ptp(accuracies) == 0:
        return None
    line = stats.linregress(accuracies, [gain for _, gain in points])
    if not line.slope > 0 or not math.isfinite(line.slope):
        return None
    return float(-line.intercept / line.slope)
