"""The measurement on labelled sets: baselines, credits and fits worked by hand, and the whole with a scripted judge."""

import json
import sys
from dataclasses import replace

import numpy as np
import pytest

from benchmarks.human_labels import measures
from benchmarks.human_labels.__main__ import main
from benchmarks.human_labels.baselines import WinRates, constant, generator, longer
from benchmarks.human_labels.judging import judged, read_verdicts, write_verdicts
from benchmarks.human_labels.results import CONSTANT, LONGER, Entrant, result_of
from benchmarks.human_labels.sets import SETS, Rows, read_rows
from judgelm.metrics.resampling import Resampling
from judgelm.records import Judgment, PairDistribution, Sample, Shown
from tests.support.jsonl_files import write_rows

FEW = Resampling(resamples=200)
NAN = float("nan")


def sample(index, answers=("a", "bb"), models=(), question=None):
    return Sample(id=str(index), question=question or f"q{index}", answers=answers, answer_models=models)


def rows_of(truth, samples=None):
    samples = samples or [sample(index) for index in range(len(truth))]
    return Rows(samples=tuple(samples), truth=np.array(truth))


def verdicts(given, swapped=None):
    return measures.Verdicts(given=np.array(given), swapped=np.array(given if swapped is None else swapped))


def test_baselines_that_read_no_word():
    assert constant(np.array([0, 0, 1, -1, 0])).tolist() == [0.5] * 5
    assert constant(np.array([-1, -1, 1])).tolist() == [0.0] * 3
    assert longer([sample(0, ("ab", "a")), sample(1, ("a", "ab")), sample(2, ("é", "e"))]).tolist() == [1.0, 0.0, 0.5]


def test_win_rates_of_a_pair_come_before_overall_ones():
    # m wins 1 of 2 against n by a tie and a tie; overall n has 0.5, x has 1, m has (0.5 + 0.5 + 0) / 3
    labels = [(("m", "n"), 0.5), (("n", "m"), 0.5), (("x", "m"), 1.0)]
    rates = WinRates.from_json(json.loads(json.dumps(WinRates.fitted(labels).to_json())))
    assert rates(sample(0, models=("n", "m"))) == 0.5
    assert rates(sample(0, models=("m", "x"))) == 0.0
    assert rates(sample(0, models=("x", "n"))) == 1.0  # never seen together: 1 against 0.5
    assert rates(sample(0, models=("x", "new"))) is None
    known, unknown = sample(0, models=("m", "x")), sample(1, models=("y", "z"))
    assert generator([known, unknown], rates).tolist() == [0.0, 0.5]
    assert generator([known, unknown, unknown], rates) is None  # it knows too few


def test_a_failure_is_never_right_and_never_a_tie():
    given = verdicts([0.9, 0.5, NAN], [0.7, 0.5, 0.9])
    assert measures.agreement_credits(given, np.array([1, 0, 0]), 0.0).tolist() == [1.0, 1.0, 0.0]
    assert measures.decided_credits(given.probability, np.array([1, -1, 1])).tolist() == [1.0, 0.5, 0.0]


@pytest.mark.parametrize(
    ("protocol", "credit"),
    [
        # labels by each order: (1, 1), (1, -1), (1, tie), (failed, 1) twice; the truth is 1, tie, 1, 1, tie
        ("conflict_is_tie", [1, 1, 0, 0, 0]),
        ("mean_of_orders", [1, 0, 0.5, 0.5, 0]),
        ("every_order", [1, 0, 0, 0, 0]),
        ("vote", [1, 0, 1, 1, 0]),
        ("probability", [1, 1, 1, 0, 0]),  # means 0.85, 0.5, 0.7 and NaN
    ],
)
def test_credits_by_the_authors_protocols(protocol, credit):
    judge = verdicts([0.9, 0.9, 0.9, NAN, NAN], [0.8, 0.1, 0.5, 0.9, 0.9])
    assert measures.protocol_credits(judge, np.array([1, 0, 1, 1, 0]), protocol, 0.05).tolist() == credit


def test_the_tie_threshold_of_the_highest_agreement():
    # within 0.1: ties 0.55 and 0.42 are right, which 0.9 and 0.2 stay; below that one of the two is wrong
    probability, truth = np.array([0.55, 0.42, 0.9, 0.2]), np.array([0, 0, 1, -1])
    assert measures.fit_tie_threshold(probability, truth) == pytest.approx(0.08)
    assert measures.fit_tie_threshold(probability, np.array([1, -1, 1, -1])) == 0.0


