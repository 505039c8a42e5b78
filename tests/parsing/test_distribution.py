"""From log-probabilities of score lines to expected scores and P(first better)."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.errors import ConfigError
from judgelm.parsing.scores import antisymmetrised, pair_distribution, parse_pair, score_grammar, score_lines, winner_by

SMALL = score_lines((1, 2), 1)  # 1 1, 1 2, 2 1, 2 2
GIVEN, SWAPPED = (0, 1), (1, 0)


def logs(*probabilities):
    return [math.log(p) if p else -math.inf for p in probabilities]


def masses(lines):
    """Probabilities of all lines and of none of them, summing to 1; at least some on the lines."""
    weights = st.lists(st.floats(0, 1), min_size=len(lines.pairs) + 1, max_size=len(lines.pairs) + 1)
    return weights.filter(lambda found: sum(found[:-1]) > 0.01).map(lambda found: [one / sum(found) for one in found])


def test_lines_are_written_as_training_writes_them():
    lines = score_lines((1, 10), 1)
    assert len(lines.texts) == 100
    assert lines.texts[0] == "1 1"
    assert lines.texts[-1] == "10 10"
    assert lines.pairs[lines.texts.index("8 6")] == (8, 6)


def test_a_step_of_a_half_gives_decimals_where_they_are_needed():
    lines = score_lines((1, 10), 0.5)
    assert len(lines.values) == 19
    assert {"8.5 6", "8 6.5", "10 10"} <= set(lines.texts)


@pytest.mark.parametrize(("scale", "step"), [((1, 10), 1), ((1, 10), 0.1), ((0, 5), 0.25), ((-1, 1), 0.5)])
def test_every_line_reads_as_its_scores(scale, step):
    lines = score_lines(scale, step)
    assert [parse_pair(text, scale).values for text in lines.texts] == list(lines.pairs)


@pytest.mark.parametrize(
    ("scale", "step", "finding"),
    [
        ((1, 10), 0, "must be a positive number"),
        ((1, 10), -1, "must be a positive number"),
        ((1, 10), math.nan, "must be a positive number"),
        ((1, 10), 0.05, "holds 181 scores"),
        ((0, 100), 1, "holds 101 scores"),
        ((1, 10), 20, "holds 0 scores"),
        ((1, 1.5), 1, "holds 1 scores"),
        ((1, 10), math.inf, "must be a positive number"),
        ((-math.inf, math.inf), 1, "must be a positive number"),
    ],
)
def test_an_absurd_grid_is_refused(scale, step, finding):
    with pytest.raises(ConfigError, match=finding):
        score_lines(scale, step)


def test_the_smallest_and_the_largest_grid():
    assert score_lines((1, 2), 1).texts == ("1 1", "1 2", "2 1", "2 2")
    assert len(score_lines((1, 100), 1).pairs) == 100**2


def test_ends_that_are_no_multiples_of_the_step_are_left_out():
    assert score_lines((0.5, 3.9), 1).values == (1, 2, 3)


def test_by_hand():
    # 1 2: 0.2, 2 1: 0.4, 2 2: 0.2, 0.2 on something else; over the 0.8 that is assigned:
    # E1 = (0.2 + 0.8 + 0.4) / 0.8 = 1.75, E2 = (0.4 + 0.4 + 0.4) / 0.8 = 1.5, tie 0.25, first 0.5 + 0.125
    found = pair_distribution(SMALL, logs(0, 0.2, 0.4, 0.2), "top 20")
    assert found.expected == pytest.approx((1.75, 1.5))
    assert (found.first_better, found.tie, found.unassigned) == pytest.approx((0.625, 0.25, 0.2))
    assert [line[:2] for line in found.likeliest] == [(2, 1), (1, 2), (2, 2)]
    assert found.approximation == "top 20"


def test_likely_lines_are_listed_from_one_in_ten_thousand_on_to_six_places():
    found = pair_distribution(SMALL, [math.log(0.00009), math.log(0.12345678), math.log(0.5), math.log(0.12345678)])
    # equally likely lines come in order of their scores
    assert found.likeliest == ((2, 1, 0.5), (1, 2, 0.123457), (2, 2, 0.123457))
    assert found.approximation == ""


def test_nothing_assigned_is_no_number():
    found = pair_distribution(SMALL, logs(0, 0, 0, 0))
    assert found.unassigned == 1
    assert all(math.isnan(value) for value in (*found.expected, found.first_better, found.tie))
    assert antisymmetrised([(GIVEN, found)]) is None


@pytest.mark.parametrize(("assigned", "there"), [(0.5, True), (0.49, False)])
def test_less_than_half_of_the_mass_is_no_probability(assigned, there):
    found = pair_distribution(SMALL, logs(0, 0, assigned, 0))
    assert (antisymmetrised([(GIVEN, found)]) is not None) == there


def test_two_orders_are_averaged_in_sample_order():
    # given: 0.9 for the first; swapped, the one shown first has 0.3, so the sample's first has 0.7
    given_order = pair_distribution(SMALL, logs(0, 0.1, 0.9, 0))
    swapped = pair_distribution(SMALL, logs(0, 0.7, 0.3, 0))
    assert antisymmetrised([(GIVEN, given_order), (SWAPPED, swapped)]) == pytest.approx(0.8)


def test_a_log_probability_for_each_line():
    with pytest.raises(ValueError, match="shorter"):
        pair_distribution(SMALL, [0.0])


@given(masses(SMALL))
def test_shares_stay_shares(probabilities):
    found = pair_distribution(SMALL, logs(*probabilities[:-1]))
    assert 0 <= found.tie <= 1 + 1e-12
    assert 0 <= found.first_better <= 1
    assert found.unassigned == pytest.approx(probabilities[-1], abs=1e-9)
    assert sum(line[2] for line in found.likeliest) <= 1 - found.unassigned + 1e-5
    assert all(1 <= score <= 2 + 1e-12 for score in found.expected)


@given(masses(score_lines((1, 3), 0.5)))
def test_exchanging_the_answers_exchanges_everything(probabilities):
    lines = score_lines((1, 3), 0.5)
    exchanged = {(s2, s1): p for (s1, s2), p in zip(lines.pairs, probabilities, strict=False)}
    one = pair_distribution(lines, logs(*probabilities[:-1]))
    other = pair_distribution(lines, logs(*(exchanged[pair] for pair in lines.pairs)))
    assert other.first_better == pytest.approx(1 - one.first_better)
    assert other.expected == pytest.approx(one.expected[::-1])
    assert other.tie == pytest.approx(one.tie)


@given(masses(SMALL), masses(SMALL))
def test_the_probability_is_antisymmetric_and_knows_no_order_of_orders(left, right):
    one, two = (pair_distribution(SMALL, logs(*found[:-1])) for found in (left, right))
    p = antisymmetrised([(GIVEN, one), (SWAPPED, two)])
    assert antisymmetrised([(SWAPPED, two), (GIVEN, one)]) == p
    turned = antisymmetrised([(SWAPPED, one), (GIVEN, two)])
    assert (p is None) == (turned is None)
    assert p is None or turned == pytest.approx(1 - p)


@given(masses(SMALL), st.permutations(range(4)))
def test_the_order_of_the_lines_does_not_matter(probabilities, order):
    shuffled = SMALL._replace(pairs=tuple(SMALL.pairs[place] for place in order))
    one = pair_distribution(SMALL, logs(*probabilities[:-1]))
    other = pair_distribution(shuffled, logs(*(probabilities[place] for place in order)))
    assert other == one


@pytest.mark.parametrize(
    ("probability", "band", "winner"),
    [(0.55, 0.05, "tie"), (0.45, 0.05, "tie"), (0.56, 0.05, 1), (0.44, 0.05, 2), (0.5, 0, "tie"), (0.51, 0, 1)],
)
def test_the_tie_threshold_holds_its_ends(probability, band, winner):
    assert winner_by(probability, band) == winner


def test_the_grammar_tries_the_longest_number_first_and_is_always_the_same_text():
    assert score_grammar(score_lines((8, 10), 1)) == r"(10|8|9) (10|8|9)\n?"
    assert score_grammar(score_lines((1, 2), 0.5)) == r"(1\.5|1|2) (1\.5|1|2)\n?"


@pytest.mark.parametrize(("scale", "step"), [((1, 10), 1), ((0, 5), 0.5), ((-1, 1), 0.5)])
def test_the_grammar_takes_the_lines_and_nothing_else(scale, step):
    import re

    lines = score_lines(scale, step)
    grammar = re.compile(score_grammar(lines))
    assert all(grammar.fullmatch(text) and grammar.fullmatch(text + "\n") for text in lines.texts)
    assert not any(grammar.fullmatch(text) for text in ("8", "8 6 5", "11 6", "8  6", "8 6x", "8x5 6", ""))
