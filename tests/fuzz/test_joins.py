"""Joins by hash: a label never names another text than before, and a resumed run never takes other texts for judged."""

import json

import pytest
from hypothesis import strategies as st

from judgelm.data.judged_texts import check_same_texts, text_hashes
from judgelm.data.labelled_set import LabelledSet, match_labels
from judgelm.errors import InputError, RunError
from judgelm.records import Judgment, Label, PairVerdict, Sample
from judgelm.runs.run_files import FinishedIds
from judgelm.runs.serialization import judgment_row

TEXT = st.sampled_from(("a", "b", "a ", "A", "", "\u0430", "a\u0301", "\u00e1", "\ud800", '["a", "b"]')) | st.text(
    max_size=3
)
IDS = st.sampled_from(("1", "2", "\u2028"))
SAMPLES = st.builds(
    Sample, id=IDS, question=TEXT, answers=st.lists(TEXT, min_size=1, max_size=3).map(tuple),
    reference=st.none() | TEXT,
    metadata=st.dictionaries(st.sampled_from(("turns", "options", "note")), st.none() | st.lists(TEXT, max_size=2)),
)  # fmt: skip
LISTS = st.lists(SAMPLES, max_size=4, unique_by=lambda sample: sample.id)


def judged(samples):
    return {
        each.id: Judgment(
            sample_id=each.id, mode="pair", verdict=PairVerdict(winner=1), shown=(), hashes=text_hashes(each)
        )
        for each in samples
    }


def label_of(sample):
    """A label whose scores say which texts they belong to."""
    winner = 1 if len(sample.answers) == 2 else None
    return Label(sample_id=sample.id, winner=winner, scores=tuple(map(float, range(len(sample.answers), 0, -1))))


def scored(sample, label):
    return sorted(zip(sample.answers, label.scores, strict=True))


def test_labels_stay_with_their_texts(fuzz):
    def check(given):
        run, rows = given
        samples = {each.id: each for each in rows}
        labelled = LabelledSet(
            samples=samples, labels={key: label_of(each) for key, each in samples.items()}, groups={}
        )
        texts = {each.id: each for each in run}
        same = {key: each for key, each in texts.items() if key in samples}
        equal = all(
            (each.question, sorted(each.answers)) == (samples[key].question, sorted(samples[key].answers))
            for key, each in same.items()
        )
        try:
            found, comparison = match_labels(judged(run), labelled, name="rows")
        except InputError:
            twins = any(len(set(each.answers)) < len(each.answers) for each in same.values())
            assert not equal or twins
            return
        assert equal
        assert comparison.same + comparison.turned == len(same)
        for key, each in same.items():
            assert found.samples[key].answers == each.answers
            assert scored(found.samples[key], found.labels[key]) == scored(samples[key], labelled.labels[key])

    fuzz(st.tuples(LISTS, LISTS), check)


def test_runs_and_inputs_of_other_texts_are_never_taken_for_the_same(fuzz, tmp_path):
    def check(given):
        run, again = given
        out = tmp_path / "out.jsonl"
        out.write_text("".join(json.dumps(judgment_row(each)) + "\n" for each in judged(run).values()))
        finished = FinishedIds(out)
        assert len(finished) == len(run)
        before = {each.id: each for each in run}
        for sample in again:
            known = before.get(sample.id)
            same = known is not None and text_hashes(known) == text_hashes(sample)
            if known is None or same:
                assert finished.holds(sample) is same
            else:
                with pytest.raises(RunError, match="another input"):
                    finished.holds(sample)
        texts = [(each.question, each.answers) for each in again if each.id in before]
        if texts == [(before[each.id].question, before[each.id].answers) for each in again if each.id in before]:
            check_same_texts({"a": judged(run), "b": judged(again)})
        else:
            with pytest.raises(InputError, match="are not of the texts"):
                check_same_texts({"a": judged(run), "b": judged(again)})

    fuzz(st.tuples(LISTS, LISTS), check)
