"""What the benchmarks of training methods and of numeric formats compute from verdicts, by hand."""

import numpy as np
import pytest

from benchmarks.formats_agree import compared
from benchmarks.human_labels.measures import Verdicts
from benchmarks.human_labels.sets import Rows
from benchmarks.preference_training import drawn, figures, table
from benchmarks.useful_tokens import useful_share
from judgelm.data.labelled_pair import LabelledPair
from judgelm.records import Sample

NAN = float("nan")


def sample(index, answers=("aa", "b")):
    return Sample(id=str(index), question=f"q{index}", answers=answers)


def verdicts(given, swapped):
    return Verdicts(given=np.array(given), swapped=np.array(swapped))


def test_fewer_pairs_are_part_of_more_and_the_seed_decides():
    pairs = [LabelledPair(sample=sample(index), plain=None, referenced=None) for index in range(40)]
    few, many = ([pair.sample.id for pair in drawn(pairs, count, seed=1)] for count in (10, 30))
    assert many[:10] == few
    assert few != [pair.sample.id for pair in drawn(list(reversed(pairs)), 10, seed=2)]
    assert few == [pair.sample.id for pair in drawn(list(reversed(pairs)), 10, seed=1)]
    with pytest.raises(SystemExit, match="41 pairs wanted"):
        drawn(pairs, 41, seed=0)


def test_figures_of_methods_are_means_of_their_seeds():
    rows = Rows(samples=tuple(sample(index) for index in range(4)), truth=np.array([1, 1, -1, 0]))
    preference = verdicts([0.9, 0.9, 0.2, 0.6], [0.8, 0.3, 0.1, NAN])
    one = verdicts([0.9, 0.9, 0.9, 0.9], [0.1, 0.1, 0.2, 0.1])
    other = verdicts([0.9, 0.1, 0.2, NAN], [0.9, 0.1, 0.2, NAN])
    runs = {("preference", 4): [preference, preference], ("sft", 4): [one, other]}
    result = figures("sft", 4, [one, other], runs, rows, 4)
    # decided labels: `one` has 0.5 and is right by half, 0.5, then 0.55 against the label; `other` right, wrong, right
    assert result["agreement"][0] == pytest.approx(((0.5 + 1) + (0.5 + 0) + (0 + 1)) / 6)
    assert result["consistency"][0] == pytest.approx((0 + 3) / 8)
    assert result["first_in_both_orders"][0] == pytest.approx(4 / 8)
    assert result["agreement_less_preference"][0] == pytest.approx(0.5 - 1)
    assert figures("preference", 4, runs["preference", 4], runs, rows, 4)["consistency"][0] == 0.5
    assert "sft | 4 | 2 | 50.0" in table([result])


def test_a_changed_verdict_is_one_that_names_another_answer():
    before = {"a": 0.9, "b": 0.51, "c": 0.2, "only here": 0.5}
    after = {"a": 0.7, "b": 0.49, "c": 0.1, "only there": 0.5}
    cells = [cell.strip() for cell in compared(before, after).split("|")]
    assert cells[0] == "3"
    assert cells[1].startswith("33.3 (")
    assert cells[2:] == ["0.1067", "0.200"]


@pytest.mark.parametrize(
    ("ranks", "padded", "share"),
    [
        (1, True, 30 / 38),  # passes of 2 rows: 2 x 4 + 2 x 8 + 2 x 7 computed
        (1, False, 1.0),
        (2, True, 16 / 32),  # the third pass of one rank is no whole pass; both ranks wait for 2 x 8
        (2, False, 16 / 20),  # 6 and 10 tokens: both ranks take 10
    ],
)
def test_useful_tokens_are_those_of_rows_among_all_that_ranks_wait_for(ranks, padded, share):
    lengths = np.array([2, 4, 8, 2, 7, 7])
    assert useful_share(lengths, per_device=2, ranks=ranks, padded=padded) == pytest.approx(share)
