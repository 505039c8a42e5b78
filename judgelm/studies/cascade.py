"""Agreement with labels of a cascade of two judges, and of each of them alone."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from judgelm.metrics.resampling import Estimate, Resampling, mean, share
from judgelm.parsing.scores import LabelRule
from judgelm.records import Judgment, Label
from judgelm.studies.pair_labels import TIE_THRESHOLD, label_of, pair_label, pair_winner


@dataclass(frozen=True, slots=True, kw_only=True)
class CascadeAgreement:
    """Agreement with labels, in [0, 1]; None where no pair takes part.

    Attributes:
        small: the small judge alone, on all labelled pairs.
        cascade: both together, on the same.
        small_on_passed: the small judge, on those of them that were passed on.
        large_on_passed: the large judge, on those.
        gain: cascade minus small, on the pairs that both have a label for, resampled together.
    """

    small: Estimate | None
    cascade: Estimate | None
    small_on_passed: Estimate | None
    large_on_passed: Estimate | None
    gain: Estimate | None


def cascade_agreement(
    joined: Mapping[str, Judgment],
    small: Mapping[str, Judgment],
    labels: Mapping[str, Label],
    *,
    clusters: Mapping[str, Hashable] | None = None,
    failures_as_ties: bool = False,
    rule: LabelRule = "as_judged",
    tie_threshold: float = TIE_THRESHOLD,
    resampling: Resampling,
) -> CascadeAgreement:
    """Agreement of the cascade and of its judges, over samples that are joined, judged by the small one and labelled.

    Args:
        joined: of the cascade, `decided_by` set.
        small: of the small judge, on all samples.
        labels: by sample id.
        clusters: sample id -> key; pairs of one key are resampled together.
        failures_as_ties: count a failure as a tie instead of leaving it out.
        rule: two orders into one label.
        tie_threshold: under rule `probability`.
        resampling: seed and number of resamples.

    Raises:
        InputError: the order rule cannot be applied.
    """
    ids = [key for key in joined if key in small and key in labels]
    failed = 0 if failures_as_ties else None

    def judged(judgment: Judgment) -> int | None:
        label = pair_label(judgment, rule, None, tie_threshold)
        return failed if label is None else label

    truth = {key: label_of(pair_winner(labels[key])) for key in ids}
    both = {key: (judged(small[key]), judged(joined[key])) for key in ids}
    passed = [key for key in ids if joined[key].decided_by == "large"]

    def keys_of(ids: Sequence[str]) -> list[Hashable]:
        return [key if clusters is None else clusters.get(key, key) for key in ids]

    def agreement(ids: Sequence[str], which: int) -> Estimate | None:
        counted = [key for key in ids if both[key][which] is not None]
        hits = np.array([both[key][which] == truth[key] for key in counted])
        return share(hits, keys_of(counted), resampling) if counted else None

    labelled = [key for key in ids if None not in both[key]]
    gains = [(both[key][1] == truth[key]) - (both[key][0] == truth[key]) for key in labelled]
    return CascadeAgreement(
        small=agreement(ids, 0),
        cascade=agreement(ids, 1),
        small_on_passed=agreement(passed, 0),
        large_on_passed=agreement(passed, 1),
        gain=mean(np.array(gains, dtype=np.float64), keys_of(labelled), resampling) if labelled else None,
    )
