from dataclasses import replace

import pytest

from judgelm.engines.scripted import ScriptedEngine
from judgelm.metrics.resampling import Estimate, Resampling
from judgelm.modes.self_reference import SelectiveSelfReference
from judgelm.records import Sample, SelfAnswer, Shown
from judgelm.runs.runner import judge
from judgelm.studies.pair_labels import by_id
from judgelm.studies.ssr import SsrOptions, ssr_study
from judgelm.studies.truth_file import PairTruth
from tests.support.studies import FAILURE, judged_pair, table

HOW = Resampling(resamples=200)
LABELS = {"right": ("1", "2"), "wrong": ("2", "1"), "split": ("1", "1")}

# answers, category, without reference, with the majority as reference; the right answer is G, the better one is 1
ITEMS = {
    "a": ("GGGGG", "math", "wrong", "right"),
    "b": ("GGGGB", "math", "split", "right"),
    "c": ("BBBBG", "law", "right", "wrong"),
    "d": ("GGGBB", "law", "right", "right"),
    "e": ("BBGC-", "law", "right", "wrong"),
}


def judged(key, outcome, answers):
    given, swapped = LABELS[outcome]
    shown = (Shown(order=(0, 1), text="", label=given), Shown(order=(1, 0), text="", label=swapped))
    solves = tuple(SelfAnswer(text="", answer=None if char == "-" else char) for char in answers)
    winner = 1 if outcome == "right" else "tie"
    tokens = {"prompt_tokens": 100, "completion_tokens": 10}
    return judged_pair(key, winner, shown=shown, self_answers=solves, **tokens)


NEVER = {key: judged(key, item[2], item[0]) for key, item in ITEMS.items()}
ALWAYS = {key: judged(key, item[3], item[0]) for key, item in ITEMS.items()}
TRUTHS = {key: PairTruth(id=key, winner=1, answer="G", category=item[1]) for key, item in ITEMS.items()}


def study(tau=0.8, selective=None, **options):
    asked = SsrOptions(tau=tau, resampling=HOW, **options)
    return ssr_study(NEVER, ALWAYS, TRUTHS, asked, selective=selective)


def rows_of(result, name):
    return [{key: approximately(cell) for key, cell in row.items()} for row in table(result, name)]


def approximately(cell):
    return pytest.approx(cell.value) if isinstance(cell, Estimate) else cell


def test_the_comparison_at_one_tau_under_all_three_rules():
    rows = {(row["condition"][-3:], row["split"]): row for row in rows_of(study(), "comparison")}
    # A: wrong, split and 3 right; B: right in a, b, d; the gate is on for a, b, c, so that C is right in a, b, d, e
    assert [rows["(A)", rule]["accuracy"] for rule in ("wrong", "half", "tie")] == [0.6, 0.7, 0.75]
    assert (rows["(A)", "tie"]["splits"], rows["(B)", "tie"]["splits"]) == (1, 0)
    assert (rows["(B)", "wrong"]["accuracy"], rows["(C)", "wrong"]["accuracy"]) == (0.6, 0.8)
    assert (rows["(A)", "wrong"]["accuracy_on"], rows["(A)", "half"]["accuracy_on"]) == (1 / 3, 0.5)
    assert (rows["(C)", "wrong"]["accuracy_on"], rows["(C)", "wrong"]["accuracy_off"]) == (2 / 3, 1.0)
    assert (rows["(C)", "wrong"]["gain"], rows["(C)", "wrong"]["gain_over_always"]) == (0.2, 0.2)
    assert (rows["(C)", "wrong"]["gate_on_rate"], rows["(C)", "wrong"]["gate_precision"]) == (0.6, 2 / 3)


def test_every_tau_from_the_same_runs():
    rows = rows_of(study(), "every-tau")
    assert [row["tau"] for row in rows] == [0.2, 0.4, 0.6, 0.8, 1.0]
    assert [row["n_on"] for row in rows] == [5, 5, 4, 3, 1]
    # tau 1: only a takes B: right, split, right, right, right
    assert [row["accuracy"] for row in rows] == [0.6, 0.6, 0.8, 0.8, 0.8]
    assert [row["gate_precision"] for row in rows] == [3 / 5, 3 / 5, 3 / 4, 2 / 3, 1.0]
    assert (rows[0]["never_off"], rows[0]["always_off"]) == (None, None)  # nothing is off


