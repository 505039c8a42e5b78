"""Columns of the self-bias regression, and which of them the data can tell apart."""

import numpy as np
import pandas as pd
import pytest

from judgelm.metrics.self_bias import BiasModel, design_of, redundant, unidentified


def frame(**columns):
    """Two judges, a relative pair, two dimensions; `own` and `family` are empty in the control group."""
    rows = {"judge": [*"aabb"], "reference": [0.2, 0.4, 0.6, 1.0], "dimension": [*"xyxy"]}
    return pd.DataFrame(rows | {"own": ["a", "", "", "b"], "family": ["", "F", "", ""]} | columns)


def columns_of(design):
    return {term: design.matrix[:, place].tolist() for place, term in enumerate(design.terms)}


def test_columns_of_the_authors_formula_by_hand():
    assert columns_of(design_of(frame(), BiasModel())) == {
        ("judge", "a"): [1, 1, 0, 0],
        ("judge", "b"): [0, 0, 1, 1],
        ("slope", "a"): [0.2, 0.4, 0, 0],
        ("slope", "b"): [0, 0, 0.6, 1.0],
        ("self", "a"): [1, 0, 0, 0],
        ("self", "b"): [0, 0, 0, 1],
        ("family", "F"): [0, 1, 0, 0],
        ("dimension", "y"): [0, 1, 0, 1],  # relative to x
    }


def test_terms_are_left_out_as_asked():
    model = BiasModel(dimensions=False, self_bias=False, family_bias=False)
    assert design_of(frame(), model).terms == (("judge", "a"), ("judge", "b"), ("slope", "a"), ("slope", "b"))
    # thresholds take the first judge's intercept over
    assert design_of(frame(), model, intercepts=False).terms == (("judge", "b"), ("slope", "a"), ("slope", "b"))


def test_length_has_a_slope_for_each_judge_or_one_for_all():
    model = BiasModel(dimensions=False, self_bias=False, family_bias=False)
    rows = frame(length_feature=[0.1, -0.1, 0.3, 0.0])
    apart = columns_of(design_of(rows, BiasModel(length="per_judge")))
    assert (apart["length", "a"], apart["length", "b"]) == ([0.1, -0.1, 0, 0], [0, 0, 0.3, 0])
    assert columns_of(design_of(rows, BiasModel(length="shared")))["length", "all judges"] == [0.1, -0.1, 0.3, 0]
    assert not [kind for kind, _ in design_of(rows, model).terms if kind == "length"]


def test_an_indicator_is_0_or_1_however_it_is_written():
    rows = frame(polite=[" True ", 0, "1.0", False])
    result = columns_of(design_of(rows, BiasModel(indicator="polite")))
    assert (result["indicator", "a"], result["indicator", "b"]) == ([1, 0, 0, 0], [0, 0, 1, 0])
    rows = frame(polite=["false", "0.0", 1, "TRUE"])
    result = columns_of(design_of(rows, BiasModel(indicator="polite")))
    assert (result["indicator", "a"], result["indicator", "b"]) == ([0, 0, 0, 0], [0, 0, 1, 1])


def test_a_spline_has_its_pieces_judge_by_judge():
    terms = design_of(frame(), BiasModel(reference="spline")).terms
    # four knots and degree three are six pieces, of which one is in the intercept
    pieces = [f"{judge} {n}" for n in range(1, 6) for judge in "ab"]
    assert [level for kind, level in terms if kind == "spline"] == pieces
    flat = design_of(frame(reference=0.5), BiasModel(reference="spline"))
    assert [kind for kind, _ in flat.terms if kind in ("spline", "slope")] == ["slope", "slope"]


@pytest.mark.parametrize(
    ("rows", "model", "finding"),
    [
        (frame().iloc[:0], BiasModel(), "no ratings to fit"),
        (frame(), BiasModel(length="shared"), 'no column "length_feature"; add it with with_length'),
        (frame(), BiasModel(indicator="polite"), 'no column "polite"; choose a column'),
        (frame(polite=[0, 1, 2, 1]), BiasModel(indicator="polite"), r"expected 0 or 1 in every row, got '2'"),
    ],
)
def test_missing_rows_and_columns_are_rejected(rows, model, finding):
    with pytest.raises(ValueError, match=finding):
        design_of(rows, model)


@pytest.mark.parametrize(
    ("matrix", "expected"),
    [
        # the second is twice the first, the last is zero; 0.5 (first) + 1 (third) is independent of them
        ([[1, 2, 0, 0], [1, 2, 1, 0], [1, 2, 3, 0]], [True, True, False, True]),
        (np.eye(3), [False] * 3),
        ([[1, 1, 1]], [True] * 3),  # fewer rows than columns: some dependency has a part of each
        (np.diag([1.0, 1e-12]), [False, False]),  # small numbers are told like any others
        (np.zeros((3, 2)), [True, True]),
    ],
)
def test_a_column_that_others_can_take_over_is_not_identified(matrix, expected):
    assert unidentified(np.array(matrix, dtype=float)).tolist() == expected


def test_redundant_columns_are_as_many_as_leave_the_others_independent():
    matrix = np.array([[1.0, 2, 0, 0], [1, 2, 1, 0], [1, 2, 3, 0]])
    gone = redundant(matrix)
    assert (gone[:2].sum(), gone[2:].tolist()) == (1, [False, True])
    for independent in (np.eye(3), np.diag([1.0, 1e-12, 1.0])):
        assert redundant(independent).tolist() == [False] * 3
    assert redundant(np.zeros((3, 2))).tolist() == [True, True]
    # dummies of two levels sum to 1; a column of ones is the constant itself
    dummies = np.array([[1.0, 0], [1, 0], [0, 1]])
    assert redundant(dummies).sum() == 0
    assert redundant(dummies, constant=True).sum() == 1
    assert redundant(np.array([[1.0, 0], [1, 1], [1, 3]]), constant=True).tolist() == [True, False]
    # the mean of three times 0.1 is not 0.1 to the last bit
    assert redundant(np.full((3, 1), 0.1), constant=True).tolist() == [True]
    assert redundant(np.array([[1.0], [1.000001], [0.999999]]), constant=True).tolist() == [False]
