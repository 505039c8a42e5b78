"""The tables and figures of `judgelm.studies.compare_judges.study`."""

from collections.abc import Iterator, Mapping, Sequence

from judgelm.metrics.resampling import Resampling
from judgelm.parsing.scores import LabelRule
from judgelm.records import Sample
from judgelm.studies.compare_judges.comparison import AlignedVotes, JudgeResult, PairedComparison
from judgelm.studies.join import group_by_value
from judgelm.studies.pair_labels import RULE_NAMES
from judgelm.studies.result import Bars, Figure, Forest, ForestRow, HeatMap, Row, Table, bars, columns, table
from judgelm.studies.sentences import excerpt, file_slug

_MOST_BARS = 12
_VERDICTS = {1: "first better", 0: "tie", -1: "second better"}


def judge_table(results: Sequence[JudgeResult], rule: LabelRule) -> Table:
    """Each judge by itself; `rule` made two orders into one label."""
    return table(
        [_judge_row(result) for result in results],
        columns("text", judge="Judge"),
        columns("count", pairs="Pairs with a label", failed="Failed"),
        columns("share", common="Agreement, common pairs"),
        columns("number", kappa="Kappa with the labels, common pairs"),
        columns("share", agreement="Agreement, own pairs", f1="Macro F1, own pairs"),
        columns("share", consistency="Same answer in both orders", toward_first="Leans to the first place"),
        columns("share", toward_second="Leans to the second place"),
        name="judges",
        title="Each judge against the labels",
        note=f"Agreement, kappa and F1 of pairs judged in both orders: {RULE_NAMES[rule]}. Common pairs are those that "
        "every judge labelled; compare the rows only there. Own pairs are all that the judge "
        "labelled. Order effects need a run of both orders; kappa is undefined where judge and labels have one and "
        "the same label throughout.",
    )


def _judge_row(result: JudgeResult) -> Row:
    alone, position = result.alone, None if result.alone is None else result.alone.position
    own = (None, None) if alone is None else (alone.accuracy, alone.f1)
    orders = (None,) * 3 if position is None else (position.consistency, position.toward_first, position.toward_second)
    return (result.name, result.judged, result.failed, result.common, result.kappa, *own, *orders)


def difference_table(comparisons: Sequence[PairedComparison]) -> Table:
    """Every two judges."""
    return table(
        [
            (
                *(pair.first, pair.second, pair.difference),
                *(pair.test.both, pair.test.only_first, pair.test.only_second, pair.test.neither),
                *(pair.test.p_value, pair.holm, pair.same, pair.kappa),
            )
            for pair in comparisons
        ],
        columns("text", first="First judge", second="Second judge"),
        columns("share", difference="Agreement of the first minus the second"),
        columns("count", both="Both right", only_first="Only the first", only_second="Only the second"),
        columns("count", neither="Neither"),
        columns("number", p_value="McNemar, p", p_holm="the same, Holm"),
        columns("share", same="Same verdict"),
        columns("number", kappa="Kappa between them"),
        name="differences",
        title="Every two judges",
        note="Over all pairs that both judges of a row labelled; differences are resampled pair by pair, by "
        "question. McNemar's exact test takes pairs for independent, so with several pairs of one question trust the "
        "interval; Holm corrects for all tests in this table. Kappa is undefined where both give one label throughout.",
    )


def verdict_table(comparisons: Sequence[PairedComparison]) -> Table:
    """Verdicts of two judges against each other, as counts."""
    return table(
        [
            (pair.first, pair.second, name, *(int(count) for count in counts))
            for pair in comparisons
            for name, counts in zip(_VERDICTS.values(), pair.verdicts, strict=True)
        ],
        columns("text", first="First judge", second="Second judge", says="The first says"),
        columns("count", first_better="The second: first better", tie="The second: tie"),
        columns("count", second_better="The second: second better"),
        name="verdicts",
        title="Verdicts of two judges on the same pairs",
    )


def group_tables(
    votes: AlignedVotes, names: Sequence[str], groups: Mapping[str, Mapping[str, str]], resampling: Resampling
) -> Iterator[Table]:
    """One table for each grouping: agreement of every judge by value, and its distance from the best judge."""
    best = names[0]
    for group, members in groups.items():
        rows: list[Row] = []
        for value, ids in group_by_value(votes.common, members.get).items():
            for name in names:
                minus = None if name == best else votes.difference(name, best, ids, resampling)
                rows.append((value, name, votes.agreement(name, ids, resampling), minus))
        yield table(
            rows,
            columns("text", value=group, judge="Judge"),
            columns("share", agreement="Agreement", minus_best=f"Minus that of {best}"),
            name=f"by-{file_slug(group)}",
            title=f"By {group}",
            note=f"Over the pairs that every judge labelled. {best} has the best agreement over all of them.",
        )


