"""JudgeLM's tables for runs of one's own."""

import json
from dataclasses import replace

import pytest

from judgelm.metrics.resampling import Estimate
from judgelm.modes.pairwise import winner_of
from judgelm.records import Judgment, Label, PairVerdict, Shown, Unparsed
from judgelm.studies.evaluation import EvaluationOptions, evaluate
from judgelm.studies.judgelm_tables import TableRun, Timing, paper_tables
from tests.metrics.test_original_judgelm import EXPECTED

QUICK = Timing(pairs=4, load_s=2.0, judge_s=5.0, metrics_s=1.0, reasons=False, workers="one engine")


def run(winners, *, swapped=None, timing=QUICK, **heads):
    """A run over pairs whose first answer is always better; scores of one order or of both."""
    judgments = []
    for number, winner in enumerate(winners):
        scores = {1: (8.0, 3.0), 2: (3.0, 8.0), None: None}[winner]
        failure = Unparsed("off_grammar", "?") if scores is None else None
        shown = [Shown(order=(0, 1), text="", scores=scores, failure=failure)]
        if swapped:
            shown.append(Shown(order=(1, 0), text="", scores=(3.0, 8.0) if swapped[number] == 1 else (8.0, 3.0)))
        verdict = None if winner is None else PairVerdict(winner=winner)
        judgments.append(
            Judgment(
                sample_id=str(number), mode="pair", verdict=verdict, shown=tuple(shown), scores=scores, failure=failure
            )
        )
    labels = {str(number): Label(sample_id=str(number), winner=1) for number in range(len(winners))}
    return TableRun(heads=heads, evaluation=evaluate(judgments, labels), timing=timing)


def cells(result, name):
    table = next(table for table in result.tables if table.name == name)
    keys = [column.key for column in table.columns]
    return [dict(zip(keys, row, strict=True)) for row in table.rows]


def test_a_row_has_the_papers_numbers_with_intervals_n_and_failures():
    result = paper_tables({4: [run((1, 1, 2, None), swapped=(1, 2, 2, 1), judge_size="7B", data_scale="3.5k")]})
    [row] = cells(result, "table-4")
    # three judged in the given order: two agree; of those in both orders, pairs 0 and 2 are alike, pair 1 leans to the
    # first place, and its mean is a tie: one agrees by the mean
    assert row["agreement_by_mean"].value == pytest.approx(1 / 3)
    assert (row["judge_size"], row["n"], row["failed"]) == ("7B", 3, 1)
    assert row["agreement"].value == pytest.approx(2 / 3)
    assert row["consistency"].value == pytest.approx(2 / 3)
    assert row["toward_first"].value == pytest.approx(1 / 3)
    assert isinstance(row["delta"], Estimate)
    assert "66.7 %" in result.findings[0]


def test_one_order_has_no_position_bias_and_it_is_not_zero():
    result = paper_tables({5: [run((1, 2), method="baseline")]})
    [row] = cells(result, "table-5")
    assert row["consistency"] is None
    assert [figure.name for figure in result.figures] == []


def test_efficiency_adds_load_judging_and_metrics_and_scales_to_5000_pairs():
    unrecorded = Timing(pairs=4, load_s=None, judge_s=None, metrics_s=1.0, reasons=True, workers="one engine")
    runs = [run((1, 1, 1, 1), method="a", model_size="7B")]
    runs.append(run((1, 1, 1, 1), timing=unrecorded, method="b", model_size="7B"))
    known, unknown = cells(paper_tables({3: runs}), "table-3")
    assert (known["total_s"], known["per_5000_s"]) == (8.0, 10_000.0)
    assert (unknown["total_s"], unknown["per_5000_s"], unknown["reasons"]) == (None, None, "yes")


def test_scaling_is_drawn_over_rows_one_line_a_size():
    runs = [
        run((1, 1), judge_size=size, data_scale=scale) for size in ("7B", "13B") for scale in ("3.5k", "10K", "100,000")
    ]
    [figure] = paper_tables({4: runs}).figures
    assert [series.name for series in figure.series] == ["7B", "13B"]
    assert figure.series[0].x == (3500.0, 10_000.0, 100_000.0)


