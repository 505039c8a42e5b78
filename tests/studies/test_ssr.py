"""Selective self-reference: outcomes of pairs, the study's tables, and the choice of tau."""

import math
from dataclasses import replace

import pytest

from judgelm.engines.scripted import ScriptedEngine
from judgelm.errors import InputError
from judgelm.metrics.resampling import Estimate
from judgelm.modes.self_reference import SelectiveSelfReference
from judgelm.parsing.short_answers import majority
from judgelm.records import Judgment, LabelVerdict, Sample, SelfAnswer
from judgelm.runs.runner import judge
from judgelm.studies.pair_labels import by_id
from judgelm.studies.ssr import SsrOptions, ssr_study
from judgelm.studies.ssr_items import SsrItem, SsrItems, credit, join_items, pair_outcome
from judgelm.studies.ssr_tau import NEVER, choose_tau, choose_taus, chosen_table, held_out_table, split_items
from judgelm.studies.truth_file import PairTruth, by_sample
from tests.support.studies import FAILURE, HOW, both_orders, judged_pair, table

LABELS = {"right": ("1", "2"), "wrong": ("2", "1"), "split": ("1", "1")}

# answers, category, without reference, with the majority as reference; the right answer is G, the better one is 1
ITEMS = {
    "a": ("GGGGG", "math", "wrong", "right"),
    "b": ("GGGGB", "math", "split", "right"),
    "c": ("BBBBG", "law", "right", "wrong"),
    "d": ("GGGBB", "law", "right", "right"),
    "e": ((*"BBGC", None), "law", "right", "wrong"),
}


def judged(key, given, swapped, answers=(), **fields):
    """Labels as the judge wrote them in each order: `1` is the answer shown first."""
    solves = tuple(SelfAnswer(text="", answer=answer) for answer in answers)
    fields |= {"self_answers": solves, "prompt_tokens": 100, "completion_tokens": 10}
    return both_orders(key, given, swapped, "tie", **fields)


NEVER_REFERENCE = {key: judged(key, *LABELS[item[2]], item[0]) for key, item in ITEMS.items()}
ALWAYS = {key: judged(key, *LABELS[item[3]], item[0]) for key, item in ITEMS.items()}
TRUTHS = {key: PairTruth(id=key, winner=1, answer="G", category=item[1]) for key, item in ITEMS.items()}


def study(selective=None):
    return ssr_study(NEVER_REFERENCE, ALWAYS, TRUTHS, SsrOptions(tau=0.8, resampling=HOW), selective=selective)


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


def test_the_four_slices_and_the_calibration_of_agreement():
    result = study()
    rows = [row for row in rows_of(result, "four-slices") if row["tau"] == 0.8]
    assert [(row["n"], row["never"], row["always"], row["selective"], row["matches"]) for row in rows] == [
        (2, 0.0, 1.0, 1.0, "B"), (1, 1.0, 0.0, 0.0, "B"), (1, 1.0, 1.0, 1.0, "A"), (1, 1.0, 0.0, 1.0, "A"),
    ]  # fmt: skip
    rows = rows_of(result, "calibration")
    assert [(row["agreement"], row["n"], row["right"]) for row in rows] == [
        (0.4, 1, 0.0), (0.6, 1, 1.0), (0.8, 2, 0.5), (1.0, 1, 1.0),
    ]  # fmt: skip


def test_categories_and_cost():
    result = study()
    [maths, law] = rows_of(result, "categories")
    assert (maths["category"], maths["gain"], maths["gate_precision"]) == ("math", 1.0, 1.0)
    assert [law[key] for key in ("gain", "gain_over_always", "gate_precision")] == [-1 / 3, 1 / 3, 0.0]
    assert "In 1 of 2 categories, the selective condition" in result.findings[-1]
    [never, always, selective] = rows_of(result, "cost")
    assert (never["solves"], never["solves_needed"], always["solves_needed"]) == (25, 0, 25)
    assert (selective["calls"], selective["calls_per_item"], selective["prompt_tokens"]) == (10, 2.0, 500)


def test_a_selective_run_is_checked_against_the_two_others():
    result = study(selective=NEVER_REFERENCE | {key: ALWAYS[key] for key in "ab"})
    # c has the gate on, and this run took its verdict from the other one: another outcome. No run says its reference.
    counts = [result.counts[f"selective run, {name}"] for name in ("compared", "other outcome", "other gate")]
    assert counts == [5, 1, 3]
    assert any("a different gate" in warning for warning in result.warnings)


