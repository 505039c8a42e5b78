"""Browsing a run: filters, positions, labels, agreement with them and with another judge, and exports."""

import json
import re

import pytest

from judgelm.cli.evaluation import score
from judgelm.cli.options import ScoringOptions
from judgelm.errors import InputError
from judgelm.records import GradeVerdict, Judgment, Shown
from judgelm.serving.web.browse_state import PAGE, Filter, item_lines, label_lines, start_browsing, verdict_counts
from judgelm.serving.web.label_agreement import (
    MAX_POINTS,
    agreement_growth,
    agreement_html,
    evaluate_labels,
    judge_agreement,
    progress_html,
)
from tests.support.judged_items import failed_judgment, pair_judgment, pair_sample, run_of, write_run


@pytest.fixture
def browsing():
    judgments = [
        pair_judgment("a", 1, swapped=(6.0, 8.0)),  # swapped 6 : 8 is 8 : 6 in sample order: agrees
        pair_judgment("b", 2, swapped=(8.0, 6.0), reason="Because of the Unicorn."),  # 6 : 8 in sample order: flips
        pair_judgment("c", "tie"),
        failed_judgment("d"),
        failed_judgment("e", "too_long"),
    ]
    samples = [pair_sample("a", category="math"), pair_sample("b", category="code"), pair_sample("c", category="math")]
    other = run_of(pair_judgment("a", 1), pair_judgment("b", 1), failed_judgment("c"), name="other.jsonl")
    return start_browsing(run_of(*judgments, samples=samples), other=other, labels={"a": 2, "c": "tie"})


@pytest.mark.parametrize(
    ("by", "ids"),
    [
        (Filter(), "abcde"),
        (Filter(verdict="1"), "a"),
        (Filter(verdict="failed"), "de"),
        (Filter(failure="too_long"), "e"),
        (Filter(category="math"), "ac"),
        (Filter(orders="agree"), "a"),
        (Filter(orders="disagree"), "b"),
        (Filter(orders="one"), "cde"),
        (Filter(other="same"), "a"),
        (Filter(other="different"), "b"),  # the other judge has no verdict on c
        (Filter(label="labelled"), "ac"),
        (Filter(label="not labelled"), "bde"),
        (Filter(label="against the judge"), "a"),
        (Filter(text="unicorn"), "b"),  # in a reason
        (Filter(text="  SECOND C "), "c"),  # in an answer
        (Filter(text="cannot say"), "de"),  # in a reply
        (Filter(category="math", label="against the judge"), "a"),
        (Filter(category="math", verdict="2"), ""),
    ],
)
def test_items_pass_all_conditions_of_a_filter(browsing, by, ids):
    assert "".join(browsing.filtered(by).listed) == ids


def test_the_current_item_stays_if_it_passes_the_filter(browsing):
    assert browsing.at("c").filtered(Filter(category="math")).current == "c"
    assert browsing.at("d").filtered(Filter(category="math")).current == "a"
    assert browsing.filtered(Filter(text="nowhere")).current is None


def test_steps_stop_at_the_ends(browsing):
    assert [browsing.moved(steps).current for steps in (-1, 1, 4, 100)] == ["a", "b", "e", "e"]
    assert browsing.at("no such id").current == "a"


def test_the_list_shows_the_page_of_the_current_item():
    browsing = start_browsing(run_of(*(pair_judgment(str(number), 1) for number in range(PAGE + 3))))
    assert browsing.page == tuple(str(number) for number in range(PAGE))
    assert browsing.moved(PAGE).page == ("20", "21", "22")


def test_a_label_is_set_and_the_next_item_shown(browsing):
    now = browsing.at("b").labelled(1)
    assert (now.labels, now.current) == ({"a": 2, "c": "tie", "b": 1}, "c")
    assert now.labelled(None).labels == {"a": 2, "b": 1}
    assert browsing.labels == {"a": 2, "c": "tie"}  # a step returns a new state


def test_only_pairs_can_be_labelled():
    shown = Shown(order=(0,), text="7", scores=(7.0,))
    grade = Judgment(sample_id="g", mode="single", verdict=GradeVerdict(score=7.0), shown=(shown,))
    browsing = start_browsing(run_of(grade, pair_judgment("a", 1)))
    with pytest.raises(InputError, match="not a pair"):
        browsing.labelled(1)
    with pytest.raises(InputError, match="no item to label"):
        browsing.filtered(Filter(text="nowhere")).labelled(1)


def test_two_runs_without_a_common_id_are_refused():
    first, other = (run_of(pair_judgment(key, 1), name=f"{key}.jsonl") for key in "ab")
    with pytest.raises(InputError, match=r"b.jsonl and a.jsonl have no ids"):
        start_browsing(first, other=other)