def both_orders(given, swapped):
    """A judgment of two orders by their scores, each in the order shown."""
    shown = tuple(
        Shown(order=order, text="", scores=tuple(map(float, scores)))
        for order, scores in (((0, 1), given), ((1, 0), swapped))
    )
    in_sample_order = [given, swapped[::-1]]
    means = tuple(sum(values) / 2 for values in zip(*in_sample_order, strict=True))
    winner = winner_of(means)
    return Judgment(sample_id="", mode="pair", verdict=PairVerdict(winner=winner), shown=shown, scores=means)


def row_of(table_number, judgments, winners, **heads):
    """The numbers of a table's only row."""
    judged = [replace(judgment, sample_id=str(index)) for index, judgment in enumerate(judgments)]
    labels = {str(index): Label(sample_id=str(index), winner=winner) for index, winner in enumerate(winners)}
    evaluation = evaluate(judged, labels, options=EvaluationOptions(order_rule="given"))
    result = paper_tables({table_number: [TableRun(heads=heads, evaluation=evaluation, timing=QUICK)]})
    [row] = cells(result, f"table-{table_number}")
    return {key: value.value for key, value in row.items() if isinstance(value, Estimate)}


TABLES = pytest.mark.parametrize(
    ("table_number", "heads"),
    [
        (1, {"reference": "no", "method": "m"}),
        (4, {"judge_size": "7B", "data_scale": "3.5k"}),
        (5, {"method": "m"}),
        (6, {"method": "m", "trained": "no", "tested": "no"}),
    ],
)


@TABLES
@pytest.mark.parametrize("name", ["clean_no_bad", "always_first"])
def test_the_tables_have_the_numbers_of_the_authors_code(table_number, heads, name):
    if not EXPECTED.exists():
        pytest.skip(f"{EXPECTED} is absent")
    scenario = json.loads(EXPECTED.read_text())["scenarios"][name]
    items, expected = scenario["items"], scenario["expected_filter_true"]
    judgments = [both_orders(item["seq_parsed"], item["rev_parsed"]) for item in items]
    row = row_of(table_number, judgments, [winner_of(item["gt_parsed"]) for item in items], **heads)
    theirs = {
        "agreement": "accuracy", "precision": "precision", "recall": "recall", "f1": "f1",
        "consistency": "consistency", "toward_first": "perfer_before_rate", "toward_second": "perfer_after_rate",
        "delta": "delta_bias",
    }  # fmt: skip
    same = theirs.keys() & row.keys()
    assert {"agreement", "consistency"} <= same
    assert {key: row[key] for key in same} == pytest.approx({key: expected[theirs[key]] for key in same}, abs=1e-9)


@TABLES
def test_a_known_bias_is_found_as_it_is(table_number, heads):
    # of 100 pairs the judge names whatever stands first in 30, what stands second in 10, and the better one in 60; the
    # first answer is the better one in 12 of the 30 and in 7 of the 10
    first, second, better = (9, 1), (1, 9), {1: ((9, 1), (1, 9)), 2: ((1, 9), (9, 1))}
    judgments = [both_orders(first, first)] * 30 + [both_orders(second, second)] * 10
    winners = [1] * 12 + [2] * 18 + [1] * 7 + [2] * 3
    for winner in [1, 2] * 30:
        judgments.append(both_orders(*better[winner]))
        winners.append(winner)
    row = row_of(table_number, judgments, winners, **heads)
    assert row["agreement"] == pytest.approx((12 + 3 + 60) / 100)
    assert row["consistency"] == pytest.approx(0.6)
    if table_number != 1:
        assert (row["toward_first"], row["toward_second"]) == pytest.approx((0.3, 0.1))
        assert row["delta"] == pytest.approx(0.2)
