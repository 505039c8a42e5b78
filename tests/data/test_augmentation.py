"""Swap, reference drop and reference control on single pairs: what changes, what must not, and what is drawn."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.data.augmentation import drop_reference, replace_reference, should_swap, swap_answers
from judgelm.data.labelled_pair import LabelledPair, judgelm_row, uniform_hash
from judgelm.data.swap_names import Ambiguous
from judgelm.records import Label, Sample, winner_of

TEXTS = st.text(st.characters(codec="utf-8"), max_size=40)
SCORES = st.tuples(st.integers(1, 10).map(float), st.integers(1, 10).map(float))
REASONS = st.lists(
    st.sampled_from([
        "Assistant 1 is better.", "Assistants 1 and 2 agree.", "The first answer says so.", "It names 3 reasons.",
        "1 is better than 2.", "the FORMER answer", "Response A lacks detail;", "I prefer it.", "\n\n", "Scores: 8 6",
    ]),
    max_size=6,
).map(" ".join)  # fmt: skip


def label_of(scores, reason=None, votes=()):
    return Label(sample_id="", winner=winner_of(scores), scores=scores, reason=reason, votes=votes)


def pair_of(plain=None, referenced=None, *, pair_id="7", reference="r", answers=("one", "two"), **metadata):
    sample = Sample(id=pair_id, question="q", answers=answers, reference=reference, answer_models=("m", "n"),
                    metadata=metadata)  # fmt: skip
    return LabelledPair(sample=sample, plain=plain, referenced=referenced, source="s")


def test_everything_that_has_a_place_is_exchanged():
    pair = pair_of(
        label_of((8.0, 6.0), "Assistant 1 is right, Assistant 2's answer is not.", votes=(1, "tie", 2)),
        label_of((5.0, 9.0), "The second assistant is right."),
        answer1_metadata={"decoding": "greedy"},
        answer2_metadata={"decoding": "top_p"},
        note="kept",
    )
    done = swap_answers(pair).pair
    assert done.swapped
    assert done.sample.answers == ("two", "one")
    assert done.sample.answer_models == ("n", "m")
    assert done.sample.metadata == {
        "answer1_metadata": {"decoding": "top_p"},
        "answer2_metadata": {"decoding": "greedy"},
        "note": "kept",
    }
    assert (done.plain.scores, done.plain.winner, done.plain.votes) == ((6.0, 8.0), 2, (2, "tie", 1))
    assert done.plain.reason == "Assistant 2 is right, Assistant 1's answer is not."
    assert (done.referenced.scores, done.referenced.winner) == ((9.0, 5.0), 1)
    assert done.referenced.reason == "The first assistant is right."
    assert (done.sample.question, done.sample.reference, done.sample.id) == ("q", "r", "7")


def test_a_reason_that_does_not_say_which_answer_keeps_the_pair_or_goes():
    unclear = pair_of(label_of((8.0, 6.0), "1 is better than 2."), label_of((5.0, 9.0), "Assistant 2 is right."))
    kept = swap_answers(unclear, "keep")
    assert kept.pair is unclear
    assert swap_answers(unclear) == kept
    assert [type(one) for one in kept.ambiguous] == [Ambiguous]
    without = swap_answers(unclear, "drop_reason")
    assert without.pair.plain.reason is None
    assert without.pair.plain.scores == (6.0, 8.0)
    assert without.pair.referenced.reason == "Assistant 1 is right."


@pytest.mark.parametrize("holder", ["question", "answers", "reference"])
def test_a_quotation_of_any_text_of_the_pair_stays(holder):
    said = "Model A costs less."
    pair = pair_of(label_of((8.0, 6.0), f'Assistant 1 repeats "{said}"'), reference=None)
    texts = {holder: ("one", said) if holder == "answers" else said}
    done = swap_answers(replace(pair, sample=replace(pair.sample, **texts)))
    assert done.pair.plain.reason == f'Assistant 2 repeats "{said}"'
    assert [problem.code for problem in swap_answers(pair).ambiguous] == ["quoted_name"]  # nobody says so here


@given(SCORES, SCORES, REASONS, REASONS, TEXTS, TEXTS, st.sampled_from(["keep", "drop_reason"]))
def test_swap_is_an_involution_and_mirrors_the_labels(scores, others, reason, other, first, second, on_ambiguous):
    pair = pair_of(label_of(scores, reason or None), label_of(others, other or None), answers=(first, second))
    once = swap_answers(pair, on_ambiguous)
    assert once.pair.plain.scores == (scores[::-1] if once.pair.swapped else scores)
    if once.pair.swapped:
        assert once.pair.plain.winner == winner_of(scores[::-1])
    if not once.ambiguous:
        assert once.pair.swapped
        assert swap_answers(once.pair, on_ambiguous).pair == pair


@given(SCORES, REASONS)
def test_no_pair_is_ever_changed(scores, reason):
    pair, same = (pair_of(label_of(scores, reason), label_of(scores), answer1_metadata={"a": [1]}) for _ in range(2))
    swap_answers(pair, "drop_reason")
    drop_reference(pair, 0.5, seed=1, epoch=2)
    replace_reference(pair, "another")
    judgelm_row(pair)["score"].append(3)
    assert pair == same


def test_a_dropped_reference_takes_its_judgment_along():
    pair = pair_of(label_of((8.0, 6.0)), label_of((5.0, 9.0)))
    dropped = drop_reference(pair, 1.0, seed=0, epoch=0)
    assert (dropped.sample.reference, dropped.referenced, dropped.plain) == (None, None, pair.plain)
    shown = drop_reference(pair, 0.0, seed=0, epoch=0)
    assert (shown.sample.reference, shown.referenced, shown.plain) == ("r", pair.referenced, None)
    for probability in (0.0, 1.0):  # a pair with one judgment keeps it
        plain, referenced = replace(pair, referenced=None), replace(pair, plain=None)
        assert drop_reference(plain, probability, seed=0, epoch=0).sample.reference is None
        assert drop_reference(referenced, probability, seed=0, epoch=0) == referenced


def test_another_reference_leaves_the_judgment_made_with_the_old_one_behind():
    pair = pair_of(label_of((8.0, 6.0)), label_of((5.0, 9.0)))
    other = replace_reference(pair, "another")
    assert (other.sample.reference, other.referenced, other.plain) == ("another", None, pair.plain)
    assert replace_reference(pair, "r") is pair


def test_draws_are_uniform_and_depend_on_seed_purpose_id_and_epoch_alone():
    drawn = [uniform_hash(0, str(number), "swap") for number in range(4000)]
    assert 0.47 < sum(one < 0.5 for one in drawn) / 4000 < 0.53  # 3.8 standard deviations of 0.0079
    assert uniform_hash(0, "5", "swap") == drawn[5]
    others = {
        uniform_hash(1, "5", "swap"),
        uniform_hash(0, "5", "reference"),
        uniform_hash(0, "5", "swap", 1),
        uniform_hash(0, "6", "swap"),
        drawn[5],
    }
    assert len(others) == 5


def test_what_is_drawn_is_the_pairs_own_draw_and_must_be_below_the_probability():
    for number in range(20):
        pair = pair_of(label_of((8.0, 6.0)), label_of((5.0, 9.0)), pair_id=str(number))
        for_swap, for_reference = (uniform_hash(3, str(number), purpose, 2) for purpose in ("swap", "reference"))
        for more, drawn in ((0.0, False), (1e-9, True)):
            assert should_swap(pair, for_swap + more, seed=3, epoch=2) is drawn
            shown = drop_reference(pair, for_reference + more, seed=3, epoch=2)
            assert (shown.sample.reference is None) is drawn


def test_the_row_says_what_the_pair_says_with_the_score_line_from_the_numbers():
    row = judgelm_row(replace(pair_of(label_of((8.0, 6.5), "Fine."), label_of((5.0, 9.0))), swapped=True, epoch=2))
    assert row["text"] == "8 6.5\nFine."
    assert (row["score"], row["score_w_reference"], row["text_w_reference"]) == ([8, 6.5], [5, 9], "5 9")
    assert row["reference"] == {"text": "r"}
    assert (row["question_id"], row["source"], row["swapped"], row["epoch"]) == ("7", "s", True, 2)