def test_the_overview_counts_all_items(browsing):
    expected = {"1": 1, "2": 1, "tie": 1, "failed": 2, "judged in both orders": 2, "flip with the order": 1}
    assert verdict_counts(browsing.filtered(Filter(verdict="1"))) == expected


def test_agreement_has_n_and_interval():
    judgments = [pair_judgment(str(number), 1) for number in range(4)] + [failed_judgment("4")]
    labels = {"0": 1, "1": 1, "2": 1, "3": 2, "4": 1}
    lines = agreement_html(start_browsing(run_of(*judgments), labels=labels), blind=True)
    # 3 of the 4 judged pairs; the failed one is counted separately, not as a tie
    for part in ("75.0\u00a0% of 4 pairs (95 % interval", "1 of 5 judgments failed", "only 4 pairs"):
        assert part in lines


def test_the_comparison_uses_items_with_two_verdicts():
    first = run_of(*(pair_judgment(str(number), 1 + number % 2) for number in range(6)), name="first.jsonl")
    others = [pair_judgment(str(number), 1) for number in range(4)] + [failed_judgment("4"), pair_judgment("x", 1)]
    lines = judge_agreement(start_browsing(first, other=run_of(*others, name="second.jsonl")))
    # shared: 0 to 4; 5 only in the first, x only in the second; of 0 to 3 the same in 0 and 2
    assert re.search("5 items in common; 1 items .*first run and 1 only in the second", lines[0])
    assert "50.0\u00a0% of 4 items" in lines[1]
    assert lines[2].startswith("Cohen's kappa 0.00")  # expected by chance: 1/2 too


@pytest.mark.parametrize("with_texts", [True, False])
def test_eval_reads_exported_labels(tmp_path, with_texts):
    judgments = [pair_judgment(str(number), 1) for number in range(3)]
    samples = [pair_sample(str(number), reference="r", category="c") for number in range(3)] if with_texts else []
    browsing = start_browsing(run_of(*judgments, samples=samples), labels={"0": 1, "1": 2, "2": "tie"})
    labels = tmp_path / "labels.jsonl"
    labels.write_bytes(b"".join(label_lines(browsing)))
    options = ScoringOptions(
        judgments=write_run(tmp_path / "run.jsonl", judgments), labels=labels, protocol="judgelm",
        failures=None, order_rule=None, tie_threshold=None, label_reference="auto", parser="judgelm", scale="1-10",
        bootstrap=100, seed=0,
    )  # fmt: skip
    scored = score(options)
    assert {key: label.winner for key, label in scored.labelled.labels.items()} == {"0": 1, "1": 2, "2": "tie"}
    assert scored.evaluation.counts.joined == 3
    assert len(scored.labelled.samples) == (3 if with_texts else 0)


def test_the_listed_items_are_exported():
    judgments = [pair_judgment("0", 1), pair_judgment("1", 2), failed_judgment("2")]
    other = run_of(pair_judgment("1", 1), name="other.jsonl")
    run = run_of(*judgments, samples=[pair_sample("1", category="math")])
    browsing = start_browsing(run, other=other, labels={"1": "tie"})
    [row] = [json.loads(line) for line in item_lines(browsing.filtered(Filter(verdict="2")))]
    expected = {"id": "1", "verdict": {"kind": "pair", "winner": 2}, "other_verdict": "1", "label": "tie"}
    expected |= {"question": "question 1", "answers": ["first 1", "second 1"], "category": "math"}
    assert {name: row[name] for name in expected} == expected


def test_without_labels_there_is_no_agreement():
    browsing = start_browsing(run_of(pair_judgment("0", 1)))
    for page in (agreement_html(browsing, blind=True), progress_html(browsing)):
        assert "No labels yet" in page


def growth_of(judgments, labels):
    run = run_of(*judgments)
    return agreement_growth(list(labels), evaluate_labels(start_browsing(run, labels=labels), run), {})


def test_each_label_adds_a_point_and_failures_add_none():
    judgments = [pair_judgment("a", 1), failed_judgment("b"), pair_judgment("c", 1), pair_judgment("d", 1)]
    growth = growth_of(judgments, {"c": 1, "b": 1, "a": 2, "d": 1})
    # in the order of the labels c is right, b failed, a is wrong, d is right
    assert [(each.n, each.value) for each in growth] == [(1, 1.0), (2, 0.5), (3, pytest.approx(2 / 3))]
    assert growth[0].low == pytest.approx(0.2065, abs=1e-3)  # Wilson's of 1 in 1: 1 / (1 + 1.96^2)


def test_many_labels_are_thinned_and_end_with_the_last():
    judgments = [pair_judgment(str(index), 1) for index in range(101)]
    growth = growth_of(judgments, {each.sample_id: 1 for each in judgments})
    assert (len(growth) <= MAX_POINTS, growth[-1].n) == (True, 101)
