"""The tables and figures of `judgelm.studies.compare_judges.study`."""

from collections.abc import Iterator, Mapping, Sequence

from judgelm.metrics.paired import paired_difference
from judgelm.metrics.resampling import Estimate, Resampling, share
from judgelm.parsing.distribution import LabelRule
from judgelm.records import Sample
from judgelm.studies.compare_judges.comparison import AlignedVotes, JudgeResult, PairedComparison
from judgelm.studies.join import group_by_value
from judgelm.studies.pair_labels import RULE_NAMES
from judgelm.studies.result import (
    Bars,
    Cell,
    Figure,
    Forest,
    ForestRow,
    Group,
    HeatMap,
    Row,
    Table,
    columns,
    table,
)
from judgelm.studies.sentences import excerpt, file_slug

_MOST_BARS = 12
_VERDICTS = {1: "first better", 0: "tie", -1: "second better"}


def judge_table(standings: Sequence[JudgeResult], rule: LabelRule) -> Table:
    """Each judge by itself; `rule` made two orders into one label."""
    return table(
        [_standing_row(one) for one in standings],
        columns("text", judge="Judge"),
        columns("count", pairs="Pairs with a label", failed="Failed"),
        columns("share", common="Agreement, common pairs"),
        columns("number", kappa="Kappa with the labels, common pairs"),
        columns(
            "share",
            agreement="Agreement, own pairs",
            f1="Macro F1, own pairs",
            consistency="Same answer in both orders",
            toward_first="Leans to the first place",
            toward_second="Leans to the second place",
        ),
        name="judges",
        title="Each judge against the labels",
        note=f"Agreement, kappa and F1 of pairs judged in both orders: {RULE_NAMES[rule]}. Common pairs are those that "
        "every judge says something of; only there may the rows be compared. Own pairs are all that the judge says "
        "something of. Order effects need a run of both orders; kappa is undefined where judge and labels have one and "
        "the same label throughout.",
    )


def _standing_row(one: JudgeResult) -> tuple[Cell, ...]:
    alone, position = one.alone, None if one.alone is None else one.alone.position
    own = (None, None) if alone is None else (alone.accuracy, alone.f1)
    orders = (None,) * 3 if position is None else (position.consistency, position.toward_first, position.toward_second)
    return (one.name, one.judged, one.failed, one.common, one.kappa, *own, *orders)


def difference_table(betweens: Sequence[PairedComparison]) -> Table:
    """Every two judges."""
    return table(
        [
            (
                *(one.first, one.second, one.difference),
                *(one.test.both, one.test.only_first, one.test.only_second, one.test.neither),
                *(one.test.p_value, one.holm, one.same, one.kappa),
            )
            for one in betweens
        ],
        columns("text", first="First judge", second="Second judge"),
        columns("share", difference="Agreement of the first minus the second"),
        columns(
            "count", both="Both right", only_first="Only the first", only_second="Only the second", neither="Neither"
        ),
        columns("number", p_value="McNemar, p", p_holm="the same, Holm"),
        columns("share", same="Same verdict"),
        columns("number", kappa="Kappa between them"),
        name="differences",
        title="Every two judges",
        note="Over all pairs that both judges of a row say something of; differences are resampled pair by pair, by "
        "question. McNemar's exact test takes pairs for independent, so with several pairs of one question trust the "
        "interval; Holm corrects for all tests in this table. Kappa is undefined where both give one label throughout.",
    )


def verdict_table(betweens: Sequence[PairedComparison]) -> Table:
    """What one says where the other says something else, as counts."""
    rows: list[tuple[Cell, ...]] = [
        (one.first, one.second, name, *(int(count) for count in counts))
        for one in betweens
        for name, counts in zip(_VERDICTS.values(), one.verdicts, strict=True)
    ]
    return table(
        rows,
        columns("text", first="First judge", second="Second judge", says="The first says"),
        columns(
            "count",
            first_better="The second: first better",
            tie="The second: tie",
            second_better="The second: second better",
        ),
        name="verdicts",
        title="What two judges say of the same pairs",
    )


def group_tables(
    board: AlignedVotes, names: Sequence[str], groups: Mapping[str, Mapping[str, str]], how: Resampling
) -> Iterator[Table]:
    """One table for each grouping: agreement of every judge by value, and its distance from the best judge."""
    best = names[0]
    for group, members in groups.items():
        rows: list[Row] = []
        for value, ids in group_by_value(board.common, members.get).items():
            for name in names:
                minus = None if name == best else _difference(board, name, best, ids, how)
                rows.append((value, name, share(board.right(name, ids), board.members(ids), how), minus))
        yield table(
            rows,
            columns("text", value=group, judge="Judge"),
            columns("share", agreement="Agreement", minus_best=f"Minus that of {best}"),
            name=f"by-{file_slug(group)}",
            title=f"By {group}",
            note=f"Over the pairs that every judge says something of. {best} has the best agreement over all of them.",
        )


