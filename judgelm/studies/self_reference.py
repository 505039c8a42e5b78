"""Test whether judges judge better if they can answer the question, and whether their own answers help as references.

Source: Self-Reference ("Do Before You Judge").
"""

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from scipy import stats

from judgelm.data.judged_texts import check_same_texts
from judgelm.metrics.correctness import quality, split_change
from judgelm.metrics.correlation import GenerationJudgment, band, fisher_interval, generation_judgment, partial_change
from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.studies import self_reference_answers as judged
from judgelm.studies.result import Figure, HeatMap, Lines, Row, Series, StudyResult, Table, forest, point
from judgelm.studies.self_reference_answers import LAYOUTS, METHOD_NAMES, JudgedAnswers, JudgeRuns, Method
from judgelm.studies.truth_file import AnswerTruth

_FIELLER = 1.06  # variance of Fisher's z for Spearman's correlation, times (n - 3)


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgeQuality:
    """A judge's generation accuracy and F1 score for one data set and method."""

    judge: str
    generation: float
    f1: Estimate


class _Crossover(NamedTuple):
    """`line` is the accuracy at which a line fitted to the gains crosses zero."""

    n: int
    gaining: int
    last_without: float | None
    from_accuracy: float | None
    line: float | None


def self_reference_study(
    runs: Sequence[JudgeRuns], truths: Mapping[str, AnswerTruth], resampling: Resampling
) -> StudyResult:
    """Build all tables and figures from the paper, for runs with CoT, self-reference, or both.

    Raises:
        InputError: the ids of a run do not match, the same id has different texts, or a verdict is not `correct` or
            `incorrect`.
    """
    check_same_texts(
        {
            f"{run.judge}, {method}": judgments
            for run in runs
            for method in judged.METHODS
            if (judgments := run.of(method))
        }
    )
    answers = judged.join_answers(runs, truths, resampling)
    correlated, gained = _correlations(answers), _gains(answers)
    counts = judged.count_answers(runs, truths, answers)
    change = judged.change_table(answers) if gained else None
    return StudyResult(
        study="self-reference",
        title="Answering and judging: self-reference",
        protocol=_protocol(answers),
        findings=_findings(answers, correlated, gained, change),
        counts=counts,
        tables=tuple(_tables(answers, correlated, gained, change)),
        figures=_figures(answers, correlated),
        warnings=_warnings(answers, counts),
    )


def _judge_qualities(answers: JudgedAnswers, dataset: str, method: Method) -> list[JudgeQuality]:
    results = []
    for judge in answers.judges:
        rows = judged.answer_arrays(answers.of(judge, method, dataset), own_known=False)
        f1 = quality(rows.truth, rows.judged[0], rows.questions, answers.resampling).f1
        generation = judged.own_accuracy(answers, judge, dataset)
        if f1 is not None and generation is not None:
            results.append(JudgeQuality(judge=judge, generation=generation.value, f1=f1))
    return results


def crossover(points: list[tuple[float, float]]) -> _Crossover:
    """Find the generation accuracy above which judges improve; `points` contains (generation accuracy, gain in F1).

    Source: Self-Reference, section 5.2 and Figure 4 (about 50 % on MMLU-Pro).
    """
    losing = [accuracy for accuracy, gain in points if gain <= 0]
    last = max(losing, default=None)
    above = [accuracy for accuracy, gain in points if gain > 0 and (last is None or accuracy > last)]
    gaining = sum(gain > 0 for _, gain in points)
    return _Crossover(len(points), gaining, last, min(above, default=None), _root(points))


def _crossover_table(answers: JudgedAnswers) -> Table:
    rows: list[Row] = []
    for dataset in answers.datasets:
        points = []
        for judge in answers.judges:
            change, generation = judged.change_of(answers, judge, dataset), judged.own_accuracy(answers, judge, dataset)
            if change is not None and change[1].f1 is not None and generation is not None:
                points.append((generation.value, change[1].f1.value))
        rows.append((dataset, *crossover(points)))
    return LAYOUTS.table("crossover", rows)


def rank_correlation(results: list[JudgeQuality]) -> Estimate | None:
    """Return Spearman's correlation of generation accuracy and F1, with Fieller's interval; None if n < 5."""
    value = _spearman(results)
    return None if value is None or len(results) < 5 else fisher_interval(value, len(results), variance=_FIELLER)


