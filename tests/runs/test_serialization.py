"""Judgments as rows: what was written is read back, and old rows too."""

import json
import math
from dataclasses import replace

import pytest

from judgelm.parsing.scores import pair_distribution, score_lines
from judgelm.records import (
    GradeDistribution,
    GradeVerdict,
    Judgment,
    LabelVerdict,
    PairVerdict,
    RankingVerdict,
    SelfAnswer,
    Shown,
    TextHashes,
    Truncation,
    Unparsed,
)
from judgelm.runs.serialization import judgment_from_row, judgment_row

HASHES = TextHashes(question="0" * 16, answers=("1" * 16, "2" * 16))
PLAIN = Judgment(
    sample_id="1", mode="pair", verdict=PairVerdict(winner=1), shown=(Shown(order=(0, 1), text="8 6", scores=(8, 6)),),
    scores=(8, 6), prompt_tokens=10, completion_tokens=3,
)  # fmt: skip


def there_and_back(judgment):
    return judgment_from_row(json.loads(json.dumps(judgment_row(judgment), allow_nan=False)))


def full(logprobs, approximation=""):
    shown = Shown(
        order=(1, 0),
        text="8 6",
        scores=(8, 6),
        repaired=Unparsed("off_grammar", "well", "no numbers"),
        reason="The second is shorter.",
        reason_failure=Unparsed("truncated", "", "no end"),
        distribution=pair_distribution(score_lines((1, 2), 1), logprobs, approximation),
        truncations=(Truncation(answer=0, tokens_before=9, tokens_after=5),),
    )
    return Judgment(
        sample_id="1", mode="pair", verdict=PairVerdict(winner=2), shown=(PLAIN.shown[0], shown), scores=(7, 7),
        consistent=False, probability=0.25,
    )  # fmt: skip


@pytest.mark.parametrize("approximation", ["", "the 20 likeliest tokens only"])
def test_everything_is_read_back(approximation):
    judgment = full([math.log(0.3), -math.inf, math.log(0.5), math.log(0.1)], approximation)
    assert there_and_back(judgment) == judgment


@pytest.mark.parametrize("hashes", [HASHES, replace(HASHES, images="3" * 16, context="4" * 16)])
def test_hashes_of_the_texts_are_read_back(hashes):
    judgment = replace(PLAIN, hashes=hashes)
    assert there_and_back(judgment) == judgment
    assert judgment_row(replace(PLAIN, hashes=HASHES))["hashes"] == {
        "question": "0" * 16,
        "answers": ("1" * 16, "2" * 16),
    }
    assert "hashes" not in judgment_row(PLAIN)


def test_a_distribution_without_mass_is_null_in_the_row_and_nan_again():
    found = there_and_back(full([-math.inf] * 4)).shown[1].distribution
    assert found.unassigned == 1
    assert math.isnan(found.first_better)


def test_what_was_not_asked_for_takes_no_room():
    [shown] = judgment_row(PLAIN)["shown"]
    assert set(shown) == {"order", "text", "scores", "failure", "cut"}
    assert there_and_back(PLAIN) == PLAIN


@pytest.mark.parametrize(
    "verdict",
    [
        RankingVerdict(order=((2,), (0, 1))),
        GradeVerdict(score=7.5),
        LabelVerdict(label="correct"),
    ],
)
def test_every_kind_of_verdict_comes_back_from_its_row(verdict):
    shown = Shown(order=(0,), text="[[Correct]]", part="clarity", label="correct", referenced=True)
    judgment = Judgment(
        sample_id="1",
        mode="correctness",
        verdict=verdict,
        shown=(shown,),
        self_answers=(SelfAnswer(text="2 + 2 is 4", answer="4"), SelfAnswer(text="who knows")),
        own_reference="4",
        decided_by="exact_match",
    )
    assert there_and_back(judgment) == judgment


@pytest.mark.parametrize("expected", [7.4, math.nan])
def test_grades_anchors_and_votes_come_back_from_their_row(expected):
    grades = GradeDistribution(expected=expected, unassigned=0.1, likeliest=((7, 0.6), (8, 0.3)))
    shown = Shown(order=(0,), text="6 7", scores=(7,), anchor=6, grades=grades)
    judgment = Judgment(
        sample_id="1", mode="single", verdict=GradeVerdict(score=7), shown=(shown,), votes={"a": "7", "b": None}
    )
    found = there_and_back(judgment)
    assert (found.votes, found.shown[0].anchor) == (judgment.votes, 6)
    assert found.shown[0].grades.likeliest == grades.likeliest
    assert math.isnan(found.shown[0].grades.expected) if math.isnan(expected) else found == judgment
    assert "approximation" not in judgment_row(judgment)["shown"][0]["grades"]


def test_thinking_and_the_parser_that_read_it_come_back_and_stand_only_where_there_are_any():
    shown = Shown(order=(0, 1), text="8 6", thinking="Hm.", scores=(8.0, 6.0), read_anywhere=True)
    solves = (SelfAnswer(text="17", answer="17", thinking="Well."), SelfAnswer(text="16", answer="16"))
    judgment = Judgment(sample_id="1", mode="pair", verdict=PairVerdict(winner=1), shown=(shown,), self_answers=solves)
    row = judgment_row(judgment)
    assert judgment_from_row(row) == judgment
    assert row["solves"][1] == {"text": "16", "answer": "16"}
    plain = judgment_row(replace(judgment, shown=(Shown(order=(0, 1), text="8 6"),)))["shown"][0]
    assert not plain.keys() & {"thinking", "read_anywhere"}