def flip_table(board: AlignedVotes, names: Sequence[str], samples: Mapping[str, Sample]) -> Table:
    """The pairs on which judges differ."""
    ids = [key for key in board.common if len({board.said[name][key] for name in names}) > 1]
    rows: list[tuple[Cell, ...]] = [
        (
            *(key, _VERDICTS[board.truth[key]], *(_VERDICTS[board.said[name][key]] for name in names)),
            *(
                sum(board.said[name][key] == board.truth[key] for name in names),
                excerpt(samples[key].question) if key in samples else "",
            ),
        )
        for key in ids
    ]
    return table(
        rows,
        columns("text", id="Pair", label="Label"),
        columns("text", ((f"judge_{place}", name) for place, name in enumerate(names, 1))),
        columns("count", right="Judges that are right"),
        columns("text", question="Question"),
        name="flips",
        title="Pairs that the judges do not judge alike",
        note=f"{len(ids):,} of the {len(board.common):,} pairs that every judge says something of.",
    )


def figures(
    board: AlignedVotes,
    ranked: Sequence[JudgeResult],
    found: Sequence[PairedComparison],
    groups: Mapping[str, Mapping[str, str]],
    how: Resampling,
) -> Iterator[Figure]:
    """Agreements, differences, kappas, order effects, and agreement by group."""
    truths = board.truths(board.common).tolist()
    commonest = max(truths.count(label) for label in _VERDICTS) / len(truths)
    yield Forest(
        name="agreement",
        title="Agreement with the labels over the pairs that every judge says something of",
        x_label="Agreement (share of pairs); dashed: always the most frequent label",
        rows=tuple(ForestRow(label=one.name, estimate=one.common) for one in ranked),
        no_effect=commonest,
    )
    yield Forest(
        name="paired-differences",
        title="Differences of agreement, pair by pair",
        x_label="Agreement of the first minus the second (share of pairs)",
        rows=tuple(ForestRow(label=f"{one.first} − {one.second}", estimate=one.difference) for one in found),
    )
    yield _kappa_map(ranked, found)
    orders = _order_bars(ranked)
    if orders is not None:
        yield orders
    names = [one.name for one in ranked]
    for group, members in groups.items():
        values = list(group_by_value(board.common, members.get).items())
        if len(values) > 1:
            yield _group_bars(board, names, group, values, how)


def _kappa_map(ranked: Sequence[JudgeResult], found: Sequence[PairedComparison]) -> HeatMap:
    names = (*(one.name for one in ranked), "labels")
    kappas = {frozenset({one.name, "labels"}): one.kappa for one in ranked}
    kappas |= {frozenset({one.first, one.second}): one.kappa for one in found}
    cells = {key: None if kappa is None else kappa.value for key, kappa in kappas.items()}
    return HeatMap(
        name="kappa",
        title="Cohen's kappa between judges, and with the labels",
        x_label="Judge",
        y_label="Judge",
        value_label="Kappa (1 is complete agreement, 0 is chance)",
        rows=names,
        columns=names,
        values=tuple(tuple(None if a == b else cells[frozenset({a, b})] for b in names) for a in names),
    )


def _order_bars(ranked: Sequence[JudgeResult]) -> Bars | None:
    known = [
        (one.name, one.alone.position) for one in ranked if one.alone is not None and one.alone.position is not None
    ]
    if not known:
        return None
    return Bars(
        name="orders",
        title="What the judges do when the answers are shown in reverse",
        x_label="Outcome",
        y_label="Share of pairs judged in both orders (0 to 1)",
        categories=("same answer", "leans to first", "leans to second"),
        groups=tuple(
            Group(name=name, values=(one.consistency, one.toward_first, one.toward_second)) for name, one in known
        ),
    )


def _group_bars(
    board: AlignedVotes, names: Sequence[str], group: str, values: Sequence[tuple[str, list[str]]], how: Resampling
) -> Bars:
    return Bars(
        name=f"agreement-by-{file_slug(group)}",
        title=f"Agreement by {group}"
        + (f", the {_MOST_BARS} largest of {len(values)}" if len(values) > _MOST_BARS else ""),
        x_label=group,
        y_label="Agreement (share of pairs, 0 to 1)",
        categories=tuple(value for value, _ in values[:_MOST_BARS]),
        groups=tuple(
            Group(
                name=name,
                values=tuple(share(board.right(name, ids), board.members(ids), how) for _, ids in values[:_MOST_BARS]),
            )
            for name in names
        ),
    )


def _difference(board: AlignedVotes, one: str, other: str, ids: Sequence[str], how: Resampling) -> Estimate:
    return paired_difference(board.right(one, ids), board.right(other, ids), board.members(ids), how)
