"""Filters, positions and labels."""

import pytest

from judgelm.errors import InputError
from judgelm.records import GradeVerdict, Judgment, Shown
from judgelm.serving.web.browse_state import PAGE, Filter, start_browsing, verdict_counts
from tests.support.judged_items import failed_judgment, pair_judgment, pair_sample, run_of


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
    grade = Judgment(
        sample_id="g",
        mode="single",
        verdict=GradeVerdict(score=7.0),
        shown=(Shown(order=(0,), text="7", scores=(7.0,)),),
    )
    browsing = start_browsing(run_of(grade, pair_judgment("a", 1)))
    with pytest.raises(InputError, match="not a pair"):
        browsing.labelled(1)
    with pytest.raises(InputError, match="no item to label"):
        browsing.filtered(Filter(text="nowhere")).labelled(1)


def test_two_runs_without_a_common_id_are_refused():
    with pytest.raises(InputError, match=r"b.jsonl and a.jsonl have no ids"):
        start_browsing(
            run_of(pair_judgment("a", 1), name="a.jsonl"), other=run_of(pair_judgment("b", 1), name="b.jsonl")
        )


def test_the_overview_counts_all_items(browsing):
    expected = {"1": 1, "2": 1, "tie": 1, "failed": 2, "judged in both orders": 2, "flip with the order": 1}
    assert verdict_counts(browsing.filtered(Filter(verdict="1"))) == expected
