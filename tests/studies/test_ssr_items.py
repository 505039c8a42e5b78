import math

import pytest

from judgelm.errors import InputError
from judgelm.records import Judgment, LabelVerdict, SelfAnswer, Shown
from judgelm.studies.ssr_items import credit, join_items, pair_outcome
from judgelm.studies.truth_file import PairTruth, by_sample
from tests.support.studies import judged_pair


def judged(key, given, swapped, answers=(), **fields):
    """Labels as the judge wrote them in each order: `1` is the answer shown first."""
    shown = (Shown(order=(0, 1), text="", label=given), Shown(order=(1, 0), text="", label=swapped))
    solves = tuple(SelfAnswer(text="", answer=answer) for answer in answers)
    return judged_pair(key, "tie", shown=shown, self_answers=solves, **fields)


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
    shown = (Shown(order=(0, 1), text="", scores=(8, 3)), Shown(order=(1, 0), text="", scores=(2, 9)))
    assert pair_outcome(judged_pair("x", 2, shown=shown), 1) == "right"  # 8 > 3 as given; swapped, it has 9
    verdicts = [pair_outcome(judged_pair("x", winner, shown=()), 2) for winner in (1, 2, "tie")]
    assert verdicts == ["wrong", "right", "split"]


def test_a_failure_has_no_outcome_and_another_verdict_is_refused():
    assert pair_outcome(judged_pair("x", None), 1) is None
    with pytest.raises(InputError, match="runs in mode ssr"):
        pair_outcome(Judgment(sample_id="x", mode="m", verdict=LabelVerdict(label="correct"), shown=()), 1)


def test_a_split_counts_three_ways():
    assert [credit("split", rule) for rule in ("wrong", "half")] == [0.0, 0.5]
    assert math.isnan(credit("split", "tie"))
    assert (credit("right", "tie"), credit("wrong", "half")) == (1.0, 0.0)


def test_items_are_what_both_runs_judged():
    truths = by_sample([PairTruth(id=key, winner=1, answer="G") for key in "abcde"])
    five = ("G", "G", "G", "G", "B")
    never = {
        "a": judged("a", "1", "1", five),
        "b": judged("b", "1", "2"),
        "c": judged_pair("c", None),
        "e": judged("e", "1", "2"),
    }
    always = {"a": judged("a", "1", "2", five, own_reference="G"), "b": judged("b", "1", "2", ("B", None)),
              "c": judged("c", "1", "2", five), "e": judged("e", "1", "2"), "z": judged("z", "1", "2")}  # fmt: skip
    result = join_items(never, always, truths)
    first, second = result.items
    assert (first.majority.agreement, first.majority_right, first.never, first.always) == (0.8, True, "split", "right")
    assert (first.selective(0.8), first.selective(1.0)) == ("right", "split")
    assert (second.majority.agreement, second.majority_right) == (0.5, False)
    counts = result.counts
    assert counts["compared"] == 2
    ones = (
        "failed in a run",
        "without solves",
        "not in both runs",
        "judgments without truth",
        "failed without reference",
    )
    assert [counts[name] for name in ones] == [1] * 5


def test_other_solves_and_other_references_are_counted():
    truths = {"a": PairTruth(id="a", winner=1)}
    always = judged("a", "1", "2", ("B", "B"), own_reference="G")
    counts = join_items({"a": judged("a", "1", "2", ("G", "B"))}, {"a": always}, truths).counts
    assert counts["different solves in the two runs"] == 1
    assert counts["reference is not the majority"] == 1
    assert counts["majority not known to be right or wrong"] == 1


def test_nothing_to_compare_is_an_error():
    truths = {"a": PairTruth(id="a", winner=1)}
    run = {"a": judged("a", "1", "2")}
    for never, finding in (({}, "no pair is in both runs"), (run, "no self-solves")):
        with pytest.raises(InputError, match=finding):
            join_items(never, run, truths)
