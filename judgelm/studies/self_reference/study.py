"""The study of self-reference: judging what the judge can answer itself, and its own answer as a reference.

Source: Self-Reference ("Do Before You Judge"). Files are described in `judgelm.studies.self_reference_answers`.
"""

from collections.abc import Iterator, Mapping, Sequence

from judgelm.data.judged_texts import check_same_texts
from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.studies import self_reference_answers
from judgelm.studies.result import Figure, Forest, ForestRow, HeatMap, Lines, Series, StudyResult, Table
from judgelm.studies.self_reference import correlation
from judgelm.studies.self_reference.correlation import Correlations
from judgelm.studies.self_reference.selection import crossover_table, judge_results, selection_table
from judgelm.studies.self_reference_answers import (
    METHOD_NAMES,
    METHODS,
    AlignedVotes,
    AnswerTruth,
    JudgeRuns,
    Method,
    align_votes,
    count_votes,
)

Gains = Mapping[tuple[str, str], Estimate | None]


def self_reference_study(
    runs: Sequence[JudgeRuns], truths: Mapping[str, AnswerTruth], resampling: Resampling
) -> StudyResult:
    """All tables and figures of the paper for these judges.

    Args:
        runs: one entry for each judge, with CoT, self-reference or both.
        truths: by sample id.
        resampling: seed and number of resamples of every interval.

    Raises:
        InputError: a run joins with no truth, runs judged other texts under one id, or verdicts are not `correct` and
            `incorrect`.
    """
    check_same_texts(
        {f"{run.judge}, {method}": judgments for run in runs for method in METHODS if (judgments := run.of(method))}
    )
    votes = align_votes(runs, truths, resampling)
    correlated, gained = correlation.correlations(votes), correlation.gains(votes)
    counts = count_votes(runs, truths, votes)
    change = self_reference_answers.change_table(votes) if gained else None
    return StudyResult(
        study="self-reference",
        title="Answering and judging: self-reference",
        protocol=_protocol(votes),
        findings=_findings(votes, correlated, gained, change),
        counts=counts,
        tables=tuple(_tables(votes, correlated, gained, change)),
        figures=_figures(votes, correlated),
        warnings=_warnings(votes, counts),
    )


def _tables(votes: AlignedVotes, correlated: Correlations, gained: Gains, change: Table | None) -> Iterator[Table]:
    yield from (
        self_reference_answers.quality_table(votes),
        self_reference_answers.split_table(votes),
        self_reference_answers.four_way_table(votes),
    )
    yield from (self_reference_answers.overconfidence_table(votes, method) for method in votes.methods)
    yield correlation.correlation_table(correlated)
    if change is not None:
        yield from (correlation.gain_table(correlated, gained), change, crossover_table(votes))
    if len(votes.judges) > 1:
        yield selection_table(votes)


def _protocol(votes: AlignedVotes) -> str:
    methods = " and ".join(METHOD_NAMES[method] for method in votes.methods)
    return (
        f"Judges were asked pointwise whether an agent's answer is correct ({methods}); the agents are pooled, failed "
        "judgments are left out and counted, the truth is joined by id alone, since it has no texts, intervals are "
        f"95 % from {votes.resampling.resamples} resamples of questions."
    )


def _findings(votes: AlignedVotes, correlated: Correlations, gained: Gains, change: Table | None) -> tuple[str, ...]:
    sentences = []
    for method in votes.methods:
        bands = correlation.band_counts(correlated, method)
        sentences.append(
            f"{METHOD_NAMES[method]}: the partial correlation of answering and judging is weak in {bands['weak']}, "
            f"moderate in {bands['moderate']} and strong in {bands['strong']} of {bands.total()} cases, undefined in "
            f"{bands['undefined']}."
        )
    if mean := correlation.mean_gain(gained):
        sentences.append(
            f"Self-reference raises the partial correlation by {mean[0]:.3f} on average, over n = {mean[1]} cases "
            "(a plain mean of cases)."
        )
    if change is not None:
        parts = {"f1_right": "answers right (D_J+)", "f1_wrong": "answers wrong (D_J-)"}
        sentences += [_change_sentence(change, key, part) for key, part in parts.items()]
    return tuple(filter(None, sentences))


def _change_sentence(change: Table, key: str, part: str) -> str:
    """In how many cases F1 rises and falls on one part."""
    values = [cell for cell in change.column(key) if isinstance(cell, Estimate)]
    if not values:
        return ""
    rises, falls = sum(estimate.value > 0 for estimate in values), sum(estimate.value < 0 for estimate in values)
    sure = sum(estimate.low > 0 or estimate.high < 0 for estimate in values)
    return (
        f"Where the judge {part}, self-reference raises F1 in {rises} and lowers it in {falls} of {len(values)} cases "
        f"({sure} with an interval that leaves out 0)."
    )


