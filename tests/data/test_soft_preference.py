import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.data.augmentation import swap_answers
from judgelm.data.labelled_pair import (
    judgelm_row,
    preference_of,
    scores_by_preference,
    swapped_preference,
    winner_by_preference,
)
from judgelm.data.labelled_set import read_labelled
from judgelm.records import Label

PREFERENCES = st.floats(0, 1)
SCALES = st.sampled_from([((1, 10), 1), ((1, 5), 1), ((0, 1), 0.1), ((1, 10), 0.5), ((0, 1), 1), ((0, 100), 5)])
PLAIN = {"id": "1", "question": "q", "answer_1": "a", "answer_2": "b"}


@pytest.mark.parametrize(
    # nine steps; a sure preference leads by six: 9 3. 2 * 0.75 - 1 is half of that, three steps: ceil(6 / 2) up, 7 4
    ("preference", "scores"),
    [(1, (9, 3)), (0, (3, 9)), (0.5, (6, 6)), (0.75, (7, 4)), (0.25, (4, 7)), (0.51, (6, 5)), (0.9, (8, 3))],
)
def test_scores_by_hand(preference, scores):
    assert scores_by_preference(preference) == scores


@given(PREFERENCES, PREFERENCES, SCALES)
def test_scores_are_monotone_and_within_the_scale(first, second, scale_and_step):
    scale, step = scale_and_step
    low, high = (scores_by_preference(each, scale, step) for each in sorted((first, second)))
    assert low[0] <= high[0]
    assert low[1] >= high[1]
    assert all(scale[0] <= score <= scale[1] for score in (*low, *high))


@given(st.integers(0, 1000), SCALES)
def test_scores_of_the_swapped_pair_are_the_same_reversed_and_name_the_winner(thousandths, scale_and_step):
    preference = thousandths / 1000
    first, second = scores = scores_by_preference(preference, *scale_and_step)
    assert scores_by_preference(swapped_preference(preference), *scale_and_step) == scores[::-1]
    assert winner_by_preference(preference) == ("tie" if first == second else 1 if first > second else 2)
    assert swapped_preference(swapped_preference(preference)) == preference


@pytest.mark.parametrize(
    ("winner", "preference", "target"),
    [(1, None, 1), (2, None, 0), ("tie", None, 0.5), (1, 0.7, 0.7), (None, None, None)],
)
def test_the_target_of_a_label(winner, preference, target):
    assert preference_of(Label(sample_id="", winner=winner, preference=preference)) == target


@pytest.fixture
def pairs(write):
    """Reads rows as labelled pairs: the pairs, and the reasons of rejects."""

    def read(*rows):
        rejects = []
        found = list(read_labelled(write(*rows), source="s", on_reject=rejects.append))
        return found, [reject.reason for reject in rejects]

    return read


def test_a_preference_goes_into_a_judgelm_row_and_out_again_swapped_or_beside_scores(pairs):
    [alone, scored], _ = pairs(PLAIN | {"preference": 0.3}, PLAIN | {"id": "2", "preference": 0.3, "scores": [3, 5]})
    row = judgelm_row(swap_answers(alone).pair)
    assert (row["answer1_body"], row["preference"], row["winner"], row["score"]) == ("b", 0.7, "1", None)
    [again, beside], _ = pairs(row, judgelm_row(scored))
    assert (again.plain.preference, again.plain.winner, again.plain.scores) == (0.7, 1, None)
    assert (beside.plain.preference, beside.plain.winner, beside.plain.scores) == (0.3, 2, (3, 5))


@pytest.mark.parametrize(
    ("fields", "finding"),
    [
        ({"preference": 1.5}, "0 to 1, got 1.5; AlpacaEval's scale"),
        ({"preference": 0.3, "winner": 1}, "0.3 contradicts the winner 1"),
        ({"preference": 0.3, "scores": [8, 6]}, "0.3 contradicts the winner 1"),
        ({"preference": "high"}, 'field "preference": expected a finite number'),
    ],
)
def test_a_preference_that_cannot_be_is_a_reject(pairs, fields, finding):
    [_], [reason] = pairs(PLAIN | fields, PLAIN | {"id": "2", "winner": 1})
    assert finding in reason