def _selection_table(answers: JudgedAnswers) -> Table:
    rows: list[Row] = []
    for dataset in answers.datasets:
        for method in answers.methods:
            results = _judge_qualities(answers, dataset, method)
            if len(results) < 2:
                continue
            chosen = max(results, key=lambda result: result.generation)
            best = max(results, key=lambda result: result.f1.value)
            rank = 1 + sum(result.f1.value > chosen.f1.value for result in results)
            regret = _f1_regret(answers, dataset, method, (chosen.judge, best.judge))
            keys = (dataset, METHOD_NAMES[method], len(results), chosen.judge, best.judge)
            mean = sum(result.f1.value for result in results) / len(results)
            rows.append((*keys, chosen.f1, best.f1, regret, mean, rank, _spearman(results), rank_correlation(results)))
    return LAYOUTS.table("judge-selection", rows)


def _f1_regret(
    answers: JudgedAnswers, dataset: str, method: Method, judges: tuple[str, str]
) -> Estimate | float | None:
    if judges[0] == judges[1]:
        return 0.0
    both = judged.answer_arrays(*(answers.of(judge, method, dataset) for judge in judges), own_known=False)
    # only F1 on all answers is comparable, because D_J+ and D_J- differ between judges
    return split_change(both.own, both.truth, (both.judged[0], both.judged[1]), both.questions, answers.resampling).f1


def _spearman(results: list[JudgeQuality]) -> float | None:
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


_Correlations = Mapping[tuple[str, str, Method], GenerationJudgment]
"""(data set, judge, method) -> correlations."""

_Gains = Mapping[tuple[str, str], Estimate | None]
"""(data set, judge) -> increase in the partial correlation due to self-reference."""


def _correlations(answers: JudgedAnswers) -> _Correlations:
    results = {}
    for dataset, judge, method in answers.runs():
        arrays = judged.answer_arrays(answers.of(judge, method, dataset))
        results[dataset, judge, method] = generation_judgment(*arrays.triple(), arrays.questions, answers.resampling)
    return results


def _correlation_table(results: _Correlations) -> Table:
    rows: list[Row] = []
    for (dataset, judge, method), result in results.items():
        partial = result.g_j_given_a
        plain = (result.g_j.estimate, result.g_a.estimate, result.j_a.estimate)
        strength = "undefined" if partial.estimate is None else band(partial.estimate.value)
        undefined = f"undefined in {100 * partial.undefined_resamples:.1f} % of the resamples"
        remark = partial.why if partial.estimate is None else undefined if partial.undefined_resamples else ""
        keys = (dataset, judge, METHOD_NAMES[method], result.n)
        rows.append((*keys, *plain, partial.estimate, partial.fisher, strength, remark))
    return LAYOUTS.table("partial-correlation", rows)


def _gains(answers: JudgedAnswers) -> _Gains:
    changes = {}
    for dataset, judge in answers.cells():
        both = answers.both(judge, dataset)
        if both.n:
            changes[dataset, judge] = partial_change(both.triple(0), both.triple(1), both.questions, answers.resampling)
    return changes


def _gain_table(results: _Correlations, gained: _Gains) -> Table:
    rows: list[Row] = []
    for (dataset, judge), gain in gained.items():
        cot, guided = (results[dataset, judge, method].g_j_given_a.estimate for method in ("cot", "guided"))
        strength = "undefined" if guided is None else band(guided.value)
        rows.append((dataset, judge, cot, guided, gain, strength))
    return LAYOUTS.table("partial-correlation-gain", rows)


def _tables(answers: JudgedAnswers, correlated: _Correlations, gained: _Gains, change: Table | None) -> Iterator[Table]:
    yield from (judged.quality_table(answers), judged.split_table(answers), judged.four_way_table(answers))
    yield from (judged.overconfidence_table(answers, method) for method in answers.methods)
    yield _correlation_table(correlated)
    if change is not None:
        yield from (_gain_table(correlated, gained), change, _crossover_table(answers))
    if len(answers.judges) > 1:
        yield _selection_table(answers)


def _protocol(answers: JudgedAnswers) -> str:
    methods = " and ".join(METHOD_NAMES[method] for method in answers.methods)
    return (
        f"Judges decide whether an agent's answer is correct ({methods}). Agents are pooled. Failed judgments are "
        f"excluded and counted. Judgments and truths are joined by id. Intervals are 95 % from "
        f"{answers.resampling.resamples} resamples of questions."
    )


