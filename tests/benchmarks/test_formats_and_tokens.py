"""Changed verdicts of a numeric format, and useful tokens of training."""

import numpy as np
import pytest

from benchmarks.formats_agree import compared
from benchmarks.useful_tokens import useful_share


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
