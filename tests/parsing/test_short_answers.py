"""When two short answers are the same text."""

import json
from pathlib import Path

import pytest

from judgelm.errors import InputError
from judgelm.parsing.short_answers import (
    drop_normalised,
    exact_match,
    golds_of,
    hotpot_normalised,
    strictly_normalised,
)
from judgelm.records import Sample

EXPECTED = Path(__file__).parents[2].parent / "shared" / "data" / "expected" / "qa_metrics.json"
absent = pytest.mark.skipif(not EXPECTED.exists(), reason=f"{EXPECTED} is absent")


def pairs():
    return json.loads(EXPECTED.read_text(encoding="utf-8"))["pairs"] if EXPECTED.exists() else []


@absent
@pytest.mark.parametrize("pair", pairs(), ids=lambda pair: f"{pair['pred'][:12]!r}|{pair['gold'][:12]!r}")
def test_the_original_codes_normalisations_are_met_exactly(pair):
    predicted, gold = pair["pred"], pair["gold"]
    hotpot, drop = pair["hotpot"], pair["drop"]
    assert (hotpot_normalised(predicted), hotpot_normalised(gold)) == (hotpot["norm_pred"], hotpot["norm_gold"])
    assert (drop_normalised(predicted), drop_normalised(gold)) == (drop["norm_pred"], drop["norm_gold"])
    assert exact_match(predicted, [(gold,)], "hotpotqa") is hotpot["em"]


@pytest.mark.parametrize(
    ("predicted", "gold", "loose", "strict"),
    [
        ("93.5%", "93.5", True, False),
        ("-5", "5", True, False),
        ("2,5", "2.5", True, False),
        ("$1,000", "1000", True, False),
        ("1,000", "1000", True, True),
        ("5.", "5", True, True),
        ('"42"', "42", True, True),
        ("The Eiffel Tower", "eiffel tower.", True, True),
        ("U.S.", "US", True, True),
        ("12 January 1990", "12 january, 1990", True, True),
        ("cafe\u0301", "caf\u00e9", False, True),
        ("3-1", "31", True, False),
        (".5", "5", True, False),
        ("", "", True, True),
    ],
)
def test_the_strict_rules_read_numbers_as_they_are_written(predicted, gold, loose, strict):
    assert exact_match(predicted, [(gold,)], "hotpotqa") is loose
    assert exact_match(predicted, [(gold,)], "strict") is strict


def test_strictly_normalised_words_are_in_lower_case_with_one_blank_between():
    assert strictly_normalised("The  4TH of May, $1,234.50!") == "4th of may $1234.50"


def sample(reference="a", **metadata):
    return Sample(id="1", question="q", answers=("x",), reference=reference, metadata=metadata)


def test_the_reference_comes_first_among_the_validated_answers():
    assert golds_of(sample()) == [("a",)]
    assert golds_of(sample(references=["b", "a"])) == [("a",), ("b",)]
    assert golds_of(sample("a, b", references=["a, b"], reference_spans=[["a", "b"]])) == [("a", "b")]
    assert golds_of(sample(None, references=["b"])) == []


@pytest.mark.parametrize(
    "metadata", [{"references": "b"}, {"references": [1]}, {"reference_spans": ["ab"]}, {"reference_spans": [[]]}]
)
def test_validated_answers_of_another_shape_are_refused(metadata):
    with pytest.raises(InputError, match="sample 1: reference"):
        golds_of(sample(**metadata))
