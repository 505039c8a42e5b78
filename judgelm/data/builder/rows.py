"""Training rows out of clean pairs: a pair and an epoch in, what is written of it out. No files, no order, no state.

A row's id tells where it comes from: `17`, `17:swapped` (written in both orders), `17:e1` (the second epoch), `17:c1`
(the second copy of a resampled pair).
"""

from collections.abc import Iterator
from dataclasses import replace

from judgelm.data.augmentation import drop_reference, should_swap, swap_answers
from judgelm.data.builder.counts import BuildCounts
from judgelm.data.builder.options import BuildOptions
from judgelm.data.labelled_pair import LabelledPair, uniform_hash


def augment(pair: LabelledPair, options: BuildOptions, epoch: int, counts: BuildCounts) -> Iterator[LabelledPair]:
    """What one epoch of the training set holds of a pair.

    Args:
        pair: a clean pair; it is not changed.
        options: what is drawn with which probability.
        epoch: from 0.
        counts: what was done is added here.
    """
    for copy in range(_copies(pair, options, epoch)):
        current = pair.named(f"{pair.sample.id}:c{copy}") if copy else pair  # each copy draws for itself
        swaps = options.swap == "both" or (
            options.swap == "draw" and should_swap(current, options.swap_prob, seed=options.seed, epoch=epoch)
        )
        current = _without_reasons(_with_reference(current, options, epoch), options, epoch)
        current = replace(current.named(f"{current.sample.id}:e{epoch}"), epoch=epoch) if epoch else current
        exchanged = _swapped(current, options, counts) if swaps else None
        if not swaps:
            counts.swapped["left as it was"] += 1
        if exchanged is None or options.swap == "both":
            yield current
        if exchanged is not None:
            yield exchanged


def _copies(pair: LabelledPair, options: BuildOptions, epoch: int) -> int:
    """How often an epoch holds a pair: once, or as its winner is resampled."""
    assert pair.label is not None, "a clean pair has a judgment"
    share = next((share for winner, share in options.resample.items() if winner == str(pair.label.winner)), 1.0)
    whole = int(share)
    return whole + (uniform_hash(options.seed, pair.sample.id, "resample", epoch) < share - whole)


def _swapped(pair: LabelledPair, options: BuildOptions, counts: BuildCounts) -> LabelledPair | None:
    """The pair the other way round, or None where its reason forbids it."""
    done = swap_answers(pair, options.ambiguous)
    for problem in done.ambiguous:
        counts.ambiguous[problem.code] += 1
    if done.pair.swapped == pair.swapped:
        counts.swapped["kept, its reason is ambiguous"] += 1
        return None
    counts.swapped["swapped without an ambiguous reason" if done.ambiguous else "swapped"] += 1
    after = done.pair
    if options.swap == "both":
        after = after.named(f"{after.sample.id}:swapped")
    counts.add_example(pair, after, options.seed)
    return after


def _with_reference(pair: LabelledPair, options: BuildOptions, epoch: int) -> LabelledPair:
    if options.reference == "draw":
        return drop_reference(pair, options.reference_drop_prob, seed=options.seed, epoch=epoch)
    return pair


def _without_reasons(pair: LabelledPair, options: BuildOptions, epoch: int) -> LabelledPair:
    if options.reason_prob == 1 or uniform_hash(options.seed, pair.sample.id, "reason", epoch) < options.reason_prob:
        return pair
    plain, referenced = (
        None if label is None else replace(label, reason=None) for label in (pair.plain, pair.referenced)
    )
    return replace(pair, plain=plain, referenced=referenced)
