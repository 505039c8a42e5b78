import pytest

from judgelm.studies.ssr.paper import PRINTED_ROWS, four_fifths, paper_table, three_fifths, unanimity


def rows():
    return {row[0]: row[1:] for row in paper_table().rows}


def test_table_2s_slices_are_those_of_the_gate_at_four_fifths():
    found = four_fifths("C")
    assert (found.n, found.n_on) == (1400, 893)  # 647 + 246
    assert 100 * found.gate_on_rate == pytest.approx(63.79, abs=0.005)
    assert 100 * found.gate_precision == pytest.approx(72.45, abs=0.005)  # 647 / 893
    assert 100 * found.preference_accuracy == pytest.approx(58.93, abs=0.005)  # 552 + 62 + 80 + 131 = 825


def test_true_unanimity_is_628_items_with_494_right():
    found = unanimity()
    assert (found.on, found.right) == (628, 494)
    assert 100 * found.on / 1400 == pytest.approx(44.86, abs=0.005)
    assert 100 * found.right / found.on == pytest.approx(78.66, abs=0.005)
    # rows A and B of Table 1 add up to Table 2's totals: 376 + 353 = 729 and 457 + 358 = 815
    assert found.never_on + found.never_off == round(1400 * four_fifths("A").preference_accuracy) == 729
    assert found.always_on + found.always_off == round(1400 * four_fifths("B").preference_accuracy) == 815


@pytest.mark.parametrize(("condition", "gate"), [("A", "5/5"), ("B", "5/5"), ("C", "4/5")])
def test_which_gate_a_row_of_table_1_is_of(condition, gate):
    for name in ("accuracy, gate on", "accuracy, gate off", "gate-on rate", "gate precision"):
        assert rows()[f"{condition}: {name}"][3] == f"of the gate at {gate}"


def test_what_selective_would_have_with_the_gate_at_unanimity():
    assert rows()["C: PreferenceAcc"][2] == pytest.approx((457 + 353) / 1400)  # 57.86 %, below always


def test_what_is_determined_and_what_is_not():
    found = rows()
    assert found["majority right at 4/5 agreement"][1] == pytest.approx(153 / 265)  # printed as 57.7 %
    assert len(three_fifths()) == 11
    assert (214, 76) in three_fifths()
    assert found["majority right at 3/5 agreement"][3].startswith("not determined: 11 counts fit")
    assert found["B on low agreement"][1] == pytest.approx(201 / 507)  # 39.64 %, not 24.50


def test_every_printed_figure_is_of_some_gate():
    assert len(PRINTED_ROWS) * 5 + 6 == len(paper_table().rows)
    assert not any(row[-1] == "of neither gate" for row in paper_table().rows)