def test_runs_of_the_mode_itself():
    def reply(prompt):
        """Takes the first response unless it is told the answer; then that which has it."""
        text = "".join(span.text for span in prompt.spans)
        given = "the correct answer is G" in text
        return "[[2]]" if given and text.index("It is (B).") < text.index("It is (G).") else "[[1]]"

    solves = {"on": "GGGGB", "off": "GGBCD"}
    samples = [
        Sample(id=key, question="q", answers=("It is (G).", "It is (B)."),
               metadata={"solves": [{"text": "so", "answer": letter} for letter in letters]})
        for key, letters in solves.items()
    ]  # fmt: skip
    never, always, selective = (
        by_id(judge(samples, SelectiveSelfReference(when=when), ScriptedEngine(reply)))
        for when in ("never", "always", "selective")
    )
    truths = {key: PairTruth(id=key, winner=1, answer="G") for key in solves}
    result = ssr_study(never, always, truths, SsrOptions(resampling=HOW), selective=selective)
    rows = rows_of(result, "comparison")[:3]
    assert ([row["accuracy"] for row in rows], rows[0]["splits"]) == ([0.0, 1.0, 0.5], 2)
    assert result.counts["selective run, compared"] == 2
    assert not result.warnings


def test_a_judge_that_fails_on_every_pair_has_only_a_table_of_failures():
    failed = {key: replace(judgment, verdict=None, failure=FAILURE) for key, judgment in NEVER_REFERENCE.items()}
    result = ssr_study(failed, ALWAYS, TRUTHS, SsrOptions(resampling=HOW))
    assert [part.name for part in result.tables] == ["failures"]
    first, second = rows_of(result, "failures")
    assert (first, second["failed"]) == ({"condition": "no reference (A)", "pairs": 5, "failed": 5}, 0)
    assert result.findings[0].startswith("All 5 pairs failed")
    assert "5 pairs failed" in result.warnings[0]


@pytest.mark.parametrize(
    ("given", "swapped", "winner", "expected"),
    [
        ("1", "2", 1, "right"),  # the first answer in both orders
        ("1", "2", 2, "wrong"),
        ("1", "1", 1, "split"),  # whoever stands first
        ("A", "b", 1, "right"),
        ("1", "tie", 1, "right"),  # one vote to none
        ("tie", "tie", 1, "split"),
        ("tie", "1", 1, "wrong"),
    ],
)
def test_two_orders_vote(given, swapped, winner, expected):
    assert pair_outcome(judged("x", given, swapped), winner) == expected


def test_scores_vote_as_labels_do_and_without_readable_orders_the_verdict_decides():
    assert pair_outcome(both_orders("x", (8, 3), (2, 9), 2), 1) == "right"  # 8 > 3 as given; swapped, it has 9
    verdicts = [pair_outcome(judged_pair("x", winner, shown=()), 2) for winner in (1, 2, "tie")]
    assert verdicts == ["wrong", "right", "split"]
    assert pair_outcome(judged_pair("x", None), 1) is None
    with pytest.raises(InputError, match="runs in mode ssr"):
        pair_outcome(Judgment(sample_id="x", mode="m", verdict=LabelVerdict(label="correct"), shown=()), 1)


def test_a_split_counts_three_ways():
    assert [credit("split", rule) for rule in ("wrong", "half")] == [0.0, 0.5]
    assert math.isnan(credit("split", "tie"))
    assert (credit("right", "tie"), credit("wrong", "half")) == (1.0, 0.0)


