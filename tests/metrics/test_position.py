import numpy as np
import pytest

from judgelm.metrics.agreement import first_place_leads, position_bias, position_cells


def test_always_first_leans_to_the_first_place():
    # shown first wins in both orders: as given answer 1 (+1), swapped answer 2 (-1)
    result = position_bias(np.array([1, 1]), np.array([-1, -1]))
    assert (result.consistency, result.toward_first, result.toward_second) == (0, 1, 0)
    assert result.delta == 1


def test_order_blind_judge_is_consistent():
    labels = np.array([1, 0, -1])
    assert position_bias(labels, labels).consistency == 1


def test_shares_of_four_pairs():
    given, swapped = np.array([1, 0, 0, -1]), np.array([1, -1, 1, 0])
    # pair 1 alike; pair 2: answer 1 ties when first and loses when second -> first;
    # pair 3: ties when first, wins when second -> second; pair 4: loses when first, ties when second -> second
    result = position_bias(given, swapped)
    assert (result.consistency, result.toward_first, result.toward_second) == (0.25, 0.25, 0.5)
    assert (result.delta, result.n) == (0.25, 4)


def test_the_lean_has_a_size_whichever_place_it_is_to():
    # shown second wins in both orders
    result = position_bias(np.array([-1, -1]), np.array([1, 1]))
    assert (result.toward_first, result.toward_second, result.delta) == (0, 1, 1)


def test_cells_are_consistent_toward_first_toward_second():
    cells = position_cells(np.array([1, 1, -1]), np.array([1, 0, 0]))
    assert cells.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 1]]


def test_leads_of_the_first_place_are_the_mean_of_both_orders():
    # pair 1: 3 ahead when first, 1 behind when second: 2 points of skill and 1 of place; pair 2: order changes nothing
    assert first_place_leads(np.array([[3.0, -1.0], [2.0, -2.0]])).tolist() == [1.0, 0.0]


@pytest.mark.parametrize(
    ("given", "swapped", "finding"), [([], [], "no pair"), ([1], [1, 0], "one shape"), ([[1]], [[1]], "one shape")]
)
def test_undefined_bias_is_an_error(given, swapped, finding):
    with pytest.raises(ValueError, match=finding):
        position_bias(np.array(given, dtype=int), np.array(swapped, dtype=int))
