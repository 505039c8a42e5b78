"""What becomes of a labelled pair: findings about its judgments."""

from dataclasses import replace

import pytest

from judgelm.data.builder.options import build_options
from judgelm.data.builder.reader import clean
from judgelm.data.labelled_pair import LabelledPair
from judgelm.records import Label, Sample

FROM_WINNER = "scores made from the winner"
GOOD = Label(sample_id="", winner=1, scores=(8.0, 6.0), reason="Assistant 1 is right.")


def judged_pair(plain, referenced=None, *, answers=("a", "b")):
    sample = Sample(id="7", question="q", answers=answers, reference="r")
    return LabelledPair(sample=sample, plain=plain, referenced=referenced, source="s")


def cleaned(pair, winner_scores=None, **options):
    repaired = []
    values = {"inputs": ["x"], "out": "out", **options}
    return clean(pair, build_options(values, "test"), winner_scores, repaired), repaired


@pytest.mark.parametrize(
    ("pair", "why"),
    [
        (judged_pair(None), "no judgment"),
        (judged_pair(Label(sample_id="", winner=1)), "winner without scores"),
        (judged_pair(Label(sample_id="", winner=2, scores=(0.0, 9.0))), "scores outside the scale"),
        (judged_pair(replace(GOOD, reason="8 7\nFine.")), "score line and scores differ"),
        (judged_pair(GOOD, answers=("a", "a")), "equal answers judged unequal"),
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
        (judged_pair(GOOD, GOOD), {}, GOOD, GOOD, []),
        (judged_pair(GOOD, OFF_SCALE), {}, GOOD, None, [LEFT_OUT]),
        (judged_pair(LOW), {"out_of_scale": "clip"}, CLIPPED, None, ["scores clipped to the scale"]),
        (judged_pair(WON), {"winner_scores": (8, 4, 6)}, replace(WON, scores=(8.0, 4.0)), None, [FROM_WINNER]),
        (judged_pair(LOST), {"winner_scores": (8, 4, 6)}, replace(LOST, scores=(4.0, 8.0)), None, [FROM_WINNER]),
        (judged_pair(TIED), {"winner_scores": (8, 4, 6)}, replace(TIED, scores=(6.0, 6.0)), None, [FROM_WINNER]),
        (judged_pair(TIE, answers=("a", "a")), {}, TIE, None, []),
    ],
)
def test_what_stays_and_what_is_repaired(pair, options, plain, referenced, repaired):
    done, found = cleaned(pair, **options)
    assert (done.plain, done.referenced, found) == (plain, referenced, repaired)
