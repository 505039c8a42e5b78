"""Judgments as rows: what was written is read back, whole or compact for metrics."""

import json
import math
from dataclasses import replace

import pytest

from judgelm.data.judged_texts import text_hashes
from judgelm.errors import InputError
from judgelm.parsing.scores import pair_distribution, score_lines
from judgelm.records import (
    GradeDistribution,
    GradeVerdict,
    Judgment,
    LabelVerdict,
    PairVerdict,
    RankingVerdict,
    Sample,
    SelfAnswer,
    Shown,
    TextHashes,
    Truncation,
    Unparsed,
)
from judgelm.runs.stored_judgments import StoredJudgments
from judgelm.serialization import judgment_from_row, judgment_row
from tests.support.jsonl_files import write_rows

HASHES = TextHashes(question="0" * 16, answers=("1" * 16, "2" * 16))
PLAIN = Judgment(
    sample_id="1", mode="pair", verdict=PairVerdict(winner=1), shown=(Shown(order=(0, 1), text="8 6", scores=(8, 6)),),
    scores=(8, 6), prompt_tokens=10, completion_tokens=3,
)  # fmt: skip


def there_and_back(judgment):
    return judgment_from_row(json.loads(json.dumps(judgment_row(judgment), allow_nan=False)))


def full(logprobs, approximation=""):
    shown = Shown(
        order=(1, 0), text="8 6", thinking="Hm.", scores=(8, 6), read_anywhere=True,
        repaired=Unparsed("off_grammar", "well", "no numbers"), reason="The second is shorter.",
        reason_failure=Unparsed("truncated", "", "no end"),
        distribution=pair_distribution(score_lines((1, 2), 1), logprobs, approximation),
        truncations=(Truncation(answer=0, tokens_before=9, tokens_after=5),),
    )  # fmt: skip
    return Judgment(
        sample_id="1", mode="pair", verdict=PairVerdict(winner=2), shown=(PLAIN.shown[0], shown), scores=(7, 7),
        consistent=False, probability=0.25,
    )  # fmt: skip


LOGPROBS = [math.log(0.3), -math.inf, math.log(0.5), math.log(0.1)]
LABEL = Shown(order=(0,), text="[[Correct]]", part="clarity", label="correct", referenced=True)
ANSWERS = (SelfAnswer(text="2 + 2 is 4", answer="4", thinking="Well."), SelfAnswer(text="who knows"))
GRADES = GradeDistribution(expected=7.4, unassigned=0.1, likeliest=((7, 0.6), (8, 0.3)))
ANCHORED = Shown(order=(0,), text="6 7", scores=(7,), anchor=6, grades=GRADES)


@pytest.mark.parametrize(
    "judgment",
    [
        PLAIN,
        full(LOGPROBS),
        full(LOGPROBS, "the 20 likeliest tokens only"),
        replace(PLAIN, hashes=HASHES),
        replace(PLAIN, hashes=replace(HASHES, images="3" * 16, context="4" * 16)),
        replace(PLAIN, verdict=RankingVerdict(order=((2,), (0, 1)))),
        replace(PLAIN, verdict=GradeVerdict(score=7.5), shown=(ANCHORED,), votes={"a": "7", "b": None}),
        replace(
            PLAIN, verdict=LabelVerdict(label="correct"), shown=(LABEL,), self_answers=ANSWERS, own_reference="4",
            decided_by="exact_match",
        ),
    ],
)  # fmt: skip
def test_everything_is_read_back(judgment):
    assert there_and_back(judgment) == judgment


def test_numbers_that_are_none_are_null_in_the_row_and_nan_again():
    distribution = there_and_back(full([-math.inf] * 4)).shown[1].distribution
    assert distribution.unassigned == 1
    assert math.isnan(distribution.first_better)
    grades = replace(ANCHORED, grades=replace(GRADES, expected=math.nan))
    assert math.isnan(there_and_back(replace(PLAIN, shown=(grades,))).shown[0].grades.expected)


def test_what_was_not_asked_for_takes_no_room():
    row = judgment_row(PLAIN)
    assert set(row["shown"][0]) == {"order", "text", "scores", "failure", "cut"}
    assert "hashes" not in row
    assert judgment_row(replace(PLAIN, hashes=HASHES))["hashes"].keys() == {"question", "answers"}
    assert judgment_row(replace(PLAIN, self_answers=ANSWERS))["solves"][1] == {"text": "who knows", "answer": None}
    assert "approximation" not in judgment_row(replace(PLAIN, shown=(ANCHORED,)))["shown"][0]["grades"]


# Judgments that stay in their run file, and what metrics need of them

SAMPLE = Sample(id="x", question="q", answers=("a", "b"))


def judgment(key, scores=(8, 6), text="8 6", **fields):
    shown = Shown(order=(0, 1), text=text, scores=scores, thinking="Well, then", reason="since")
    pair = replace(PLAIN, sample_id=key, shown=(shown,), scores=scores)
    return replace(pair, hashes=text_hashes(SAMPLE), **fields)


def stored(tmp_path, *judgments):
    return StoredJudgments(write_rows(tmp_path / "run.jsonl", map(judgment_row, judgments)))


def test_each_judgment_is_read_whole_and_the_latest_of_an_id_counts(tmp_path):
    run = stored(tmp_path, judgment("b"), judgment("ä", text="äöü"), judgment("b", text="9 1"))
    assert list(run.items()) == [("b", judgment("b", text="9 1")), ("ä", judgment("ä", text="äöü"))]
    assert list(run.compact) == ["b", "ä"]


def test_compact_judgments_have_no_texts_and_share_what_is_equal(tmp_path):
    failed = Unparsed("off_grammar", "dunno", "no numbers")
    failure = judgment("3", verdict=None, failure=failed)
    run = stored(tmp_path, judgment("1"), judgment("2", text="8 6!"), failure).compact
    [shown] = run["1"].shown
    assert shown is run["2"].shown[0]
    assert (shown.text, shown.reason, len(shown.thinking), run["1"].hashes) == ("", "", 10, None)
    assert run["3"].failure == Unparsed("off_grammar", "", "")


def test_equal_scores_keep_how_they_were_written(tmp_path):
    run = stored(tmp_path, judgment("1"), judgment("2", scores=(8.0, 6.0))).compact
    for scores in ([run[key].scores for key in "12"], [run[key].shown[0].scores for key in "12"]):
        assert json.dumps(scores) == "[[8, 6], [8.0, 6.0]]"


def test_two_judgments_of_one_id_and_other_texts_are_refused(tmp_path):
    other = replace(judgment("1"), hashes=text_hashes(replace(SAMPLE, question="another")))
    with pytest.raises(InputError, match="has judgments of different texts"):
        stored(tmp_path, judgment("1"), other)
