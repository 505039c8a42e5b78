"""What one epoch's training set holds of a clean pair: orders, copies, references and reasons, as drawn."""

from dataclasses import replace

import pytest

from judgelm.data.augmentation import augment
from judgelm.data.builder.counts import BuildCounts
from judgelm.data.builder.options import BuildOptions
from judgelm.data.labelled_pair import LabelledPair, uniform_hash
from judgelm.records import Label, Sample

SEED = 5


def pair_of(pair_id="7", reason="Assistant 1 is right.", referenced="The second answer is right."):
    sample = Sample(id=pair_id, question="q", answers=("a", "b"), reference="r")
    labels = (
        Label(sample_id="", winner=1, scores=(8.0, 6.0), reason=reason),
        Label(sample_id="", winner=2, scores=(5.0, 9.0), reason=referenced),
    )
    return LabelledPair(sample=sample, plain=labels[0], referenced=labels[1], source="s")


def derived(pair, epoch=0, **options):
    counts = BuildCounts()
    given = BuildOptions(inputs=({"path": "pairs.jsonl"},), out="out", seed=SEED, **options)
    return list(augment(pair, given, epoch, counts)), counts


def test_both_orders_are_written():
    pair = pair_of()
    (given, swapped), counts = derived(pair, swap="both")
    assert given == pair
    assert (swapped.sample.id, swapped.sample.answers, swapped.swapped) == ("7:swapped", ("b", "a"), True)
    assert (swapped.plain.reason, swapped.referenced.reason) == ("Assistant 2 is right.", "The first answer is right.")
    assert counts.swapped == {"swapped": 1}
    kept, counts = derived(pair, swap="none", swap_prob=1.0)
    assert (kept, counts.swapped) == ([pair], {"left as it was": 1})


@pytest.mark.parametrize("epoch", [0, 1])
def test_an_epoch_shows_a_pair_in_the_order_that_is_drawn(epoch):
    for number in map(str, range(20)):
        [one], counts = derived(pair_of(number), epoch, swap_prob=0.5)
        swapped = uniform_hash(SEED, number, "swap", epoch) < 0.5
        assert (one.swapped, one.sample.answers) == ((True, ("b", "a")) if swapped else (False, ("a", "b")))
        assert (one.sample.id, one.epoch) == (f"{number}:e1" if epoch else number, epoch)
        assert counts.swapped == {"swapped" if swapped else "left as it was": 1}


def test_an_unclear_reason_keeps_the_pair_as_it_is_or_goes():
    pair = pair_of("7", "1 is better than 2.", "Both A and B are fine.")
    for swap in ("both", "draw"):
        kept, counts = derived(pair, swap=swap, swap_prob=1.0)
        assert kept == [pair]
        assert counts.swapped == {"kept, its reason is ambiguous": 1}
        assert counts.ambiguous == {"bare_name": 2}
    [without], counts = derived(pair, swap_prob=1.0, ambiguous="drop_reason")
    assert (without.plain.scores, without.plain.reason, without.referenced.reason) == ((6.0, 8.0), None, None)
    assert counts.swapped == {"swapped without an ambiguous reason": 1}


def test_a_resampled_pair_comes_in_copies_that_draw_for_themselves():
    numbers = set()
    for number in map(str, range(20)):
        for epoch in (0, 1):
            copies, _ = derived(pair_of(number), epoch, resample={"1": 2.5, "2": 0.0}, swap_prob=0.5)
            ids = [number, f"{number}:c1", f"{number}:c2"][: 2 + (uniform_hash(SEED, number, "resample", epoch) < 0.5)]
            assert [one.sample.id for one in copies] == [f"{one}:e1" if epoch else one for one in ids]
            assert [one.swapped for one in copies] == [uniform_hash(SEED, one, "swap", epoch) < 0.5 for one in ids]
            numbers.add(len(copies))
    assert numbers == {2, 3}
    assert derived(pair_of(), resample={"1": 0.0})[0] == []
    assert (
        derived(pair_of(), resample={"1": uniform_hash(SEED, "7", "resample")})[0] == []
    )  # the draw must be below the share
    assert len(derived(pair_of(), resample={"2": 0.0})[0]) == 1


def test_reasons_go_from_a_share_of_the_pairs():
    for number in map(str, range(20)):
        pair = pair_of(number)
        share = uniform_hash(SEED, number, "reason", 1)
        [without], _ = derived(pair, 1, swap="none", reason_prob=share)  # the draw must be below the share
        assert (without.plain.reason, without.referenced.reason) == (None, None)
        [whole], _ = derived(pair, 1, swap="none", reason_prob=share + 1e-9)
        assert (whole.plain, whole.referenced) == (pair.plain, pair.referenced)
    one = replace(pair_of(), referenced=None)
    [without], _ = derived(one, swap="none", reason_prob=0.0)
    assert (without.plain.scores, without.plain.reason, without.referenced) == ((8.0, 6.0), None, None)
