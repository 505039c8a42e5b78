import pytest

from judgelm.data.labelled_set import LabelledSet, read_labels
from judgelm.data.sources.reviews import read_results
from judgelm.errors import InputError
from judgelm.parsing.scores import parse_pair
from judgelm.records import Label, Sample
from judgelm.studies.compare_judges import CompareOptions, compare_judges
from judgelm.studies.pair_labels import by_id
from tests.support.studies import HOW, both_orders, judged_pair, table

WINNERS = {"1": 1, "2": 2, "=": "tie"}


def judge(letters):
    """One judgment a letter: 1, 2, = for a tie, x for a failure, a dot for none."""
    return {str(i): judged_pair(str(i), WINNERS.get(letter)) for i, letter in enumerate(letters) if letter != "."}


def labels(letters, kinds=""):
    return LabelledSet(
        samples={str(i): Sample(id=str(i), question=f"question {i}", answers=("a", "b")) for i in range(len(letters))},
        labels={str(i): Label(sample_id=str(i), winner=WINNERS[letter]) for i, letter in enumerate(letters)},
        groups={"kind": {str(i): kind for i, kind in enumerate(kinds)}} if kinds else {},
    )


def study(judges, truth, kinds="", **options):
    given = {name: judge(letters) for name, letters in judges.items()}
    return compare_judges(given, labels(truth, kinds), CompareOptions(resampling=HOW, **options))


def test_two_judges_by_hand():
    # right on 0 1 2 and on 0 3; only the first on 1 2, only the second on 3; they say the same of 0 alone
    result = study({"a": "1121", "b": "12=2"}, "1122")
    [row] = table(result, "differences")
    assert row["difference"].value == pytest.approx(0.25)
    assert [row[key] for key in ("both", "only_first", "only_second", "neither")] == [1, 2, 1, 0]
    assert row["same"].value == 0.25
    # of three pairs that tell them apart two for one side: 2 * (3 + 1) / 8, at most 1
    assert row["p_value"] == 1
    assert [[row[key] for key in ("first_better", "tie", "second_better")] for row in table(result, "verdicts")] == [
        [1, 0, 2], [0, 0, 0], [0, 1, 0],
    ]  # fmt: skip
    assert table(result, "judges")[0]["consistency"] is None  # in one order there is no order effect
    result = study({"worse": "1211", "better": "1111"}, "1111")
    assert [row["judge"] for row in table(result, "judges")] == ["better", "worse"]
    assert table(result, "differences")[0]["difference"].value == pytest.approx(0.25)


def test_a_failure_takes_its_pair_out_of_the_comparison_and_is_counted():
    result = study({"a": "111x", "b": "1112"}, "1111")
    judges = {row["judge"]: row for row in table(result, "judges")}
    assert (judges["a"]["failed"], judges["a"]["common"].n, judges["b"]["agreement"].n) == (1, 3, 4)
    assert (judges["b"]["common"].value, result.counts["failed by a"]) == (1, 1)
    assert any("1 of 4" in warning for warning in result.warnings)
    # as a tie it is right where the label is one
    result = study({"a": "11xx", "b": "1111"}, "111=", failures="as_tie")
    judges = {row["judge"]: row["common"] for row in table(result, "judges")}
    assert (judges["a"].value, judges["b"].value, judges["a"].n) == (0.75, 0.75, 4)
    # pairs that one judge lacks
    result = study({"a": "1111", "b": "11.."}, "1122")
    assert table(result, "differences")[0]["difference"].n == 2
    assert any("2 to 4" in warning for warning in result.warnings)


def test_flips_are_listed_with_the_label_and_both_verdicts():
    [row] = table(study({"a": "12", "b": "11"}, "12"), "flips")
    verdicts = {"label": "second better", "judge_1": "second better", "judge_2": "first better"}
    assert row == row | verdicts | {"id": "1", "right": 1, "question": "question 1"}


def test_groups_are_over_the_common_pairs_and_against_the_best_judge():
    rows = table(study({"a": "1111", "b": "1211"}, "1112", kinds="eehh"), "by-kind")
    result = {(row["value"], row["judge"]): row for row in rows}
    values = [result[group]["minus_best"] for group in (("e", "b"), ("h", "b"), ("e", "a"))]
    assert (values[0].value, values[1].value, values[2]) == (-0.5, 0, None)


def test_three_judges_are_corrected_for_three_tests():
    # only a is right on seven pairs against b and c: p = 2 / 2^7 = 0.0156, and 1 between b and c; Holm: 3 p
    result = table(study({"a": "1" * 7, "b": "2" * 7, "c": "2" * 7}, "1" * 7), "differences")
    assert [row["p_holm"] for row in result] == [pytest.approx(3 / 64), pytest.approx(3 / 64), 1]
    assert [row["kappa"] for row in result][2] is None


def test_both_orders_are_put_side_by_side():
    steady, leaning = both_orders("0", (8, 3), (3, 8)), both_orders("0", (8, 3), (8, 3), "tie")
    given = {"steady": {"0": steady}, "leaning": {"0": leaning}}
    # the leaning one's mean is a tie, and by the given order alone it is right
    for options, agreement in (({}, 0.0), ({"order_rule": "given"}, 1.0)):
        result = compare_judges(given, labels("1"), CompareOptions(resampling=HOW, **options))
        rows = {row["judge"]: row for row in table(result, "judges")}
        assert (rows["steady"]["consistency"].value, rows["leaning"]["toward_first"].value) == (1, 1)
        assert (rows["steady"]["common"].value, rows["leaning"]["common"].value) == (1.0, agreement)
    assert "both orders: given order" in result.tables[0].note


@pytest.mark.parametrize(
    ("judges", "finding"),
    [({"a": "11"}, "least two"), ({"a": "1.", "b": ".1"}, r"\(a, b\)"), ({"a": "xx", "b": "11"}, "a: 2 of 2")],
)
def test_judges_without_common_pairs_are_rejected(judges, finding):
    with pytest.raises(InputError, match=finding):
        study(judges, "11")


def test_the_released_judges_of_pandalm(shared_data):
    # agreements as published (71.07 % and 66.77 %), with failures as ties
    folder = shared_data / "pandalm"
    names = ("pandalm-7b", "gpt-3.5-turbo")
    given = {name: by_id(read_results(str(folder / f"{name}-testset-v1.json"), parse_pair)) for name in names}
    options = CompareOptions(failures="as_tie", resampling=HOW)
    [row] = table(compare_judges(given, read_labels(str(folder / "testset-v1.json")), options), "differences")
    assert (row["first"], row["difference"].n) == ("gpt-3.5-turbo", 999)
    assert row["difference"].value == pytest.approx(0.7107 - 0.6677, abs=1e-4)
