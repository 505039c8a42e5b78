"""Self-Reference's figures: generation against judgment, heat maps of the four-way split, partial correlations."""

from judgelm.metrics.resampling import Estimate
from judgelm.studies.result import Figure, Forest, ForestRow, HeatMap, Lines, Series
from judgelm.studies.self_reference.aligned_votes import METHOD_NAMES, AlignedVotes
from judgelm.studies.self_reference.correlation import Correlations
from judgelm.studies.self_reference.selection import judge_results
from judgelm.studies.self_reference.tables import WAYS, change_of, four_way_cells
from judgelm.studies.self_reference.truth import Method


def figures(votes: AlignedVotes, results: Correlations) -> tuple[Figure, ...]:
    """All figures, in the paper's order."""
    drawn: list[Figure] = []
    for index, dataset in enumerate(votes.datasets, 1):
        drawn.append(scatter(votes, dataset, index))
        for method in votes.methods:
            drawn += heat_maps(votes, dataset, method, index)
        if change := change_map(votes, dataset, index):
            drawn.append(change)
    forest = partial_forest(results)
    return (*drawn, forest) if forest.rows else tuple(drawn)


def scatter(votes: AlignedVotes, dataset: str, index: int) -> Lines:
    """Figures 1, 12 and 4: a judge's generation accuracy against its F1, one series for each method."""
    series = []
    for method in votes.methods:
        points = judge_results(votes, dataset, method)
        series.append(
            Series(
                name=METHOD_NAMES[method],
                x=tuple(point.generation for point in points),
                y=tuple(point.f1 for point in points),
                labels=tuple(point.judge for point in points),
            )
        )
    return Lines(
        name=f"generation-and-judgment-{index}",
        title=f"Generation and judgment, {dataset}",
        x_label="share of questions that the judge answers right",
        y_label="F1 of its judgments",
        series=tuple(series),
        joined=False,
    )


def heat_maps(votes: AlignedVotes, dataset: str, method: Method, index: int) -> list[HeatMap]:
    """Figures 2 and 13-17: accuracy and own-class F1 in the four parts, a row for each judge."""
    judges = tuple(judge for judge in votes.judges if votes.of(judge, method, dataset))
    if not judges:
        return []
    cells = [four_way_cells(votes, judge, method, dataset) for judge in judges]

    def draw(name: str, label: str, values: list[tuple[float | None, ...]]) -> HeatMap:
        return HeatMap(
            name=f"{name}-{method}-{index}",
            title=f"{label}, {dataset}, {METHOD_NAMES[method]}",
            x_label="judge's own answer and agent's answer",
            y_label="judge",
            value_label=label,
            rows=judges,
            columns=WAYS,
            values=tuple(values),
        )

    accuracy = [tuple(_value(cell.accuracy) for cell in row) for row in cells]
    own_class = [tuple(_value(cell.own_class_f1) for cell in row) for row in cells]
    return [
        draw("four-way-accuracy", "accuracy", accuracy),
        draw("four-way-f1", "own-class F1", own_class),
    ]


def change_map(votes: AlignedVotes, dataset: str, index: int) -> HeatMap | None:
    """What self-reference changes in the four parts, so that the loss on D_J- stands out; None without both methods."""
    changes = {judge: pair[1] for judge in votes.judges if (pair := change_of(votes, judge, dataset))}
    if not changes:
        return None
    return HeatMap(
        name=f"four-way-change-{index}",
        title=f"Accuracy, self-reference minus CoT, {dataset}",
        x_label="judge's own answer and agent's answer",
        y_label="judge",
        value_label="change of accuracy",
        rows=tuple(changes),
        columns=WAYS,
        values=tuple(tuple(_value(cell) for cell in change.accuracies) for change in changes.values()),
        centred=True,
    )


def partial_forest(results: Correlations) -> Forest:
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
