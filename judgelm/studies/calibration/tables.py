"""The tables and figures of `judgelm.studies.calibration.study`."""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from judgelm.metrics.calibration import TEMPERATURES, Scaling
from judgelm.metrics.resampling import Estimate, Resampling, estimate
from judgelm.studies.calibration.measures import Gain, Quality, means, slice_of, values
from judgelm.studies.pair_labels import JoinedPair, group_by_value, winner_of
from judgelm.studies.result import (
    Cell,
    Figure,
    Forest,
    ForestRow,
    Lines,
    Series,
    Table,
    columns,
    excerpt,
    file_slug,
    table,
)

GroupNumbers = Mapping[str, Mapping[str, tuple[int, list[Estimate]]]]
"""Name of a grouping -> value -> number of pairs, and their Brier score, log loss and overconfidence."""

MOST_MISTAKES = 500
_LEAST_IN_FOREST = 10


def score_table(qualities: Sequence[Quality]) -> Table:
    """Each set of probabilities by all its numbers."""
    return table(
        [
            (
                quality.name,
                quality.brier,
                quality.log_loss,
                quality.error.error,
                quality.error.by_chance,
                quality.overconfidence,
            )
            for quality in qualities
        ],
        columns("text", probabilities="Probabilities"),
        columns("number", brier="Brier score", log_loss="Log loss (nats)", error="Expected calibration error"),
        columns("number", error_by_chance="The same by chance alone"),
        columns("share", overconfidence="Mean confidence minus share right"),
        name="scores",
        title="Scores of the probabilities",
        note="Lower is better; always answering 0.5 has a Brier score of 0.250 and a log loss of 0.693. The "
        "calibration error is never negative: read it beside what a perfectly calibrated judge with the same "
        "probabilities and as many pairs would show. Confidence is the probability of the winner named, max(p, 1 - p).",
    )


def gain_table(gains: Sequence[Gain]) -> Table:
    """Effect of each scaling over the pairs it was not fitted on."""
    return table(
        [(gain.name, gain.brier, gain.log_loss, gain.error) for gain in gains],
        columns("text", scaling="Scaling"),
        columns("number", brier="Brier score", log_loss="Log loss (nats)", error="Expected calibration error"),
        name="gains",
        title="Effect of a scaling on the rest",
        note="With the scaling minus without it, over the same pairs and resampled together; below 0 is better. The "
        "scaling itself is held fixed.",
    )


def scaling_table(scalings: Mapping[str, Scaling | None]) -> Table:
    """The fitted parameters."""
    rows: list[tuple[Cell, ...]] = [
        (name, *((None, None, None) if scaling is None else (scaling.temperature, scaling.slope, scaling.intercept)))
        for name, scaling in scalings.items()
    ]
    low, high = TEMPERATURES
    return table(
        rows,
        columns("text", scaling="Scaling"),
        columns("number", temperature="Temperature", slope="Slope", intercept="Intercept"),
        name="scalings",
        title="The scalings",
        note="p becomes sigmoid(slope * logit(p) + intercept). A temperature is 1 / slope without intercept; above 1 "
        "the judge was too sure. An intercept other than 0 prefers one position in the sample regardless of the judge. "
        f"A row of dashes has no best fit: no temperature from {low:g} to {high:g} is best, or a threshold on the "
        "probability separates the outcomes.",
    )


def reliability_table(qualities: Sequence[Quality]) -> Table:
    """All reliability curves."""
    rows = [(quality.name, bin.low, bin.high, bin.mean, bin.hits) for quality in qualities for bin in quality.bins]
    return table(
        rows,
        columns("text", probabilities="Probabilities"),
        columns("number", above="Above", up_to="Up to", mean="Mean probability"),
        columns("share", first_better="First is better"),
        name="reliability",
        title="Reliability of P(first better)",
        note="Bins without pairs are left out; the first bin includes 0.",
    )


def group_numbers(
    rows: Sequence[JoinedPair], groups: Mapping[str, Mapping[str, str]], resampling: Resampling
) -> GroupNumbers:
    """Brier score, log loss and overconfidence of each value of each grouping, the largest group first."""
    return {name: _numbers_by_value(rows, members, resampling) for name, members in groups.items()}


def _numbers_by_value(
    rows: Sequence[JoinedPair], members: Mapping[str, str], resampling: Resampling
) -> dict[str, tuple[int, list[Estimate]]]:
    numbers = {}
    for value, pairs in group_by_value(rows, lambda row: members.get(row.id)).items():
        part = slice_of(pairs)
        numbers[value] = (len(pairs), estimate(values(part), means, part.clusters, resampling))
    return numbers


def group_tables(groups: GroupNumbers) -> Iterator[Table]:
    """One table for each grouping."""
    for name, numbers in groups.items():
        yield table(
            [(value, n, *estimates) for value, (n, estimates) in numbers.items()],
            columns("text", value=name),
            columns("count", pairs="Pairs"),
            columns("number", brier="Brier score", log_loss="Log loss (nats)"),
            columns("share", overconfidence="Mean confidence minus share right"),
            name=f"by-{file_slug(name)}",
            title=f"By {name}",
            note="The probabilities as judged, over all pairs. Small groups have wide intervals.",
        )


def mistake_table(rows: Sequence[JoinedPair], questions: Mapping[str, str]) -> Table:
    """Pairs on which the judge was sure and wrong, the surest first."""
    judged = [(row.judgment.probability, row) for row in rows]
    wrong = [(p, row) for p, row in judged if p is not None and np.sign(p - 0.5) == -row.truth]
    wrong.sort(key=lambda mistake: (-abs(mistake[0] - 0.5), mistake[1].id))
    listed = [
        (row.id, p, str(winner_of(row.truth)), excerpt(questions.get(row.id, ""))) for p, row in wrong[:MOST_MISTAKES]
    ]
    return table(
        listed,
        columns("text", id="Pair"),
        columns("number", probability="P(first better)"),
        columns("text", label="Label: better answer", question="Question"),
        name="sure-and-wrong",
        title="Sure and wrong",
        note=f"{len(listed):,} of {len(wrong):,} pairs whose likelier winner is the wrong one, the surest first.",
    )


def figures(before: Quality, after: Sequence[Quality], groups: GroupNumbers) -> Iterator[Figure]:
    """Reliability curves, and overconfidence by group."""
    yield _curve("reliability-all", "Reliability of P(first better), all pairs", [before])
    if len(after) > 1:
        yield _curve("reliability-rest", "Reliability on the pairs that no scaling was fitted on", after)
    for name, numbers in groups.items():
        rows = [
            ForestRow(label=value, estimate=estimates[2])
            for value, (n, estimates) in numbers.items()
            if n >= _LEAST_IN_FOREST
        ]
        if len(rows) > 1:
            yield Forest(
                name=f"overconfidence-by-{file_slug(name)}",
                title=f"Too sure or not sure enough, by {name} (of {_LEAST_IN_FOREST} pairs and more)",
                x_label="Mean confidence minus share right (0.1 is 10 points too sure)",
                rows=tuple(rows),
            )


def _curve(name: str, title: str, qualities: Sequence[Quality]) -> Lines:
    return Lines(
        name=name,
        title=title,
        x_label="Mean probability in the bin (0 to 1)",
        y_label="Pairs whose first answer is better (share, 0 to 1)",
        diagonal=True,
        series=tuple(
            Series(name=curve.name, x=tuple(bin.mean for bin in curve.bins), y=tuple(bin.hits for bin in curve.bins))
            for curve in qualities
        ),
    )