def flip_table(votes: AlignedVotes, names: Sequence[str], samples: Mapping[str, Sample]) -> Table:
    """The pairs on which judges differ."""
    ids = [key for key in votes.common if len({votes.judged[name][key] for name in names}) > 1]
    rows: list[Row] = [
        (
            *(key, _VERDICTS[votes.truth[key]], *(_VERDICTS[votes.judged[name][key]] for name in names)),
            *(
                sum(votes.judged[name][key] == votes.truth[key] for name in names),
                excerpt(samples[key].question) if key in samples else "",
            ),
        )
        for key in ids
    ]
    return table(
        rows,
        columns("text", id="Pair", label="Label"),
        columns("text", ((f"judge_{index}", name) for index, name in enumerate(names, 1))),
        columns("count", right="Judges that are right"),
        columns("text", question="Question"),
        name="flips",
        title="Pairs that the judges do not judge alike",
        note=f"{len(ids):,} of the {len(votes.common):,} pairs that every judge labelled.",
    )


def figures(
    votes: AlignedVotes,
    results: Sequence[JudgeResult],
    comparisons: Sequence[PairedComparison],
    groups: Mapping[str, Mapping[str, str]],
    resampling: Resampling,
) -> Iterator[Figure]:
    """Agreements, differences, kappas, order effects, and agreement by group."""
    truths = votes.truths(votes.common).tolist()
    commonest = max(truths.count(label) for label in _VERDICTS) / len(truths)
    yield Forest(
        name="agreement",
        title="Agreement with the labels over the pairs that every judge labelled",
        x_label="Agreement (share of pairs); dashed: always the most frequent label",
        rows=tuple(ForestRow(label=result.name, estimate=result.common) for result in results),
        no_effect=commonest,
    )
    yield Forest(
        name="paired-differences",
        title="Differences of agreement, pair by pair",
        x_label="Agreement of the first minus the second (share of pairs)",
        rows=tuple(
            ForestRow(label=f"{result.first} − {result.second}", estimate=result.difference) for result in comparisons
        ),
    )
    yield _kappa_map(results, comparisons)
    orders = _order_bars(results)
    if orders is not None:
        yield orders
    names = [result.name for result in results]
    for group, members in groups.items():
        values = list(group_by_value(votes.common, members.get).items())
        if len(values) > 1:
            yield _group_bars(votes, names, group, values, resampling)


def _kappa_map(results: Sequence[JudgeResult], comparisons: Sequence[PairedComparison]) -> HeatMap:
    names = (*(result.name for result in results), "labels")
    kappas = {frozenset({result.name, "labels"}): result.kappa for result in results}
    kappas |= {frozenset({result.first, result.second}): result.kappa for result in comparisons}
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


def _order_bars(results: Sequence[JudgeResult]) -> Bars | None:
    known = [
        (result.name, result.alone.position)
        for result in results
        if result.alone is not None and result.alone.position is not None
    ]
    if not known:
        return None
    return bars(
        {name: (position.consistency, position.toward_first, position.toward_second) for name, position in known},
        ("same answer", "leans to first", "leans to second"),
        name="orders",
        title="Verdicts of the judges when the answers are shown in reverse",
        x_label="Outcome",
        y_label="Share of pairs judged in both orders (0 to 1)",
    )


def _group_bars(
    votes: AlignedVotes,
    names: Sequence[str],
    group: str,
    values: Sequence[tuple[str, list[str]]],
    resampling: Resampling,
) -> Bars:
    largest = values[:_MOST_BARS]
    return bars(
        {name: [votes.agreement(name, ids, resampling) for _, ids in largest] for name in names},
        [value for value, _ in largest],
        name=f"agreement-by-{file_slug(group)}",
        title=f"Agreement by {group}"
        + (f", the {_MOST_BARS} largest of {len(values)}" if len(values) > _MOST_BARS else ""),
        x_label=group,
        y_label="Agreement (share of pairs, 0 to 1)",
    )
