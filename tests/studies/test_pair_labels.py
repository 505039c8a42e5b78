"""A label from the judgments of both orders, by each rule."""

import math
from dataclasses import replace

import pytest

from judgelm.errors import InputError
from judgelm.parsing.scores import pair_distribution, score_lines
from judgelm.records import Shown, Unparsed
from judgelm.studies.pair_labels import failure_code, pair_label
from tests.support.studies import both_orders, judged_pair


def judgment(*shown, winner=1):
    return judged_pair("s", winner, shown=shown)


GIVEN = Shown(order=(0, 1), text="", scores=(8, 3))
SWAPPED = Shown(order=(1, 0), text="", scores=(6, 5))
BROKEN = Shown(order=(1, 0), text="?", failure=Unparsed("off_grammar", "?"))


@pytest.mark.parametrize(
    ("rule", "label"),
    # sample order: (8, 3) and (5, 6): +5 - 1 = +4 by the mean; +1 against -1 conflicts
    [("as_judged", -1), ("mean", 1), ("given", 1), ("tie", 0)],
)
def test_order_rules(rule, label):
    assert pair_label(judgment(GIVEN, SWAPPED, winner=2), rule) == label


@pytest.mark.parametrize(
    ("given", "swapped", "label"),
    # shown swapped, "1" is the sample's second answer
    [("1", "2", 1), ("1", "1", 0), ("2", "1", -1), ("tie", "tie", 0)],
)
def test_orders_that_end_in_a_place_instead_of_scores(given, swapped, label):
    assert pair_label(both_orders("s", given, swapped), "tie") == label


def test_the_mean_rule_tells_an_exact_tie():
    # 7.1 - 6.9 and 6.9 - 7.1 sum to 0, give or take float arithmetic
    assert pair_label(both_orders("s", (7.1, 6.9), (7.1, 6.9)), "mean") == 0


@pytest.mark.parametrize(
    ("shown", "rule", "label"),
    [
        ((GIVEN, BROKEN), "tie", None),
        ((GIVEN, BROKEN), "as_judged", 1),
        ((GIVEN, BROKEN), "given", 1),  # only the given order can fail this one
        ((replace(BROKEN, order=(0, 1)), SWAPPED), "given", None),
        ((Shown(order=(0, 1), text="B"),), "tie", 1),  # one order is the verdict under every rule
    ],
)
def test_a_failed_order_fails_the_rules_that_need_it(shown, rule, label):
    assert pair_label(judgment(*shown), rule) == label


@pytest.mark.parametrize(
    ("shown", "rule", "reverse", "finding"),
    [
        ((Shown(order=(0, 1), text="A"), Shown(order=(1, 0), text="A")), "tie", None, "as_judged"),
        ((GIVEN, SWAPPED), "mean", judgment(GIVEN), "both orders were already judged"),
        ((GIVEN, SWAPPED), "probability", None, "judge again with --distribution"),
    ],
)
def test_orders_that_cannot_be_combined_are_refused(shown, rule, reverse, finding):
    with pytest.raises(InputError, match=finding):
        pair_label(judgment(*shown), rule, reverse)


def with_distribution(shown, first, assigned=1.0):
    """`first`: the probability that the answer shown first is better."""
    logprobs = [-math.inf, math.log((1 - first) * assigned), math.log(first * assigned), -math.inf]
    return replace(shown, distribution=pair_distribution(score_lines((1, 2), 1), logprobs))


@pytest.mark.parametrize(
    ("given", "swapped", "band", "label"),
    # mean of P(first of the sample): (0.9 + 1 - 0.3) / 2 = 0.8; (0.3 + 1 - 0.8) / 2 = 0.25; (0.6 + 1 - 0.56) / 2 = 0.52
    [(0.9, 0.3, 0.05, 1), (0.3, 0.8, 0.05, -1), (0.6, 0.56, 0.05, 0), (0.6, 0.56, 0.01, 1)],
)
def test_the_probability_rule_is_applied_again_from_the_distributions(given, swapped, band, label):
    result = judgment(with_distribution(GIVEN, given), with_distribution(SWAPPED, swapped))
    assert pair_label(result, "probability", tie_threshold=band) == label


def test_the_probability_rule_on_failed_orders_little_mass_and_a_reversed_file():
    assert pair_label(judgment(with_distribution(GIVEN, 0.9), BROKEN), "probability") is None
    # an unparseable line whose score lines have the mass all the same: (0.9 + 0.6) / 2
    unread = replace(with_distribution(SWAPPED, 0.4), scores=None, failure=Unparsed("off_grammar", "?"))
    assert pair_label(judgment(with_distribution(GIVEN, 0.9), unread), "probability") == 1
    result = judgment(with_distribution(GIVEN, 0.9), with_distribution(SWAPPED, 0.4, assigned=0.3))
    assert (pair_label(result, "probability"), failure_code(result)) == (None, "off_grammar")
    given, reverse = (judgment(with_distribution(GIVEN, first)) for first in (0.9, 0.4))
    # the reversed file showed the second answer first: (0.9 + 0.6) / 2
    assert pair_label(given, "probability", reverse) == 1
