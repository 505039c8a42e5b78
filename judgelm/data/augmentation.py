"""Swap augmentation, reference support and reference drop: training rows made of clean pairs, which never change.

Every draw depends on (seed, id, epoch) alone, so a pair comes out the same in every order and on any number of
workers, and one epoch's pair never touches another's. A row's id says where the row comes from: `17`, `17:swapped`
(written in both orders), `17:e1` (the second epoch), `17:c1` (the second copy of a resampled pair).

Rows for other tasks (one answer, three or four answers, chat) are derived from the same pairs. No teacher judges again,
so a row holds no more information than its pairs. Those of one answer and of several are plain rows, which training
reads beside those of pairs; chat rows are for other trainers.

Source: JudgeLM, section 5 (swap augmentation 5.1, reference support 5.2, reference drop 5.3), Figures 5 (a single
answer), 6 (multiple answers), 15 and 16.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from judgelm.data.builder.counts import BuildCounts
from judgelm.data.builder.options import BuildOptions
from judgelm.data.labelled_pair import LabelledPair, swapped_preference, uniform_hash
from judgelm.data.swap_names import Ambiguous, OnAmbiguous, swap_names
from judgelm.records import Label, Winner

_PAIR_ORDER = (1, 0)
_MIRRORED: Mapping[Winner, Winner] = {1: 2, 2: 1, "tie": "tie"}
_NUMBERED = re.compile(r"((?:answer|response|output|model|generator)_?)([12])(?=_|$)(.*)", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class SwappedPair:
    """A pair with its answers swapped, and the ambiguous reasons.

    Attributes:
        pair: the new pair, or the old one where the swap was not possible.
        ambiguous: one finding for each ambiguous reason.
    """

    pair: LabelledPair
    ambiguous: tuple[Ambiguous, ...] = ()


def swap_answers(pair: LabelledPair, on_ambiguous: OnAmbiguous = "keep") -> SwappedPair:
    """Swap answers, models, scores, winner, votes, preference (p becomes 1 - p) and the names in both reasons.

    Swapping what was swapped gives the pair back, unless a reason was dropped.

    Args:
        pair: a pair of two answers.
        on_ambiguous: treatment of a reason that does not say clearly which answer it is about.
    """
    sample = pair.sample
    quotable = (*sample.answers, sample.question, *([sample.reference] if sample.reference is not None else []))
    swapped_labels = [_mirrored(label, quotable) for label in (pair.plain, pair.referenced)]
    ambiguous = tuple(problem for _, problem in swapped_labels if problem is not None)
    if ambiguous and on_ambiguous == "keep":
        return SwappedPair(pair=pair, ambiguous=ambiguous)
    swapped = replace(
        pair,
        sample=replace(
            sample,
            answers=sample.answers[::-1],
            answer_models=sample.answer_models[::-1],
            metadata=_swapped_keys(sample.metadata),
        ),
        plain=swapped_labels[0][0],
        referenced=swapped_labels[1][0],
        swapped=not pair.swapped,
    )
    return SwappedPair(pair=swapped, ambiguous=ambiguous)


def should_swap(pair: LabelledPair, probability: float, *, seed: int, epoch: int) -> bool:
    """True if this epoch shows the pair with its answers swapped."""
    return uniform_hash(seed, pair.sample.id, "swap", epoch) < probability


def drop_reference(pair: LabelledPair, probability: float, *, seed: int, epoch: int) -> LabelledPair:
    """One of the two judgments that a pair with a reference carries, prompt and target chosen together.

    With `probability` the reference and the judgment made with it are dropped; otherwise the judgment made without it.
    A pair that has only one of them keeps that one.
    """
    if pair.referenced is None:
        return pair.without_reference()
    if pair.plain is None or uniform_hash(seed, pair.sample.id, "reference", epoch) >= probability:
        return replace(pair, plain=None)
    return pair.without_reference()


def replace_reference(pair: LabelledPair, reference: str) -> LabelledPair:
    """The pair with another reference, without the judgment that was made with the old one (Figure 16)."""
    if reference == pair.sample.reference:
        return pair
    return replace(pair, sample=replace(pair.sample, reference=reference), referenced=None)


def _mirrored(label: Label | None, quotable: tuple[str, ...]) -> tuple[Label | None, Ambiguous | None]:
    """The label of the swapped answers; an ambiguous reason is dropped and its finding returned."""
    if label is None:
        return None, None
    assert label.winner is not None, "a pair's label names its winner"
    mirrored = replace(
        label,
        winner=_MIRRORED[label.winner],
        scores=None if label.scores is None else label.scores[::-1],
        votes=tuple(_MIRRORED[vote] for vote in label.votes),
        preference=None if label.preference is None else swapped_preference(label.preference),
    )
    if label.reason is None:
        return mirrored, None
    reason = swap_names(label.reason, _PAIR_ORDER, quotable)
    if isinstance(reason, Ambiguous):
        return replace(mirrored, reason=None), reason
    return replace(mirrored, reason=reason.text), None


def _swapped_keys(metadata: Mapping[str, object]) -> Mapping[str, object]:
    """Metadata with `answer1_metadata` and similar keys under the other number."""
    swapped = {}
    for key, value in metadata.items():
        match = _NUMBERED.fullmatch(key)
        swapped[key if match is None else f"{match[1]}{3 - int(match[2])}{match[3]}"] = value
    return swapped


def augment(pair: LabelledPair, options: BuildOptions, epoch: int, counts: BuildCounts) -> Iterator[LabelledPair]:
    """The rows of a pair in one epoch of the training set.

    Args:
        pair: a clean pair; it is not changed.
        options: probabilities of the draws.
        epoch: from 0.
        counts: the outcomes are added here.
    """
    for copy in range(_copies(pair, options, epoch)):
        current = pair.with_id(f"{pair.sample.id}:c{copy}") if copy else pair  # each copy draws for itself
        swaps = options.swap == "both" or (
            options.swap == "draw" and should_swap(current, options.swap_prob, seed=options.seed, epoch=epoch)
        )
        if options.reference == "draw":
            current = drop_reference(current, options.reference_drop_prob, seed=options.seed, epoch=epoch)
        current = _without_reasons(current, options, epoch)
        current = replace(current.with_id(f"{current.sample.id}:e{epoch}"), epoch=epoch) if epoch else current
        swapped_pair = _swapped(current, options, counts) if swaps else None
        if not swaps:
            counts.swapped["left as it was"] += 1
        if swapped_pair is None or options.swap == "both":
            yield current
        if swapped_pair is not None:
            yield swapped_pair


def _copies(pair: LabelledPair, options: BuildOptions, epoch: int) -> int:
    """Number of copies of a pair in an epoch: one, or as its winner is resampled."""
    assert pair.label is not None, "a clean pair has a judgment"
    share = next((share for winner, share in options.resample.items() if winner == str(pair.label.winner)), 1.0)
    whole = int(share)
    return whole + (uniform_hash(options.seed, pair.sample.id, "resample", epoch) < share - whole)


def _swapped(pair: LabelledPair, options: BuildOptions, counts: BuildCounts) -> LabelledPair | None:
    """The swapped pair, or None where its reason is ambiguous."""
    result = swap_answers(pair, options.ambiguous)
    for problem in result.ambiguous:
        counts.ambiguous[problem.code] += 1
    if result.pair.swapped == pair.swapped:
        counts.swapped["kept, its reason is ambiguous"] += 1
        return None
    counts.swapped["swapped without an ambiguous reason" if result.ambiguous else "swapped"] += 1
    after = result.pair
    return after.with_id(f"{after.sample.id}:swapped") if options.swap == "both" else after


def _without_reasons(pair: LabelledPair, options: BuildOptions, epoch: int) -> LabelledPair:
    if options.reason_prob == 1 or uniform_hash(options.seed, pair.sample.id, "reason", epoch) < options.reason_prob:
        return pair
    plain, referenced = (
        None if label is None else replace(label, reason=None) for label in (pair.plain, pair.referenced)
    )
    return replace(pair, plain=plain, referenced=referenced)
