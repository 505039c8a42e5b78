"""Judgments that stay in their run file, and what metrics need of them."""

import json
from dataclasses import replace

import pytest

from judgelm.data.judged_texts import text_hashes
from judgelm.errors import InputError
from judgelm.records import Judgment, PairVerdict, Sample, Shown, Unparsed
from judgelm.runs.serialization import judgment_row
from judgelm.runs.stored_judgments import StoredJudgments
from tests.support.jsonl_files import write_rows

SAMPLE = Sample(id="x", question="q", answers=("a", "b"))


def judgment(key, scores=(8, 6), text="8 6", **fields):
    """Of a pair in one order, the first answer better."""
    shown = Shown(order=(0, 1), text=text, scores=scores, thinking="Well, then", reason="since")
    made = Judgment(sample_id=key, mode="pair", verdict=PairVerdict(winner=1), shown=(shown,), scores=scores)
    return replace(made, hashes=text_hashes(SAMPLE), **fields)


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


def test_scores_that_are_equal_keep_how_they_were_written(tmp_path):
    run = stored(tmp_path, judgment("1"), judgment("2", scores=(8.0, 6.0))).compact
    assert json.dumps([run[key].scores for key in "12"]) == "[[8, 6], [8.0, 6.0]]"
    assert json.dumps([run[key].shown[0].scores for key in "12"]) == "[[8, 6], [8.0, 6.0]]"


def test_two_judgments_of_one_id_and_other_texts_are_refused(tmp_path):
    other = replace(judgment("1"), hashes=text_hashes(replace(SAMPLE, question="another")))
    with pytest.raises(InputError, match="has judgments of different texts"):
        stored(tmp_path, judgment("1"), other)
