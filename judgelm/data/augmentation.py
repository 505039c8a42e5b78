"""Create training rows from clean pairs: swap augmentation, reference support, and reference drop.

Every random draw depends only on (seed, id, epoch). The suffix of an id shows how the row was created: `17:swapped` if
both orders are written, and `17:e1` in the second epoch.

Source: JudgeLM, section 5, Figures 15 and 16.
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
    """A swapped pair, or the original if it could not be swapped, and the ambiguous reasons."""

    pair: LabelledPair
    ambiguous: tuple[Ambiguous, ...] = ()


def swap_answers(pair: LabelledPair, on_ambiguous: OnAmbiguous = "keep") -> SwappedPair:
    """Swap the answers, models, scores, winner, votes, preference (p becomes 1 - p), and the names in both reasons.

    Swapping twice returns the original pair, unless a reason was dropped.
    """
    sample = pair.sample
    quotable = (*sample.answers, sample.question, *([sample.reference] if sample.reference is not None else []))
    swapped_labels = [_mirrored(label, quotable) for label in (pair.plain, pair.referenced)]
    ambiguous = tuple(problem for _, problem in swapped_labels if problem is not None)
    if ambiguous and on_ambiguous == "keep":
        return SwappedPair(pair=pair, ambiguous=ambiguous)
    answers, models, metadata = sample.answers[::-1], sample.answer_models[::-1], _swapped_keys(sample.metadata)
    sample = replace(sample, answers=answers, answer_models=models, metadata=metadata)
    (plain, _), (referenced, _) = swapped_labels
    swapped = replace(pair, sample=sample, plain=plain, referenced=referenced, swapped=not pair.swapped)
    return SwappedPair(pair=swapped, ambiguous=ambiguous)


def should_swap(pair: LabelledPair, probability: float, *, seed: int, epoch: int) -> bool:
    """Return True if the answers should be swapped in this epoch."""
    return uniform_hash(seed, pair.sample.id, "swap", epoch) < probability


def drop_reference(pair: LabelledPair, probability: float, *, seed: int, epoch: int) -> LabelledPair:
    """With `probability`, drop the reference and its judgment; otherwise drop the judgment made without it."""
    if pair.referenced is None:
        return pair.without_reference()
    if pair.plain is None or uniform_hash(seed, pair.sample.id, "reference", epoch) >= probability:
        return replace(pair, plain=None)
    return pair.without_reference()


def replace_reference(pair: LabelledPair, reference: str) -> LabelledPair:
    """Replace the reference and drop the judgment made with the old reference (Figure 16)."""
    if reference == pair.sample.reference:
        return pair
    return replace(pair, sample=replace(pair.sample, reference=reference), referenced=None)


def _mirrored(label: Label | None, quotable: tuple[str, ...]) -> tuple[Label | None, Ambiguous | None]:
    if label is None:
        return None, None
    assert label.winner is not None, "a pair's label has a winner"
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
    matches = {key: _NUMBERED.fullmatch(key) for key in metadata}
    names = {key: match and f"{match[1]}{3 - int(match[2])}{match[3]}" for key, match in matches.items()}
    return {names[key] or key: value for key, value in metadata.items()}


def augment(pair: LabelledPair, options: BuildOptions, epoch: int, counts: BuildCounts) -> Iterator[LabelledPair]:
    """Yield the training rows for a clean pair in one epoch."""
    for copy in range(_copies(pair, options, epoch)):
        current = pair.with_id(f"{pair.sample.id}:c{copy}") if copy else pair  # draws are independent for each copy
        drawn = should_swap(current, options.swap_prob, seed=options.seed, epoch=epoch)
        swaps = options.swap == "both" or (options.swap == "draw" and drawn)
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
    assert pair.label is not None, "a clean pair has a judgment"
    share = next((share for winner, share in options.resample.items() if winner == str(pair.label.winner)), 1.0)
    whole = int(share)
    return whole + (uniform_hash(options.seed, pair.sample.id, "resample", epoch) < share - whole)


def _swapped(pair: LabelledPair, options: BuildOptions, counts: BuildCounts) -> LabelledPair | None:
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
    plain, referenced = (label and replace(label, reason=None) for label in (pair.plain, pair.referenced))
    return replace(pair, plain=plain, referenced=referenced)