def _warnings(votes: AlignedVotes, counts: Mapping[str, int]) -> tuple[str, ...]:
    warnings = []
    if counts["own answer unknown"]:
        warnings.append(
            f"Of {counts['own answer unknown']} answers it is not known whether the judge's own answer is right; "
            "D_J+, D_J- and correlations leave them out. Give judge_correct in the truth file, or answer and runs that "
            "hold solves."
        )
    if counts["failed"]:
        warnings.append(f"{counts['failed']} of {counts['judgments']} judgments failed and are in no share.")
    if len(votes.judges) < 2:
        warnings.append("One judge: there is no choice among judges to look at.")
    return tuple(warnings)


def _figures(votes: AlignedVotes, results: Correlations) -> tuple[Figure, ...]:
    """All figures, in the paper's order."""
    drawn: list[Figure] = []
    for index, dataset in enumerate(votes.datasets, 1):
        drawn.append(_scatter(votes, dataset, index))
        for method in votes.methods:
            drawn += _heat_maps(votes, dataset, method, index)
        if change := _change_map(votes, dataset, index):
            drawn.append(change)
    forest = _partial_forest(results)
    return (*drawn, forest) if forest.rows else tuple(drawn)


def _scatter(votes: AlignedVotes, dataset: str, index: int) -> Lines:
    """Figures 1, 12 and 4: a judge's generation accuracy against its F1, one series for each method."""
    series = []
    for method in votes.methods:
        results = judge_results(votes, dataset, method)
        x, y = tuple(result.generation for result in results), tuple(result.f1 for result in results)
        labels = tuple(result.judge for result in results)
        series.append(Series(name=METHOD_NAMES[method], x=x, y=y, labels=labels))
    return Lines(
        name=f"generation-and-judgment-{index}",
        title=f"Generation and judgment, {dataset}",
        x_label="share of questions that the judge answers right",
        y_label="F1 of its judgments",
        series=tuple(series),
        joined=False,
    )


def _heat_maps(votes: AlignedVotes, dataset: str, method: Method, index: int) -> list[HeatMap]:
    """Figures 2 and 13-17: accuracy and own-class F1 in the four parts, a row for each judge."""
    judges = tuple(judge for judge in votes.judges if votes.of(judge, method, dataset))
    if not judges:
        return []
    cells = [self_reference_answers.four_way_cells(votes, judge, method, dataset) for judge in judges]

    def draw(name: str, label: str, values: list[tuple[float | None, ...]]) -> HeatMap:
        return HeatMap(
            name=f"{name}-{method}-{index}",
            title=f"{label}, {dataset}, {METHOD_NAMES[method]}",
            x_label="judge's own answer and agent's answer",
            y_label="judge",
            value_label=label,
            rows=judges,
            columns=self_reference_answers.WAYS,
            values=tuple(values),
        )

    return [
        draw("four-way-accuracy", "accuracy", [tuple(_value(cell.accuracy) for cell in row) for row in cells]),
        draw("four-way-f1", "own-class F1", [tuple(_value(cell.own_class_f1) for cell in row) for row in cells]),
    ]


def _change_map(votes: AlignedVotes, dataset: str, index: int) -> HeatMap | None:
    """Change by self-reference in the four parts, which shows the loss on D_J-; None without both methods."""
    changes = {
        judge: pair[1] for judge in votes.judges if (pair := self_reference_answers.change_of(votes, judge, dataset))
    }
    if not changes:
        return None
    return HeatMap(
        name=f"four-way-change-{index}",
        title=f"Accuracy, self-reference minus CoT, {dataset}",
        x_label="judge's own answer and agent's answer",
        y_label="judge",
        value_label="change of accuracy",
        rows=tuple(changes),
        columns=self_reference_answers.WAYS,
        values=tuple(tuple(_value(cell) for cell in change.accuracies) for change in changes.values()),
        centred=True,
    )


def _partial_forest(results: Correlations) -> Forest:
    """Tables 3 and 4 as a forest: the partial correlation of each case, coloured by method."""
    return Forest(
        name="partial-correlations",
        title="Generation and judgment, the agent's correctness held fixed",
        x_label="partial correlation r(G, J | A)",
        rows=tuple(
            ForestRow(label=f"{dataset}, {judge}", estimate=result.g_j_given_a.estimate, group=METHOD_NAMES[method])
            for (dataset, judge, method), result in results.items()
            if result.g_j_given_a.estimate is not None
        ),
    )


def _value(estimate: Estimate | None) -> float | None:
    return None if estimate is None else estimate.value
