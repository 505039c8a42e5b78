"""Short answers: extracted, counted, and compared."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.errors import InputError
from judgelm.parsing.short_answers import (
    canonical,
    canonical_number,
    drop_normalised,
    exact_match,
    final_answer,
    golds_of,
    hotpot_normalised,
    majority,
    strictly_normalised,
)
from judgelm.records import Sample


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("The answer is (arabic numerals): 18", "18"),
        ("She makes $18. The answer is $1,234.50.", "1234.5"),
        ("9 * 2 = <<9*2=18>>18\n#### 70,000", "70000"),
        ("So he has 5 left.\nA: 26", "26"),
        ("Thus \\[ \\boxed{5} \\]", "5"),
        ("The answer is 16 - 3 = 13 eggs. There are 4 more.", "13"),  # a calculation: its result
        ("The answer is 7. No: the answer is 8.", "8"),  # the last one counts
        ("The answer is −3", "-3"),
        ("The answer is -$5.", "-5"),
        ("The answer is 2/6", "1/3"),
        ("The answer is 1/2", "0.5"),
        ("The answer is **0.50**", "0.5"),
        ("The answer is 93.5%", "93.5"),
        ("So she has\n- 5 apples", "5"),  # no mark: the only number of the last line
        ("She buys 3 and 4, so 3 + 4 = 7", "7"),
        ("In all:\nA: 26\nThat is 3 more than 23.", "26"),  # a mark at a line's beginning
        ("The answer is:\n\n18\nThat is 3 more than 15.", "18"),  # the number in the line below its mark
        ("She has 3 or 4", None),  # no mark, two numbers
        ("The answer is X18", None),  # a name with digits in it
        ("The answer is (arabic numerals):", None),  # the prompt's words alone
        ("I do not know.", None),
        ("", None),
    ],
)
def test_numbers(text, answer):
    assert final_answer(text, "number") == answer


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("... The answer is (B).", "B"),
        ("**Answer: C**", "C"),
        ("Final Answer:\nThe answer is `D. 50 units`.", "D"),
        ("The answer is $\\boxed{\\text{E}}$", "E"),
        ("Hence $\\boxed{C}$ and nothing else.", "C"),
        ("Answer: B\nI hope that this helps.", "B"),
        ("So the correct option is J.", "J"),
        ("The closest match is (F).", "F"),
        ("(G)", "G"),
        ("The answer is A because it fits.", "A"),
        ("The answer is (A). Wait, the answer is (B).", "B"),
        ("The answer is (A) or (B).", None),
        ("The answer is (D, E, or G), depending on the case.", None),
        ("The answer is A protist of some kind", None),  # a word
        ("The answer is I think", None),  # another
        ("The answer is (C). The answer is A protist", "C"),  # the mark before counts
        ("The answer is (K).", None),  # no such option
        ("(K)", None),
        ("(B) is wrong, and so is the rest", None),
        ("nothing fits", None),
    ],
)
def test_letters(text, answer):
    assert final_answer(text, "choice") == answer


def test_letters_end_with_the_options():
    assert [final_answer(f"The answer is ({letter}).", "choice", letters=4) for letter in "DE"] == ["D", None]


@pytest.mark.parametrize(
    ("text", "answer"),
    [
        ("I prefer the second.\n[[B]]", "B"),
        ("**[[c]]**", "C"),
        ("[[A]]", "A"),
        *((text, None) for text in ('"[[A]]" or "[[B]]"', "A is better", "The answer is A", "[A]")),
    ],
)
def test_preferences(text, answer):
    assert final_answer(text, "preference") == answer


def test_an_answer_that_was_cut_off_is_none():
    # "The answer is 1" may have been on its way to 18: only the text above the last line is certain
    for text in ("so the answer is 1", "We get 3", "The answer is 18 eg", "The answer is\n18"):
        assert final_answer(text, "number", finished=False) is None
    for text in ("The answer is 18.\n\nNow the next quest", "Is it 3?\nThe answer is 18.\nNo, the answer is 1"):
        assert final_answer(text, "number", finished=False) == "18"


@pytest.mark.parametrize(
    ("text", "plain"),
    [("18", "18"), ("$1,000", "1000"), ("018.00", "18"), ("-0", "0"), ("4/2", "2"), ("0.125", "0.125"), ("5.", "5"),
     ("-2.50", "-2.5"), ("93.5%", "93.5"), ("**18**", "18"), ("1/0", None), ("18 eggs", None), ("X18", None),
     ("", None), ("1" * 50, "1" * 50), ("1" * 51, None), (f"0.{'0' * 40}3", f"0.{'0' * 40}3")],
)  # fmt: skip
def test_equal_numbers_have_one_spelling(text, plain):
    assert canonical_number(text) == plain


@given(st.decimals(min_value=-(10**9), max_value=10**9, places=3))
def test_a_number_is_itself_however_it_is_written(value):
    assert float(canonical_number(f"{value:f}")) == float(value)
    assert canonical_number(f"${value:,}" if value >= 0 else f"{value:,}") == canonical_number(f"{value}0")


@pytest.mark.parametrize(
    ("gold", "task", "plain"),
    [("... #### 1,200", "number", "1200"), ("_18_", "number", "18"), ("(b)", "choice", "B"), ("d)", "choice", "D"),
     ("{X}", "choice", "X"),
     ("The answer is (P)", "choice", "P"), ("c", "preference", "C"), ("[[A]]", "preference", "A"),
     ("D", "preference", None), ("x", "preference", None), ("both", "choice", None)],
)  # fmt: skip
def test_known_answers_are_spelled_alike(gold, task, plain):
    assert canonical(gold, task) == plain


@pytest.mark.parametrize("text", ["answer is" + " *" * 20_000, "[[" + " " * 50_000, "verdict" + " " * 50_000 + "x"])
@pytest.mark.timeout(20)
def test_long_runs_of_blanks_cost_little(text):
    assert final_answer(text, "choice") is None
    assert final_answer(text, "number") is None


def test_all_answers_of_gsm8k_are_read(shared_data):
    with gzip.open(shared_data / "gsm8k" / "example_model_solutions.jsonl.gz", "rt", encoding="utf-8") as file:
        rows = [json.loads(line) for line in file]
    solutions = [(row, solution) for row in rows for solution in row.values() if isinstance(solution, dict)]
    assert len(solutions) == 4 * 1319
    for row, solution in solutions:
        right = final_answer(solution["solution"], "number") == canonical(row["ground_truth"], "number")
        assert right == solution["is_correct"]


def test_answers_of_mmlu_pro_are_read_as_its_authors_do_or_not_at_all(shared_data):
    # their first rule (l1) takes the first "answer is (X)" where here the last one counts, and reads "(A) or (B)" as A
    counts = {"same": 0, "none": 0, "other": 0}
    with gzip.open(shared_data / "mmlu_pro" / "mmlu_pro_outputs_420.jsonl.gz", "rt", encoding="utf-8") as file:
        for row in map(json.loads, file):
            for output in row["outputs"].values():
                if output["l1"] is not None:
                    answer = final_answer(output["text"], "choice", letters=len(row["options"]))
                    counts["same" if answer == output["l1"] else "none" if answer is None else "other"] += 1
    assert sum(counts.values()) == 1901
    assert counts["same"] >= 1840
    assert counts["other"] <= 25


@pytest.mark.parametrize(
    ("answers", "counts"),
    [
        (["G", "G", "B", "G", None], ("G", 3, 5, False, 0.6)),
        (["B", "A", "A", "B", "C"], ("B", 2, 5, True, 0.4)),  # of tied answers, the first one drawn
        ([None, None, None, "A"], ("A", 1, 4, False, 0.25)),  # replies without an answer are counted
        ([None, None], (None, 0, 2, False, 0.0)),
    ],
)
def test_agreement_is_the_share_of_the_most_frequent_answer(answers, counts):
    result = majority(answers)
    assert (result.answer, result.votes, result.k, result.tied, result.agreement) == counts


def test_agreement_over_no_solves_is_rejected():
    with pytest.raises(ValueError, match="at least one answer"):
        majority([])


def test_the_gate_is_on_from_tau_on():
    agreement = majority(["A", "A", "A", "A", "B"])
    assert [agreement.passes(tau) for tau in (0.6, 0.8, 0.81, 1.0)] == [True, True, False, False]
    assert majority(["A"] * 3 + ["B"] * 7).passes(0.1 + 0.2)  # 0.30000000000000004
    assert not majority([None, None]).passes(0.2)


EXPECTED = Path(__file__).parents[2].parent / "shared" / "data" / "expected" / "qa_metrics.json"


def pairs():
    return json.loads(EXPECTED.read_text(encoding="utf-8"))["pairs"] if EXPECTED.exists() else []


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
def test_validated_answers_of_another_shape_are_rejected(metadata):
    with pytest.raises(InputError, match="sample 1: reference"):
        golds_of(sample(**metadata))
