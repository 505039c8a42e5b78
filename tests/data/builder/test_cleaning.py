"""What may teach: every finding about a judgment, and what becomes of the pair."""

from dataclasses import replace

import pytest

from judgelm.data.builder.options import build_options
from judgelm.data.builder.reader import clean
from judgelm.data.labelled_pair import LabelledPair
from judgelm.records import Label, Sample

FROM_WINNER = "scores made from the winner"
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
        (pair_of(Label(sample_id="", winner=1)), "winner without scores"),
        (pair_of(Label(sample_id="", winner=2, scores=(0.0, 9.0))), "scores outside the scale"),
        (pair_of(replace(GOOD, reason="8 7\nFine.")), "score line and scores differ"),
        (pair_of(GOOD, answers=("a", "a")), "equal answers judged unequal"),
    ],
)
def test_what_is_dropped_and_why(pair, why):
    assert cleaned(pair) == (why, [])


OFF_SCALE = Label(sample_id="", winner=2, scores=(0.0, 9.0))
LOW = Label(sample_id="", winner=2, scores=(0.0, 1.0))
WON, LOST, TIED = (Label(sample_id="", winner=winner) for winner in (1, 2, "tie"))
TIE = Label(sample_id="", winner="tie", scores=(7.0, 7.0))
CLIPPED = replace(TIE, scores=(1.0, 1.0))
LEFT_OUT = "the judgment with reference left out: scores outside the scale"


@pytest.mark.parametrize(
    ("pair", "options", "plain", "referenced", "repaired"),
    [
        (pair_of(GOOD, GOOD), {}, GOOD, GOOD, []),
        (pair_of(GOOD, OFF_SCALE), {}, GOOD, None, [LEFT_OUT]),
        (
            pair_of(LOW),
            {"out_of_scale": "clip"},
            replace(TIE, scores=(1.0, 1.0)),
            None,
            ["scores clipped to the scale"],
        ),
        (pair_of(WON), {"winner_scores": (8, 4, 6)}, replace(WON, scores=(8.0, 4.0)), None, [FROM_WINNER]),
        (pair_of(LOST), {"winner_scores": (8, 4, 6)}, replace(LOST, scores=(4.0, 8.0)), None, [FROM_WINNER]),
        (pair_of(TIED), {"winner_scores": (8, 4, 6)}, replace(TIED, scores=(6.0, 6.0)), None, [FROM_WINNER]),
        (pair_of(TIE, answers=("a", "a")), {}, TIE, None, []),
    ],
)
def test_what_stays_and_what_is_repaired(pair, options, plain, referenced, repaired):
    done, found = cleaned(pair, **options)
    assert (done.plain, done.referenced, found) == (plain, referenced, repaired)