def test_items_are_what_both_runs_judged():
    truths = by_sample([PairTruth(id=key, winner=1, answer="G") for key in "abcde"])
    plain = {key: judged(key, "1", "2") for key in "bez"}
    never = {"a": judged("a", "1", "1", "GGGGB"), "b": plain["b"], "c": judged_pair("c", None), "e": plain["e"]}
    always = plain | {"a": judged("a", "1", "2", "GGGGB", own_reference="G"), "c": judged("c", "1", "2", "GGGGB")}
    always["b"] = judged("b", "1", "2", ("B", None))
    result = join_items(never, always, truths)
    first, second = result.items
    assert (first.majority.agreement, first.majority_right, first.never, first.always) == (0.8, True, "split", "right")
    assert (first.selective(0.8), first.selective(1.0)) == ("right", "split")
    assert (second.majority.agreement, second.majority_right) == (0.5, False)
    assert result.counts["compared"] == 2
    names = ["failed in a run", "without solves", "not in both runs", "judgments without truth"]
    assert [result.counts[name] for name in (*names, "failed without reference")] == [1] * 5
    # other solves and another reference
    truths = {"a": PairTruth(id="a", winner=1)}
    always = judged("a", "1", "2", ("B", "B"), own_reference="G")
    counts = join_items({"a": judged("a", "1", "2", ("G", "B"))}, {"a": always}, truths).counts
    names = ("different solves in the two runs", "reference is not the majority")
    assert [counts[name] for name in (*names, "majority not known to be right or wrong")] == [1] * 3


def test_nothing_to_compare_is_an_error():
    truths = {"a": PairTruth(id="a", winner=1)}
    run = {"a": judged("a", "1", "2")}
    for never, finding in (({}, "no pair is in both runs"), (run, "no self-solves")):
        with pytest.raises(InputError, match=finding):
            join_items(never, run, truths)


TAUS = (0.2, 0.4, 0.6, 0.8, 1.0)


def item(key, category, votes, never, always, question=None):
    answers = [*"GGGGG"[:votes], *"BCDEF"[votes:]]
    return SsrItem(
        id=key, category=category, question=question or key, majority=majority(answers), majority_right=None,
        never=never, always=always,
    )  # fmt: skip


def items(*rows):
    return SsrItems(items=tuple(rows), counts={})


def changed(category, count, never="wrong", always="right"):
    """Self-reference helps, or harms, from 2 of 5 votes on."""
    return [item(f"{category}{place}", category, 2 + place % 4, never, always) for place in range(count)]


def test_the_best_tau_is_chosen():
    helped = [item("a", "x", 5, "wrong", "right"), item("b", "x", 4, "wrong", "right")]
    choice = choose_tau(items(*helped, item("c", "x", 3, "right", "wrong")), TAUS, "wrong")
    assert (choice.tau, choice.accuracy, choice.n) == (0.8, 1.0, 3)
    # of equal ones the highest
    assert choose_tau(items(item("a", "x", 3, "right", "right")), TAUS, "wrong").tau == NEVER
    assert choose_tau(items(*changed("x", 4)), TAUS, "wrong").tau == 0.4


def test_parts_keep_questions_together_and_halve_each_category():
    rows = [item(f"{category}{place}", category, 3, "right", "wrong", f"{category}{place // 2}")
            for category in "xy" for place in range(20)]  # fmt: skip
    calibration, held_out = split_items(items(*rows), seed=1)
    assert {item.question for item in calibration.items}.isdisjoint(item.question for item in held_out.items)
    for part in (calibration, held_out):
        assert [sum(item.category == category for item in part.items) for category in "xy"] == [10, 10]
    assert split_items(items(*rows), seed=1)[0].items == calibration.items
    assert split_items(items(*rows), seed=2)[0].items != calibration.items


def test_a_tau_for_each_category_beats_one_for_all_on_the_held_out_part():
    chosen = choose_taus(items(*changed("math", 40), *changed("law", 40, "right", "wrong")), "wrong", seed=0)
    assert (chosen.tau_of("math"), chosen.tau_of("law")) == (0.4, NEVER)
    assert chosen.tau_of("history") == chosen.common.tau
    rows = held_out_table(chosen, 0.8, "wrong", HOW).rows
    accuracy = {row[0]: row[1].value for row in rows}
    assert [accuracy[name] for name in ("a tau per category, chosen", "no reference", "always")] == [1.0, 0.5, 0.5]
    assert rows[2][2] is None  # the fixed tau's gain over itself
    assert [row[:1] + row[2:3] for row in chosen_table(chosen).rows[1:]] == [("math", "0.4"), ("law", "never")]


def test_no_item_that_counts_and_too_few_for_two_parts_have_no_choice():
    assert choose_tau(items(), TAUS, "wrong") is None
    assert choose_tau(items(item("a", "x", 5, "split", "split")), TAUS, "tie") is None
    assert choose_taus(items(item("a", "x", 5, "right", "wrong")), "wrong", seed=0) is None
