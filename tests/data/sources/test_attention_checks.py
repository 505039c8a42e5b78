import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.data.sources.rating_tables import attention_checks, dropped_characters, reversed_words
from judgelm.records import Sample


def samples(count):
    return [Sample(id=str(i), question=f"question {i}", answers=(f"Answer {i}. Yes it is.",)) for i in range(count)]


def test_words_are_reversed_within_their_sentence():
    assert reversed_words("The cat sat. Did it stay?\nYes!") == "sat cat The. stay it Did?\nYes!"


def test_up_to_a_third_of_the_characters_go():
    # 10 characters, a third is 3.33, rounded down 3
    assert len(dropped_characters("abcdefghij")) == 7
    with pytest.raises(ValueError, match="expected 0 to 1/3"):
        dropped_characters("abc", share=0.5)


@given(st.text(max_size=60), st.integers())
def test_what_is_left_is_in_order_and_repeats_with_the_seed(text, seed):
    left = dropped_characters(text, seed=seed)
    rest = iter(text)
    assert all(letter in rest for letter in left)
    assert len(text) - len(left) == len(text) // 3
    assert left == dropped_characters(text, seed=seed)


@pytest.mark.parametrize("seed", range(5))
def test_random_pairing_gives_every_question_the_answer_to_another(seed):
    given_samples = samples(5)
    spoiled = attention_checks(given_samples, "random_pairing", seed=seed)
    assert all(new.answers != old.answers for new, old in zip(spoiled, given_samples, strict=True))
    assert {new.answers for new in spoiled} == {old.answers for old in given_samples}
    assert spoiled[0].id == "0#random_pairing"
    assert spoiled[0].metadata == {"check": "random_pairing"}


def test_random_pairing_needs_another_question():
    with pytest.raises(ValueError, match="at least two"):
        attention_checks(samples(1), "random_pairing")
    with pytest.raises(ValueError, match="occurs twice"):
        attention_checks([samples(1)[0], samples(1)[0]], "random_pairing")


def test_the_other_checks_spoil_each_answer():
    [words] = attention_checks(samples(1), "reversed_words")
    [letters] = attention_checks(samples(1), "dropped_characters", seed=1)
    assert words.answers == ("0 Answer. is it Yes.",)
    assert len(letters.answers[0]) == 20 - 6
