"""What may teach: every finding about a judgment, and what becomes of the pair."""

import pytest

from judgelm.data.builder.options import build_options
from judgelm.data.builder.reader import clean
from judgelm.data.labelled_pair import LabelledPair
from judgelm.records import Label, Sample

GOOD = Label(sample_id="", winner=1, scores=(8.0, 6.0), reason="Assistant 1 is right.")


def pair_of(plain, referenced=None, *, question="q", answers=("a", "b")):
    return LabelledPair(sample=Sample(id="1", question=question, answers=answers), plain=plain, referenced=referenced)


def cleaned(pair, winner_scores=None, **options):
    repaired = []
    done = clean(pair, build_options({"inputs": ["x"], "out": "out", **options}, "test"), winner_scores, repaired)
    return done, repaired


@pytest.mark.parametrize(
    ("pair", "why"),
    [
        (pair_of(None), "no judgment"),
        (pair_of(GOOD, question=" \n"), "empty question"),
        (pair_of(Label(sample_id="", winner=1)), "winner without scores"),
        (pair_of(Label(sample_id="", winner=2, scores=(0.0, 9.0))), "scores outside the scale"),
        (
            pair_of(Label(sample_id="", winner=1, scores=(8.0, 6.0), reason="8 7\nFine.")),
            "score line and scores differ",
        ),
        (pair_of(GOOD, answers=("a", "a")), "equal answers judged unequal"),
    ],
)
def test_what_is_dropped_and_why(pair, why):
    assert cleaned(pair) == (why, [])


def test_a_good_pair_is_unchanged():
    assert cleaned(pair_of(GOOD, GOOD)) == (pair_of(GOOD, GOOD), [])


def test_one_bad_judgment_of_two_is_left_out():
    bad = Label(sample_id="", winner=2, scores=(0.0, 9.0))
    done, repaired = cleaned(pair_of(GOOD, bad))
    assert (done.plain, done.referenced) == (GOOD, None)
    assert repaired == ["the judgment with reference left out: scores outside the scale"]


def test_scores_may_be_clipped_and_the_winner_follows():
    done, repaired = cleaned(pair_of(Label(sample_id="", winner=2, scores=(0.0, 1.0))), out_of_scale="clip")
    assert (done.plain.scores, done.plain.winner) == ((1.0, 1.0), "tie")
    assert repaired == ["scores clipped to the scale"]


@pytest.mark.parametrize(("winner", "scores"), [(1, (8.0, 4.0)), (2, (4.0, 8.0)), ("tie", (6.0, 6.0))])
def test_a_winner_can_stand_for_scores(winner, scores):
    done, _ = cleaned(pair_of(Label(sample_id="", winner=winner)), (8, 4, 6))
    assert done.plain.scores == scores


def test_equal_answers_may_tie():
    tie = Label(sample_id="", winner="tie", scores=(7.0, 7.0))
    assert cleaned(pair_of(tie, answers=("a", "a")))[0].plain.winner == "tie"