def test_verdicts_are_put_back_in_sample_order_and_failures_counted():
    given = PairDistribution(expected=(5, 5), first_better=0.9, tie=0, unassigned=0.1, likeliest=())
    swapped = replace(given, first_better=0.3, unassigned=0.3)
    shown = (
        Shown(order=(0, 1), text="8 3", scores=(8, 3), distribution=given),
        Shown(order=(1, 0), text="4 6", scores=(4, 6), distribution=swapped),
    )
    judgment = Judgment(sample_id="0", mode="pair", verdict=None, shown=shown, prompt_tokens=7)
    result = judged(rows_of([1, -1]), {"0": judgment})
    # exchanged, the first place has 0.3, so the sample's first answer 0.7
    assert result.verdicts.given[0] == 0.9
    assert result.verdicts.swapped[0] == pytest.approx(0.7)
    assert np.isnan(result.verdicts.probability[1])
    assert (result.failures, result.cut, result.prompt_tokens, result.consistent) == ({"missing": 1}, 0, 7, 1.0)
    assert result.assigned == pytest.approx(0.8)


def test_a_judge_is_measured_against_the_best_trivial_baseline():
    # the longer answer is right in 5 of 6, a constant in 3 of 6, the judge in all: 1/6 more than the longer one
    samples = [sample(index, ("long", "s") if index in (0, 1, 2, 3) else ("s", "long")) for index in range(6)]
    rows = rows_of([1, 1, 1, -1, -1, -1], samples)
    entrant = Entrant(judged=judged(rows, {}), tie_threshold=0.2, dev=None)
    right = (rows.truth + 1) / 2 * 0.8 + 0.1
    perfect = replace(entrant, judged=replace(entrant.judged, verdicts=measures.Verdicts.of_baseline(right)))
    llmbar = next(human_set for human_set in SETS if human_set.name == "llmbar")
    result = result_of(llmbar, rows, None, {"the judge": perfect, "its base, zero-shot": entrant}, FEW)
    assert result.best == result.best_decided == LONGER
    assert set(result.baselines) == {CONSTANT, LONGER}
    judge = result.judges["the judge"]
    assert judge.figures.agreement.value == 1
    assert judge.over_trivial.value == pytest.approx(1 / 6)
    assert judge.tie_threshold == 0  # labels are never ties here
    assert judge.names_longer.value == pytest.approx(5 / 6)
    assert [band.judge.n for band in judge.bands] == [6]
    assert result.first_over["its base, zero-shot"].value == 1  # no judgment of the base is there
    assert result.judges["its base, zero-shot"].failures == {"missing": 6}


def test_stored_verdicts_and_baselines_need_no_model(tmp_path, monkeypatch, capsys):
    lines = [
        {"id": f"r{i}", "question": f"q{i}", "answer_1": "a", "answer_2": "bb", "winner": "tie" if i == 3 else 2}
        for i in range(4)
    ]
    for name in ("pandalm", "llmbar"):
        write_rows(tmp_path / f"{name}.jsonl", lines)
    rows = read_rows(tmp_path / "pandalm.jsonl", limit=None, seed=0)
    stored = replace(judged(rows, {}), verdicts=verdicts([0.1, 0.2, 0.9, 0.5], [0.1, 0.2, NAN, 0.5]))
    file = tmp_path / "page" / "verdicts" / "small-judge" / "pandalm.json"
    write_verdicts(file, stored)
    monkeypatch.setattr(sys, "argv", ["human_labels", "--data", str(tmp_path), "--out", str(tmp_path / "page")])
    main()
    assert "not measured, since" in capsys.readouterr().out
    record = json.loads((tmp_path / "page" / "results.json").read_text())
    figures = record["sets"]["pandalm"]["baselines"]["longer answer"]
    assert (figures["agreement"]["value"], figures["decided"]["value"]) == (0.75, 1.0)  # the tie is named a 2
    judge = record["sets"]["pandalm"]["judges"]["small-judge"]
    assert (judge["figures"]["agreement"]["value"], judge["failures"]) == (0.75, {"missing": 4})  # the third failed
    assert record["sets"]["llmbar"]["judges"] == {}
    assert "| LLMBar (written and checked by the authors) | 4 |" in (tmp_path / "page" / "results.md").read_text()
    with pytest.raises(SystemExit, match="verdicts of other pairs"):
        read_verdicts(file, rows.part(np.array([0])))


def test_position_by_each_orders_probability():
    # alike; the first place wins in both orders; the second place does; a failed pair is left out
    place = measures.position(verdicts([0.9, 0.9, 0.2, NAN], [0.6, 0.2, 0.8, 0.1]), ["a", "b", "c", "d"], FEW)
    assert [place.consistency.value, place.toward_first.value, place.toward_second.value] == pytest.approx([1 / 3] * 3)
    assert place.consistency.n == 3
