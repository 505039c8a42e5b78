"""Spoiled answers, which an attentive judge scores low, and samples of QA questions by answer type."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.study_rows import attention_checks, dropped_characters, reversed_words, sample_by_type, type_counts
from judgelm.errors import ConfigError
from judgelm.records import Sample


def samples(count):
    return [Sample(id=str(i), question=f"question {i}", answers=(f"Answer {i}. Yes it is.",)) for i in range(count)]


def test_words_are_reversed_within_their_sentence():
    assert reversed_words("The cat sat. Did it stay?\nYes!") == "sat cat The. stay it Did?\nYes!"


@given(st.text(max_size=60), st.integers())
def test_a_third_of_the_characters_goes_and_what_is_left_is_in_order_and_repeats_with_the_seed(text, seed):
    left = dropped_characters(text, seed=seed)
    rest = iter(text)
    assert all(letter in rest for letter in left)
    assert len(text) - len(left) == len(text) // 3
    assert left == dropped_characters(text, seed=seed)


def test_random_pairing_gives_every_question_the_answer_to_another():
    for seed in range(5):
        spoiled = attention_checks(samples(5), "random_pairing", seed=seed)
        assert all(new.answers != old.answers for new, old in zip(spoiled, samples(5), strict=True))
        assert {new.answers for new in spoiled} == {old.answers for old in samples(5)}
    assert (spoiled[0].id, spoiled[0].metadata) == ("0#random_pairing", {"check": "random_pairing"})
    for given_samples, finding in ((samples(1), "at least two"), (samples(1) * 2, "occurs twice")):
        with pytest.raises(ValueError, match=finding):
            attention_checks(given_samples, "random_pairing")


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
    assert sample_by_type(everything[:500]) == everything[:500]  # a small data set is kept whole
    assert type_counts(sample_by_type(questions("quoref", name=50, date=50, year=50, bool=50))) == {"name": 50}
    with pytest.raises(ConfigError, match="target is 0"):
        sample_by_type(everything, target=0)


def test_what_is_drawn_depends_on_ids_and_seed_alone():
    everything = questions(name=2000, place=500)
    one, backwards = sample_by_type(everything, target=100), sample_by_type(everything[::-1], target=100)
    assert {sample.id for sample in one} == {sample.id for sample in backwards}
    assert {sample.id for sample in one} != {sample.id for sample in sample_by_type(everything, target=100, seed=1)}
