import pytest

from judgelm.metrics.slice_arithmetic import FourSlices, SliceCounts, counts_behind, derive


def slices(*pairs):
    counts = [SliceCounts(n=n, right=right) for n, right in pairs]
    return FourSlices(on_correct=counts[0], on_wrong=counts[1], off_correct=counts[2], off_wrong=counts[3])


def test_table_1_follows_from_table_2():
    # on 6 + 2 = 8 of 10, precision 6/8; right 5 + 0 on, 1 + 0 off
    found = derive(slices((6, 5), (2, 0), (1, 1), (1, 0)))
    assert (found.n, found.n_on, found.gate_on_rate, found.gate_precision) == (10, 8, 0.8, 0.75)
    assert (found.preference_accuracy, found.accuracy_on, found.accuracy_off) == (0.6, 0.625, 0.5)


def test_a_gate_that_is_always_on_has_no_accuracy_off():
    found = derive(slices((3, 2), (1, 0), (0, 0), (0, 0)))
    assert (found.accuracy_off, found.gate_on_rate) == (None, 1.0)
    assert derive(slices((0, 0), (0, 0), (0, 0), (0, 0))).preference_accuracy is None


def test_a_gate_that_is_never_on_has_neither_accuracy_on_nor_precision():
    found = derive(slices((0, 0), (0, 0), (3, 2), (1, 1)))
    assert (found.accuracy_on, found.gate_precision, found.gate_on_rate) == (None, None, 0.0)
    assert (found.n, found.n_on, found.accuracy_off, found.preference_accuracy) == (4, 0, 0.75, 0.75)


def test_counts_stay_between_none_and_all():
    assert counts_behind(0.0, 5000, decimals=1) == (0, 1, 2)  # 2 / 5000 is 0.04 %, printed 0.0
    assert counts_behind(100.0, 5000, decimals=1) == (4998, 4999, 5000)
    assert counts_behind(100.0, 1) == (1,)


def test_the_counts_behind_a_printed_percentage():
    assert counts_behind(44.86, 1400) == (628,)
    assert counts_behind(33.33, 3) == (1,)
    assert counts_behind(33.0, 3) == ()
    assert counts_behind(50.0, 4000, decimals=1) == (1998, 1999, 2000, 2001, 2002)  # 49.95 % to 50.05 %
    with pytest.raises(ValueError, match="n is 0"):
        counts_behind(50.0, 0)
