import numpy as np
import pytest

from judgelm.metrics.position import position_bias


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


def test_no_pairs_is_an_error():
    with pytest.raises(ValueError, match="no pair"):
        position_bias(np.array([], dtype=int), np.array([], dtype=int))


def test_shapes_must_agree():
    with pytest.raises(ValueError, match="one shape"):
        position_bias(np.array([1]), np.array([1, 0]))