def _findings(
    answers: JudgedAnswers, correlated: _Correlations, gained: _Gains, change: Table | None
) -> tuple[str, ...]:
    sentences = []
    for method in answers.methods:
        results = [result.g_j_given_a.estimate for (*_, way), result in correlated.items() if way == method]
        bands = Counter("undefined" if result is None else band(result.value) for result in results)
        sentences.append(
            f"{METHOD_NAMES[method]}: the partial correlation between answering and judging is weak in "
            f"{bands['weak']}, moderate in {bands['moderate']}, strong in {bands['strong']}, and undefined in "
            f"{bands['undefined']} of {bands.total()} cases."
        )
    if gains := [gain.value for gain in gained.values() if gain is not None]:
        sentences.append(
            f"On average, self-reference changes the partial correlation by {sum(gains) / len(gains):+.3f} (unweighted "
            f"mean over {len(gains)} cases)."
        )
    if change is not None:
        parts = {"f1_right": "answers correctly (D_J+)", "f1_wrong": "answers incorrectly (D_J-)"}
        sentences += [_change_sentence(change, key, part) for key, part in parts.items()]
    return tuple(filter(None, sentences))


def _change_sentence(change: Table, key: str, part: str) -> str:
    values = [cell for cell in change.column(key) if isinstance(cell, Estimate)]
    if not values:
        return ""
    rises, falls = sum(estimate.value > 0 for estimate in values), sum(estimate.value < 0 for estimate in values)
    sure = sum(estimate.low > 0 or estimate.high < 0 for estimate in values)
    return (
        f"If the judge {part}, self-reference raises F1 in {rises} and lowers it in {falls} of {len(values)} cases "
        f"({sure} significant)."
    )


def _warnings(answers: JudgedAnswers, counts: Mapping[str, int]) -> tuple[str, ...]:
    warnings = []
    if counts["own answer unknown"]:
        warnings.append(
            f"For {counts['own answer unknown']} answers, it is unknown whether the judge's own answer is right, so "
            "they are excluded from D_J+, D_J-, and correlations. Add judge_correct to the truth file, or add answer "
            "and use runs with self-solves."
        )
    if counts["failed"]:
        warnings.append(f"{counts['failed']} of {counts['judgments']} judgments failed and are excluded.")
    if len(answers.judges) < 2:
        warnings.append("The table for choosing a judge requires at least two judges.")
    return tuple(warnings)


def _figures(answers: JudgedAnswers, results: _Correlations) -> tuple[Figure, ...]:
    drawn: list[Figure] = []
    for index, dataset in enumerate(answers.datasets, 1):
        drawn.append(_scatter(answers, dataset, index))
        for method in answers.methods:
            drawn += _heat_maps(answers, dataset, method, index)
    partial = forest(
        [
            (f"{dataset}, {judge}", result.g_j_given_a.estimate, METHOD_NAMES[method])
            for (dataset, judge, method), result in results.items()
        ],
        **LAYOUTS.figure("partial-correlations"),
    )
    return (*drawn, partial) if partial.rows else tuple(drawn)


def _scatter(answers: JudgedAnswers, dataset: str, index: int) -> Lines:
    def series(method: Method) -> Series:
        results = _judge_qualities(answers, dataset, method)
        x, y = tuple(result.generation for result in results), tuple(result.f1 for result in results)
        return Series(name=METHOD_NAMES[method], x=x, y=y, labels=tuple(result.judge for result in results))

    words = LAYOUTS.figure("generation-and-judgment", dataset=dataset, index=index)
    return Lines(**words, series=tuple(map(series, answers.methods)), joined=False)


def _heat_maps(answers: JudgedAnswers, dataset: str, method: Method, index: int) -> list[HeatMap]:
    judges = tuple(judge for judge in answers.judges if answers.of(judge, method, dataset))
    if not judges:
        return []
    cells = [judged.four_way_cells(answers, judge, method, dataset) for judge in judges]
    words = LAYOUTS.figure("four-way-accuracy", dataset=dataset, method=method, name=METHOD_NAMES[method], index=index)
    values = tuple(tuple(point(cell.accuracy) for cell in row) for row in cells)
    return [HeatMap(**words, rows=judges, columns=judged.WAYS, values=values)]
