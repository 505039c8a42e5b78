"""Swaps, reference drops, copies and soft preferences: what changes, what must not, and what is drawn."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from judgelm.data.augmentation import augment, drop_reference, replace_reference, should_swap, swap_answers
from judgelm.data.builder.counts import BuildCounts
from judgelm.data.builder.options import BuildOptions
from judgelm.data.labelled_pair import (
    LabelledPair,
    judgelm_row,
    preference_of,
    scores_by_preference,
    swapped_preference,
    uniform_hash,
    winner_by_preference,
)
from judgelm.data.labelled_set import read_labelled
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
    decodings = {"answer1_metadata": {"decoding": "greedy"}, "answer2_metadata": {"decoding": "top_p"}}
    plain = label_of((8.0, 6.0), "Assistant 1 is right, Assistant 2's answer is not.", votes=(1, "tie", 2))
    pair = pair_of(plain, label_of((5.0, 9.0), "The second assistant is right."), note="kept", **decodings)
    swapped = swap_answers(pair).pair
    decodings = {"answer1_metadata": {"decoding": "top_p"}, "answer2_metadata": {"decoding": "greedy"}}
    metadata = decodings | {"note": "kept"}
    sample = replace(pair.sample, answers=("two", "one"), answer_models=("n", "m"), metadata=metadata)
    assert (swapped.swapped, swapped.sample) == (True, sample)
    reason = "Assistant 2 is right, Assistant 1's answer is not."
    assert swapped.plain == label_of((6.0, 8.0), reason, votes=(2, "tie", 1))
    assert swapped.referenced == label_of((9.0, 5.0), "The first assistant is right.")


def test_a_reason_that_does_not_say_which_answer_keeps_the_pair_or_goes():
    unclear = pair_of(label_of((8.0, 6.0), "1 is better than 2."), label_of((5.0, 9.0), "Assistant 2 is right."))
    kept = swap_answers(unclear, "keep")
    assert kept.pair is unclear
    assert swap_answers(unclear) == kept
    assert [type(problem) for problem in kept.ambiguous] == [Ambiguous]
    without = swap_answers(unclear, "drop_reason").pair
    assert (without.plain.reason, without.plain.scores) == (None, (6.0, 8.0))
    assert without.referenced.reason == "Assistant 1 is right."


@pytest.mark.parametrize("holder", ["question", "answers", "reference"])
def test_a_quotation_of_any_text_of_the_pair_stays(holder):
    quotation = "Model A costs less."
    pair = pair_of(label_of((8.0, 6.0), f'Assistant 1 repeats "{quotation}"'), reference=None)
    texts = {holder: ("one", quotation) if holder == "answers" else quotation}
    done = swap_answers(replace(pair, sample=replace(pair.sample, **texts)))
    assert done.pair.plain.reason == f'Assistant 2 repeats "{quotation}"'
    problems = swap_answers(pair).ambiguous  # the pair does not contain the quotation
    assert [problem.code for problem in problems] == ["quoted_name"]


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


def test_a_dropped_or_replaced_reference_removes_its_judgment():
    pair = pair_of(label_of((8.0, 6.0)), label_of((5.0, 9.0)))
    dropped = drop_reference(pair, 1.0, seed=0, epoch=0)
    assert (dropped.sample.reference, dropped.referenced, dropped.plain) == (None, None, pair.plain)
    shown = drop_reference(pair, 0.0, seed=0, epoch=0)
    assert (shown.sample.reference, shown.referenced, shown.plain) == ("r", pair.referenced, None)
    for probability in (0.0, 1.0):  # a pair with one judgment keeps it
        plain, referenced = replace(pair, referenced=None), replace(pair, plain=None)
        assert drop_reference(plain, probability, seed=0, epoch=0).sample.reference is None
        assert drop_reference(referenced, probability, seed=0, epoch=0) == referenced
    other = replace_reference(pair, "another")
    assert (other.sample.reference, other.referenced, other.plain) == ("another", None, pair.plain)
    assert replace_reference(pair, "r") is pair


def test_draws_are_uniform_and_depend_on_seed_purpose_id_and_epoch_alone():
    drawn = [uniform_hash(0, str(number), "swap") for number in range(4000)]
    assert 0.47 < sum(draw < 0.5 for draw in drawn) / 4000 < 0.53  # 3.8 standard deviations of 0.0079
    assert uniform_hash(0, "5", "swap") == drawn[5]
    others = [(1, "5", "swap"), (0, "5", "reference"), (0, "5", "swap", 1), (0, "6", "swap")]
    assert len({drawn[5], *(uniform_hash(*parts) for parts in others)}) == 5


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
    assert (row["score"], row["text"], row["reference"]) == ([8, 6.5], "8 6.5\nFine.", {"text": "r"})
    assert (row["score_w_reference"], row["text_w_reference"]) == ([5, 9], "5 9")
    assert (row["question_id"], row["source"], row["swapped"], row["epoch"]) == ("7", "s", True, 2)


SEED = 5


def judged_pair(pair_id="7", reason="Assistant 1 is right.", referenced="The second answer is right."):
    """A pair with a judgment without and one with reference."""
    return pair_of(label_of((8.0, 6.0), reason), label_of((5.0, 9.0), referenced), pair_id=pair_id)


def derived(pair, epoch=0, **options):
    counts = BuildCounts()
    given = BuildOptions(inputs=({"path": "pairs.jsonl"},), out="out", seed=SEED, **options)
    return list(augment(pair, given, epoch, counts)), counts


def test_both_orders_are_written():
    pair = judged_pair()
    (given, swapped), counts = derived(pair, swap="both")
    assert given == pair
    assert (swapped.sample.id, swapped.sample.answers, swapped.swapped) == ("7:swapped", ("two", "one"), True)
    assert (swapped.plain.reason, swapped.referenced.reason) == ("Assistant 2 is right.", "The first answer is right.")
    assert counts.swapped == {"swapped": 1}
    kept, counts = derived(pair, swap="none", swap_prob=1.0)
    assert (kept, counts.swapped) == ([pair], {"left as it was": 1})


@pytest.mark.parametrize("epoch", [0, 1])
def test_an_epoch_shows_a_pair_in_the_order_that_is_drawn(epoch):
    for number in map(str, range(20)):
        [shown], counts = derived(judged_pair(number), epoch, swap_prob=0.5)
        swapped = uniform_hash(SEED, number, "swap", epoch) < 0.5
        assert (shown.swapped, shown.sample.answers) == ((True, ("two", "one")) if swapped else (False, ("one", "two")))
        assert (shown.sample.id, shown.epoch) == (f"{number}:e1" if epoch else number, epoch)
        assert counts.swapped == {"swapped" if swapped else "left as it was": 1}


def test_an_unclear_reason_keeps_the_pair_as_it_is_or_goes():
    pair = judged_pair("7", "1 is better than 2.", "Both A and B are fine.")
    for swap in ("both", "draw"):
        kept, counts = derived(pair, swap=swap, swap_prob=1.0)
        assert kept == [pair]
        assert (counts.swapped, counts.ambiguous) == ({"kept, its reason is ambiguous": 1}, {"bare_name": 2})
    [without], counts = derived(pair, swap_prob=1.0, ambiguous="drop_reason")
    assert (without.plain.scores, without.plain.reason, without.referenced.reason) == ((6.0, 8.0), None, None)
    assert counts.swapped == {"swapped without an ambiguous reason": 1}


def test_a_resampled_pair_comes_in_copies_that_draw_for_themselves():
    numbers = set()
    for number in map(str, range(20)):
        for epoch in (0, 1):
            copies, _ = derived(judged_pair(number), epoch, resample={"1": 2.5, "2": 0.0}, swap_prob=0.5)
            ids = [number, f"{number}:c1", f"{number}:c2"][: 2 + (uniform_hash(SEED, number, "resample", epoch) < 0.5)]
            assert [copy.sample.id for copy in copies] == [f"{key}:e1" if epoch else key for key in ids]
            assert [copy.swapped for copy in copies] == [uniform_hash(SEED, key, "swap", epoch) < 0.5 for key in ids]
            numbers.add(len(copies))
    assert numbers == {2, 3}
    assert derived(judged_pair(), resample={"1": 0.0})[0] == []
    share = uniform_hash(SEED, "7", "resample")  # the draw must be below the share
    assert derived(judged_pair(), resample={"1": share})[0] == []
    assert len(derived(judged_pair(), resample={"2": 0.0})[0]) == 1


def test_reasons_go_from_a_share_of_the_pairs():
    for number in map(str, range(20)):
        pair = judged_pair(number)
        share = uniform_hash(SEED, number, "reason", 1)
        [without], _ = derived(pair, 1, swap="none", reason_prob=share)  # the draw must be below the share
        assert (without.plain.reason, without.referenced.reason) == (None, None)
        [whole], _ = derived(pair, 1, swap="none", reason_prob=share + 1e-9)
        assert (whole.plain, whole.referenced) == (pair.plain, pair.referenced)
    [without], _ = derived(replace(judged_pair(), referenced=None), swap="none", reason_prob=0.0)
    assert (without.plain.scores, without.plain.reason, without.referenced) == ((8.0, 6.0), None, None)


PREFERENCES = st.floats(0, 1)
SCALES = st.sampled_from([((1, 10), 1), ((1, 5), 1), ((0, 1), 0.1), ((1, 10), 0.5), ((0, 1), 1), ((0, 100), 5)])
PLAIN = {"id": "1", "question": "q", "answer_1": "a", "answer_2": "b"}


@pytest.mark.parametrize(
    # nine steps; a sure preference leads by six: 9 3. 2 * 0.75 - 1 is half of that, three steps: ceil(6 / 2) up, 7 4
    ("preference", "scores"),
    [(1, (9, 3)), (0, (3, 9)), (0.5, (6, 6)), (0.75, (7, 4)), (0.25, (4, 7)), (0.51, (6, 5)), (0.9, (8, 3))],
)
def test_scores_by_hand(preference, scores):
    assert scores_by_preference(preference) == scores


@given(PREFERENCES, PREFERENCES, SCALES)
def test_scores_are_monotone_and_within_the_scale(first, second, scale_and_step):
    scale, step = scale_and_step
    low, high = (scores_by_preference(each, scale, step) for each in sorted((first, second)))
    assert low[0] <= high[0]
    assert low[1] >= high[1]
    assert all(scale[0] <= score <= scale[1] for score in (*low, *high))


@given(st.integers(0, 1000), SCALES)
def test_scores_of_the_swapped_pair_are_the_same_reversed_and_name_the_winner(thousandths, scale_and_step):
    preference = thousandths / 1000
    first, second = scores = scores_by_preference(preference, *scale_and_step)
    assert scores_by_preference(swapped_preference(preference), *scale_and_step) == scores[::-1]
    assert winner_by_preference(preference) == ("tie" if first == second else 1 if first > second else 2)
    assert swapped_preference(swapped_preference(preference)) == preference


@pytest.mark.parametrize(
    ("winner", "preference", "target"),
    [(1, None, 1), (2, None, 0), ("tie", None, 0.5), (1, 0.7, 0.7), (None, None, None)],
)
def test_the_target_of_a_label(winner, preference, target):
    assert preference_of(Label(sample_id="", winner=winner, preference=preference)) == target


def pairs(write, *rows):
    """Reads rows as labelled pairs: the pairs, and the reasons of rejects."""
    rejects = []
    found = list(read_labelled(write(*rows), source="s", on_reject=rejects.append))
    return found, [reject.reason for reject in rejects]


def test_a_preference_goes_into_a_judgelm_row_and_out_again_swapped_or_beside_scores(write):
    [alone, scored], _ = pairs(
        write, PLAIN | {"preference": 0.3}, PLAIN | {"id": "2", "preference": 0.3, "scores": [3, 5]}
    )
    row = judgelm_row(swap_answers(alone).pair)
    assert (row["answer1_body"], row["preference"], row["winner"], row["score"]) == ("b", 0.7, "1", None)
    [again, beside], _ = pairs(write, row, judgelm_row(scored))
    assert (again.plain.preference, again.plain.winner, again.plain.scores) == (0.7, 1, None)
    assert (beside.plain.preference, beside.plain.winner, beside.plain.scores) == (0.3, 2, (3, 5))


@pytest.mark.parametrize(
    ("fields", "finding"),
    [
        ({"preference": 1.5}, "0 to 1, got 1.5; AlpacaEval's scale"),
        ({"preference": 0.3, "winner": 1}, "0.3 contradicts the winner 1"),
        ({"preference": 0.3, "scores": [8, 6]}, "0.3 contradicts the winner 1"),
        ({"preference": "high"}, 'field "preference": expected a finite number'),
    ],
)
def test_a_preference_that_cannot_be_is_a_reject(write, fields, finding):
    [_], [reason] = pairs(write, PLAIN | fields, PLAIN | {"id": "2", "winner": 1})
    assert finding in reason
