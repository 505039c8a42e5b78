"""Agreement with the user's labels and with another judge, and exports."""

import json

import pytest

from judgelm.cli.evaluation import score
from judgelm.cli.options import ScoringOptions
from judgelm.serving.web.browse_state import Filter, item_lines, label_lines, start_browsing
from judgelm.serving.web.label_agreement import agreement_html, judge_agreement
from tests.support.judged_items import failed_judgment, pair_judgment, pair_sample, run_of, write_run


def test_agreement_has_n_and_interval():
    judgments = [pair_judgment(str(number), 1) for number in range(4)] + [failed_judgment("4")]
    labels = {"0": 1, "1": 1, "2": 1, "3": 2, "4": 1}
    lines = agreement_html(start_browsing(run_of(*judgments), labels=labels), blind=True)
    # 3 of the 4 judged pairs; the failed one is counted separately, not as a tie
    assert "75.0\u00a0% of 4 pairs (95 % interval" in lines
    assert "1 of 5 judgments failed" in lines
    assert "only 4 pairs" in lines


def test_without_labels_there_is_no_number():
    assert "No labels yet" in agreement_html(start_browsing(run_of(pair_judgment("0", 1))), blind=True)


def test_the_comparison_uses_items_with_two_verdicts():
    first = run_of(*(pair_judgment(str(number), 1 + number % 2) for number in range(6)), name="first.jsonl")
    others = [pair_judgment(str(number), 1) for number in range(4)] + [failed_judgment("4"), pair_judgment("x", 1)]
    lines = judge_agreement(start_browsing(first, other=run_of(*others, name="second.jsonl")))
    # shared: 0 to 4; 5 only in the first, x only in the second; of 0 to 3 the same in 0 and 2
    assert "5 items in common; 1 items are only in the first run and 1 only in the second" in lines[0]
    assert "50.0\u00a0% of the 4 items" in lines[1]
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
    browsing = start_browsing(
        run_of(*judgments, samples=[pair_sample("1", category="math")]), other=other, labels={"1": "tie"}
    )
    [row] = [json.loads(line) for line in item_lines(browsing.filtered(Filter(verdict="2")))]
    assert (row["id"], row["verdict"], row["other_verdict"], row["label"]) == (
        "1", {"kind": "pair", "winner": 2}, "1", "tie",
    )  # fmt: skip
    assert (row["question"], row["answers"], row["category"]) == ("question 1", ["first 1", "second 1"], "math")