def test_the_four_slices():
    rows = [row for row in rows_of(study(), "four-slices") if row["tau"] == 0.8]
    assert [(row["n"], row["never"], row["always"], row["selective"], row["matches"]) for row in rows] == [
        (2, 0.0, 1.0, 1.0, "B"), (1, 1.0, 0.0, 0.0, "B"), (1, 1.0, 1.0, 1.0, "A"), (1, 1.0, 0.0, 1.0, "A"),
    ]  # fmt: skip


def test_calibration_of_agreement():
    rows = rows_of(study(), "calibration")
    assert [(row["agreement"], row["n"], row["right"]) for row in rows] == [
        (0.4, 1, 0.0), (0.6, 1, 1.0), (0.8, 2, 0.5), (1.0, 1, 1.0),
    ]  # fmt: skip


def test_categories_and_cost():
    result = study()
    [math, law] = rows_of(result, "categories")
    assert (math["category"], math["gain"], math["gate_precision"]) == ("math", 1.0, 1.0)
    assert [law[key] for key in ("gain", "gain_over_always", "gate_precision")] == [-1 / 3, 1 / 3, 0.0]
    assert "In 1 of 2 categories, the selective condition" in result.findings[-1]
    [never, always, selective] = rows_of(result, "cost")
    assert (never["solves"], never["solves_needed"], always["solves_needed"]) == (25, 0, 25)
    assert (selective["calls"], selective["calls_per_item"], selective["prompt_tokens"]) == (10, 2.0, 500)


def test_a_selective_run_is_checked_against_the_two_others():
    own = {**{key: ALWAYS[key] for key in "ab"}, **{key: NEVER[key] for key in "cde"}}
    result = study(selective=own)
    # c has the gate on, and this run took its verdict from the other one: another outcome. No run says its reference.
    assert (result.counts["selective run, compared"], result.counts["selective run, other outcome"]) == (5, 1)
    assert result.counts["selective run, other gate"] == 3
    assert any("a different gate" in warning for warning in result.warnings)


def test_runs_of_the_mode_itself():
    def reply(prompt):
        """Takes the first response unless it is told the answer; then that which has it."""
        text = "".join(span.text for span in prompt.spans)
        told = "the correct answer is G" in text
        return "[[2]]" if told and text.index("It is (B).") < text.index("It is (G).") else "[[1]]"

    solves = {"on": "GGGGB", "off": "GGBCD"}
    samples = [
        Sample(id=key, question="q", answers=("It is (G).", "It is (B)."),
               metadata={"solves": [{"text": "so", "answer": letter} for letter in letters]})
        for key, letters in solves.items()
    ]  # fmt: skip
    runs = {
        when: by_id(judge(samples, SelectiveSelfReference(when=when), ScriptedEngine(reply)))
        for when in ("never", "always", "selective")
    }
    truths = {key: PairTruth(id=key, winner=1, answer="G") for key in solves}
    result = ssr_study(runs["never"], runs["always"], truths, SsrOptions(resampling=HOW), selective=runs["selective"])
    rows = rows_of(result, "comparison")[:3]
    assert ([row["accuracy"] for row in rows], rows[0]["splits"]) == ([0.0, 1.0, 0.5], 2)
    assert result.counts["selective run, compared"] == 2
    assert not result.warnings


def test_a_judge_that_fails_on_every_pair_has_no_share_of_nothing():
    failed = {key: replace(judgment, verdict=None, failure=FAILURE) for key, judgment in NEVER.items()}
    result = ssr_study(failed, ALWAYS, TRUTHS, SsrOptions(resampling=HOW))
    assert [one.name for one in result.tables] == ["failures"]
    assert rows_of(result, "failures")[0] == {"condition": "no reference (A)", "pairs": 5, "failed": 5}
    assert rows_of(result, "failures")[1]["failed"] == 0
    assert result.findings[0].startswith("All 5 pairs failed")
    assert "5 pairs failed" in result.warnings[0]
