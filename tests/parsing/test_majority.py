"""What several answers of one judge come to."""

import pytest

from judgelm.parsing.short_answers import majority


def test_agreement_is_the_share_of_the_commonest_answer():
    found = majority(["G", "G", "B", "G", None])
    assert (found.answer, found.votes, found.k, found.tied, found.agreement) == ("G", 3, 5, False, 0.6)


def test_of_tied_answers_the_first_given_stands():
    found = majority(["B", "A", "A", "B", "C"])
    assert (found.answer, found.votes, found.tied) == ("B", 2, True)


def test_replies_without_an_answer_stay_in_k():
    assert majority([None, None, None, "A"]).agreement == 0.25
    nothing = majority([None, None])
    assert (nothing.answer, nothing.votes, nothing.k, nothing.tied) == (None, 0, 2, False)
    assert (nothing.agreement, nothing.passes(0.2)) == (0.0, False)


def test_agreement_over_no_solves_is_refused():
    with pytest.raises(ValueError, match="no self-solves"):
        majority([])


@pytest.mark.parametrize(("tau", "on"), [(0.6, True), (0.8, True), (0.81, False), (1.0, False)])
def test_the_gate_is_on_from_tau_on(tau, on):
    assert majority(["A", "A", "A", "A", "B"]).passes(tau) is on


def test_the_gate_is_on_where_tau_is_not_the_same_double():
    assert majority(["A"] * 3 + ["B"] * 7).passes(0.1 + 0.2)  # 0.30000000000000004
