from judgelm.metrics.resampling import Resampling
from judgelm.parsing.short_answers import majority
from judgelm.studies.ssr_items import SsrItem, SsrItems
from judgelm.studies.ssr_tau import NEVER, choose_tau, choose_taus, chosen_table, held_out_table, split_items

TAUS = (0.2, 0.4, 0.6, 0.8, 1.0)


def item(key, category, votes, never, always, question=None):
    answers = ["G"] * votes + ["BCDEF"[place] for place in range(5 - votes)]
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
    part = items(
        item("a", "x", 5, "wrong", "right"), item("b", "x", 4, "wrong", "right"), item("c", "x", 3, "right", "wrong")
    )
    found = choose_tau(part, TAUS, "wrong")
    assert (found.tau, found.accuracy, found.n) == (0.8, 1.0, 3)


def test_of_equal_taus_the_highest_stands():
    same = items(item("a", "x", 3, "right", "right"))
    assert choose_tau(same, TAUS, "wrong").tau == NEVER
    assert choose_tau(items(*changed("x", 4)), TAUS, "wrong").tau == 0.4


def test_parts_keep_questions_together_and_halve_each_category():
    rows = [item(f"{category}{place}", category, 3, "right", "wrong", f"{category}{place // 2}")
            for category in "xy" for place in range(20)]  # fmt: skip
    calibration, held_out = split_items(items(*rows), seed=1)
    assert {one.question for one in calibration.items}.isdisjoint(one.question for one in held_out.items)
    for part in (calibration, held_out):
        assert [sum(one.category == category for one in part.items) for category in "xy"] == [10, 10]
    assert split_items(items(*rows), seed=1)[0].items == calibration.items
    assert split_items(items(*rows), seed=2)[0].items != calibration.items


def test_a_tau_for_each_category_beats_one_for_all_on_the_held_out_part():
    chosen = choose_taus(items(*changed("math", 40), *changed("law", 40, "right", "wrong")), "wrong", seed=0)
    assert (chosen.tau_of("math"), chosen.tau_of("law")) == (0.4, NEVER)
    assert chosen.tau_of("history") == chosen.common.tau
    table = held_out_table(chosen, 0.8, "wrong", Resampling(resamples=100))
    accuracy = {row[0]: row[1].value for row in table.rows}
    assert accuracy["a tau per category, chosen"] == 1.0
    assert accuracy["no reference"] == accuracy["always"] == 0.5
    assert table.rows[2][2] is None  # the fixed tau's gain over itself
    assert [row[:1] + row[2:3] for row in chosen_table(chosen).rows[1:]] == [("math", "0.4"), ("law", "never")]


def test_no_item_that_counts_and_too_few_for_two_parts_have_no_choice():
    assert choose_tau(items(), TAUS, "wrong") is None
    assert choose_tau(items(item("a", "x", 5, "split", "split")), TAUS, "tie") is None
    assert choose_taus(items(item("a", "x", 5, "right", "wrong")), "wrong", seed=0) is None
