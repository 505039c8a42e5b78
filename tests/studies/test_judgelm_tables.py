"""JudgeLM's tables for runs of one's own."""

import json
from dataclasses import replace

import pytest

from judgelm.records import Judgment, Label, PairVerdict, Shown, Unparsed, winner_of
from judgelm.runs.teacher import Prices
from judgelm.studies.evaluation import EvaluationOptions, evaluate
from judgelm.studies.judgelm_tables import CostPrices, TableRun, Timing, paper_tables, read_as_authors
from tests.metrics.test_agreement import EXPECTED
from tests.support.studies import table, value

QUICK = Timing(pairs=4, load_s=2.0, judge_s=5.0, metrics_s=1.0, reasons=False, workers="one engine")


def shown(order, text, scores=None):
    """A reply, as judgelm reads it: by default its first line as two numbers."""
    if scores is None and text.replace(" ", "").isdigit():
        scores = tuple(map(float, text.split()))
    failure = Unparsed("off_grammar", text) if scores is None else None
    return Shown(order=order, text=text, scores=scores, failure=failure)


def judgment(*replies):
    """A pair from its replies: in the given order, and in the swapped one where there are two."""
    failure = next((reply.failure for reply in replies if reply.failure), None)
    scores = None if failure else replies[0].scores
    verdict = None if failure else PairVerdict(winner=winner_of(scores))
    return Judgment(sample_id="", mode="pair", verdict=verdict, shown=replies, scores=scores, failure=failure)


def table_run(judgments, winners=None, *, timing=QUICK, **heads):
    """The run of a row; by default the first answer of each pair is the better one."""
    judged = {str(index): replace(judgment, sample_id=str(index)) for index, judgment in enumerate(judgments)}
    winners = winners or [1] * len(judged)
    labels = {key: Label(sample_id=key, winner=winner) for key, winner in zip(judged, winners, strict=True)}
    options = EvaluationOptions(order_rule="given")
    own, authors = (evaluate(each, labels, options=options) for each in (judged, read_as_authors(judged)))
    return TableRun(heads=heads, evaluation=own, authors=authors, timing=timing)


def run(winners, *, swapped=None, timing=QUICK, **heads):
    """A run over pairs whose first answer is always better; replies of one order or of both."""
    texts = {1: "8 3", 2: "3 8", None: "neither"}
    given = [shown((0, 1), texts[winner]) for winner in winners]
    reverse = [shown((1, 0), texts[winner and 3 - winner]) for winner in swapped or ()]
    replies = zip(given, reverse, strict=True) if swapped else zip(given, strict=True)
    return table_run([judgment(*orders) for orders in replies], timing=timing, **heads)


def test_a_row_has_the_papers_numbers_with_intervals_n_and_failures():
    result = paper_tables({4: [run((1, 1, 2, None), swapped=(1, 2, 2, 1), judge_size="7B", data_scale="3.5k")]})
    ties, left_out = table(result, "table-4")
    # readable in the given order are three: two agree. Of those in both orders, pairs 0 and 2 are alike, pair 1 leans
    # to the first place, and its mean is a tie: one agrees by the mean
    assert (left_out["judge_size"], left_out["n"], left_out["failed"]) == ("7B", 3, 1)
    shares = [left_out[key].value for key in ("agreement_by_mean", "agreement", "consistency", "toward_first")]
    assert shares == pytest.approx([1 / 3, 2 / 3, 2 / 3, 1 / 3])
    # with the fourth as a tie: two of four agree; it ties in the given order and wins in the swapped one, so it leans
    # to the second place (`perfer_after`): half are alike, a quarter lean each way
    assert (ties["n"], ties["failed"], ties["failed_orders"]) == (4, 1, 1)
    shares = [ties[key].value for key in ("agreement", "consistency", "toward_first", "toward_second", "delta")]
    assert shares == pytest.approx([2 / 4, 0.5, 0.25, 0.25, 0.0])
    assert ties["agreement_by_mean"] is None
    assert all(part in result.findings[0] for part in ("50.0 %", "1 of its pairs are unreadable"))


def test_a_judge_that_breaks_its_format_in_half_of_its_replies_is_not_perfect():
    result = paper_tables({1: [run((1, None, 1, None), swapped=(1, None, 1, 1), reference="no", method="m")]})
    ties, left_out = table(result, "table-1")
    # its readable replies are right; as ties the others are wrong: 2 of 4. Recall of the only true label is 1/2, of
    # the tie, which is never true, 0: macro 1/4. Precision is 1 and 0: macro 1/2. F1 is 2/3 and 0: macro 1/3
    # pair 1 has two unreadable replies, which agree; pair 3 has one
    scores = [ties[key].value for key in ("agreement", "precision", "recall", "f1", "consistency")]
    assert scores == pytest.approx([1 / 2, 1 / 2, 1 / 4, 1 / 3, 3 / 4])
    assert (ties["failed"], ties["failed_orders"], left_out["agreement"].value) == (2, 3, 1.0)
    [warning] = result.warnings
    parts = ("of 4 pairs", "original code fails to parse 2", "judgelm fails to parse 2", "3 and 3", "50.0 %", "100.0 %")
    assert all(part in warning for part in parts)


@pytest.mark.parametrize(
    ("text", "scores", "authors"),
    [
        ("8,6", (8.0, 6.0), (8.0, 6.0)),
        ("8, 6", (8.0, 6.0), None),  # two separators: three parts
        ("\n8 6", (8.0, 6.0), None),  # their first line is empty
        ("12 6", None, (12.0, 6.0)),  # they know no scale
        ("The first is better.", None, None),
    ],
)
def test_replies_are_read_again_by_the_authors_parser(text, scores, authors):
    read = Shown(order=(0, 1), text=text, scores=scores, failure=None if scores else Unparsed("out_of_range", text))
    again = read_as_authors({"1": judgment(read)})["1"]
    assert again.shown[0].scores == again.scores == authors
    assert (again.verdict is None) == (again.failure is not None) == (authors is None)


