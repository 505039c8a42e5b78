"""Order effects without labels, by hand."""

import pytest

from judgelm.data.sources.reviews import read_reviews
from judgelm.errors import InputError
from judgelm.records import Sample
from judgelm.studies.position_bias import PairGroup, merge_groups, pairs_of_reviews, pairs_of_run, position_bias_study
from tests.support.studies import HOW, judged_in_both_orders, table, write_rows


@pytest.fixture
def review_file(tmp_path):
    def write(name, *reviews):
        keys = ("question_id", "answer1_id", "answer2_id", "score", "text")
        return str(write_rows(tmp_path / name, [dict(zip(keys, review, strict=True)) for review in reviews]))

    return write


def groups_of(*named):
    return merge_groups(pairs_of_reviews([(name, review) for name, path in named for review in read_reviews(path)]))


def rows_of(result):
    return {row["group"]: row for row in table(result, result.tables[0].name)}


def test_reviews_of_both_orders_by_hand(review_file):
    given = [(1, "a1", "b1", [8, 6], "8 6\n"), (2, "a2", "b2", [8, 6], "Let me see.\n8 6")]
    given += [(3, "a3", "b3", [7, 7], "7 7"), (4, "a4", "b4", [-1, -1], "?"), (5, "a5", "b5", [9, 1], "9 1")]
    swapped = [(1, "b1", "a1", [7, 9], "7 9"), (2, "b2", "a2", [9, 7], "9 7"), (3, "b3", "a3", [6, 8], "6 8")]
    swapped += [(4, "b4", "a4", [5, 5], "5 5"), (5, "c5", "a5", [5, 5], "5 5")]
    groups = groups_of(("x", review_file("a.jsonl", *given)), ("y", review_file("b.jsonl", *swapped)))
    result = position_bias_study(groups, HOW)
    x, y = rows_of(result)["x"], rows_of(result)["y"]
    # 1: a wins twice. 2: the first place wins. 3: a tie, and a wins where it stands second. 4 failed, 5 is another pair
    assert [x[key].value for key in ("consistency", "toward_first", "toward_second")] == [pytest.approx(1 / 3)] * 3
    assert (x["n"], x["failed"], x["alone"], y["alone"]) == (3, 1, 1, 1)
    # leads of the first place: 2 and -2, 2 and 2, 0 and -2; their means 0, 2, -1
    assert (x["lead"].value, y["consistency"], y["lead"]) == (pytest.approx(1 / 3), None, None)
    assert result.counts["scores_not_at_the_replys_beginning"] == 1
    assert any(sentence.startswith("y: 1 judgments are excluded") for sentence in result.warnings)


def test_a_run_in_both_orders_by_hand():
    # a: 8 6 and, shown second, 9 to 7: a wins twice. b: first place wins twice. c cannot be read in the second order
    replies = {
        "a|1|2": "8 6\n", "a|2|1": "7 9\n", "b|1|2": "8 6\n", "b|2|1": "8 6\n", "c|1|2": "8 6\n", "c|2|1": "well\n",
    }  # fmt: skip
    samples = [Sample(id=q, question=q, answers=("1", "2")) for q in "abc"]
    group = pairs_of_run(judged_in_both_orders(samples, replies))
    row = rows_of(position_bias_study({"run": group}, HOW))["run"]
    shares = [row[key].value for key in ("consistency", "toward_first", "lead")]
    assert (row["n"], row["failed"], shares) == (2, 1, [0.5, 0.5, 1.0])  # lead (0 + 2) / 2


def test_groups_with_the_same_name_are_merged_and_all_are_pooled(review_file):
    both = review_file("a.jsonl", (1, "a", "b", [8, 6], "8 6"), (1, "b", "a", [6, 8], "6 8"))
    other = review_file("b.jsonl", (1, "c", "b", [8, 6], "8 6"), (1, "b", "c", [8, 6], "8 6"))
    result = rows_of(position_bias_study(groups_of(("x", both), ("y", other)), HOW))
    assert [result[name]["consistency"].value for name in ("x", "y", "all")] == [1.0, 0.0, 0.5]
    assert result["all"]["n"] == 2
    assert result["all"]["consistency"].low == result["all"]["consistency"].high  # both are of one question
    assert rows_of(position_bias_study(groups_of(("x", both), ("x", other)), HOW))["x"]["n"] == 2


def test_single_orders_and_repeated_reviews_are_rejected(review_file):
    path = review_file("a.jsonl", (1, "a", "b", [8, 6], "8 6"))
    with pytest.raises(InputError, match=r"no pair was judged in both orders .* 1 judgments have no counterpart"):
        position_bias_study(groups_of(("x", path)), HOW)
    with pytest.raises(InputError, match='group "all"'):  # that is the name of all together
        position_bias_study({"all": PairGroup(pairs=())}, HOW)
    path = review_file("a.jsonl", (1, "a", "b", [8, 6], "8 6"), (1, "a", "b", [8, 7], "8 7"))
    with pytest.raises(InputError, match=r"a.jsonl:2: has the same answers in the same order as .*a.jsonl:1"):
        groups_of(("x", path))
