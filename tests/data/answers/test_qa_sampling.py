"""About a thousand questions with every answer type in them."""

import pytest

from judgelm.data.answers.qa_sampling import sample_by_type, type_counts
from judgelm.errors import ConfigError
from judgelm.records import Sample


def questions(data_set="hotpotqa", **counts):
    return [
        Sample(id=f"{kind}{i}", question="q", answers=(), metadata={"data_set": data_set, "answer_type": kind})
        for kind, count in counts.items()
        for i in range(count)
    ]


def test_small_types_are_whole_and_large_ones_drawn_in_proportion():
    # without the 500 yes/no questions there are 4,000; name: 1000 * 3000/4000 = 750, place: 1000 * 910/4000 = 227.5,
    # rounded to 228; the 90 jobs are fewer than 100 and all kept
    everything = questions(name=3000, place=910, job=90, bool=500)
    assert type_counts(sample_by_type(everything)) == {"name": 750, "place": 228, "job": 90}


def test_quoref_is_without_dates_and_years():
    kept = sample_by_type(questions("quoref", name=50, date=50, year=50, bool=50))
    assert type_counts(kept) == {"name": 50}
    assert type_counts(sample_by_type(questions("drop", date=50, bool=50))) == {"date": 50}


def test_a_small_data_set_is_kept_whole():
    everything = questions(name=300, place=200)
    assert sample_by_type(everything) == everything


def test_what_is_drawn_depends_on_ids_and_seed_alone():
    everything = questions(name=2000, place=500)
    one, backwards = sample_by_type(everything, target=100), sample_by_type(everything[::-1], target=100)
    assert {sample.id for sample in one} == {sample.id for sample in backwards}
    assert {sample.id for sample in one} != {sample.id for sample in sample_by_type(everything, target=100, seed=1)}


def test_no_target_is_refused():
    with pytest.raises(ConfigError, match="target is 0"):
        sample_by_type(questions(name=1), target=0)