def test_the_authors_know_no_retry_and_labels_keep_their_verdicts():
    repaired = Shown(order=(0, 1), text="8 6", scores=(8.0, 6.0), repaired=Unparsed("off_grammar", "Eight to six."))
    assert read_as_authors({"1": judgment(repaired)})["1"].failure is not None
    label = replace(judgment(repaired), shown=(Shown(order=(0, 1), text="2", label="2"),))
    assert read_as_authors({"1": label})["1"] == label


def test_efficiency_adds_load_judging_and_metrics_and_scales_to_5000_pairs():
    unrecorded = replace(QUICK, load_s=None, judge_s=None, reasons=True)
    runs = [run((1, 1, 1, 1), timing=timing, method="a", model_size="7B") for timing in (QUICK, unrecorded)]
    known, unknown = table(paper_tables({3: runs}), "table-3")
    assert (known["total_s"], known["per_5000_s"]) == (8.0, 10_000.0)
    assert (unknown["total_s"], unknown["per_5000_s"], unknown["reasons"]) == (None, None, "yes")


def test_the_cost_is_time_on_gpus_against_the_tokens_of_an_api():
    # 150 s load + 28 s judging + 2 s metrics = 3 minutes on 8 GPUs = 0.4 GPU hours at 1.25 USD; the API takes
    # 1,500 thousand prompt tokens at 0.03 USD and 25 thousand of replies at 0.06 USD = 45 + 1.5 USD
    tokens = {"prompt_tokens": 1_500_000, "reply_tokens": 25_000}
    timing = replace(QUICK, gpus=8.0, load_s=150.0, judge_s=28.0, metrics_s=2.0, **tokens)
    prices = CostPrices(gpu_hour=1.25, api=Prices(prompt=30.0, reply=60.0))
    result = paper_tables({3: [run((1, 1, 1, 1), timing=timing, method="a", model_size="7B")]}, prices)
    [row] = table(result, "table-3")
    assert [row[key] for key in ("gpu_usd", "api_usd", "cost_ratio")] == pytest.approx([0.5, 46.5, 0.5 / 46.5])
    assert "1.1 % of the API cost of 46.50 USD" in result.findings[0]


@pytest.mark.parametrize(
    ("missing", "empty"),
    [
        ({"gpus": None}, ["gpu_usd", "cost_ratio"]),
        ({"judge_s": None}, ["gpu_usd", "cost_ratio"]),
        ({"prompt_tokens": 0, "reply_tokens": 0}, ["prompt_tokens", "reply_tokens", "api_usd", "cost_ratio"]),
    ],
)
def test_a_cost_without_its_measurement_is_empty(missing, empty):
    timing = replace(QUICK, gpus=1.0, prompt_tokens=100, reply_tokens=4)
    prices = CostPrices(gpu_hour=1.0, api=Prices(prompt=1.0, reply=1.0))
    runs = [run((1,), timing=replace(timing, **missing), method="a", model_size="7B")]
    [row] = table(paper_tables({3: runs}, prices), "table-3")
    costs = ("gpu_usd", "prompt_tokens", "reply_tokens", "api_usd", "cost_ratio")
    assert [key for key in costs if row[key] is None] == empty


def test_scaling_is_drawn_with_one_line_per_size():
    scales = ("3.5k", "10K", "100,000")
    runs = [run((1, 1), judge_size=size, data_scale=scale) for size in ("7B", "13B") for scale in scales]
    [figure] = paper_tables({4: runs}).figures
    assert [series.name for series in figure.series] == ["7B", "13B"]
    assert figure.series[0].x == (3500.0, 10_000.0, 100_000.0)


def both_orders(given, swapped):
    """A judgment of two orders by their scores, each in the order shown."""
    return judgment(*(shown(order, f"{a} {b}", (a, b)) for order, (a, b) in (((0, 1), given), ((1, 0), swapped))))


def row_of(table_number, judgments, winners, **heads):
    """The numbers of a table's only run, as the authors count."""
    row, _ = table(paper_tables({table_number: [table_run(judgments, winners, **heads)]}), f"table-{table_number}")
    return {key: value(cell) for key, cell in row.items()}


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
    theirs = {key: key for key in ("precision", "recall", "f1", "consistency")} | {"agreement": "accuracy"}
    theirs |= {"toward_first": "perfer_before_rate", "toward_second": "perfer_after_rate", "delta": "delta_bias"}
    same = theirs.keys() & row.keys()
    assert {"agreement", "consistency"} <= same  # and more in some tables
    assert {key: row[key] for key in same} == pytest.approx({key: expected[theirs[key]] for key in same}, abs=1e-9)


@TABLES
def test_a_known_bias_is_found_as_it_is(table_number, heads):
    # of 100 pairs the judge names whatever stands first in 30, what stands second in 10, and the better one in 60; the
    # first answer is the better one in 12 of the 30 and in 7 of the 10
    first, second = (9, 1), (1, 9)
    judgments = [both_orders(first, first)] * 30 + [both_orders(second, second)] * 10
    judgments += [both_orders(first, second), both_orders(second, first)] * 30
    winners = [1] * 12 + [2] * 18 + [1] * 7 + [2] * 3 + [1, 2] * 30
    row = row_of(table_number, judgments, winners, **heads)
    assert (row["agreement"], row["consistency"]) == pytest.approx(((12 + 3 + 60) / 100, 0.6))
    if table_number != 1:
        assert (row["toward_first"], row["toward_second"], row["delta"]) == pytest.approx((0.3, 0.1, 0.2))
