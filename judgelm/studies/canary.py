"""Comparison of a canary with the same pairs judged again: is this still the same judge?"""

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from judgelm.metrics.drift import (
    DriftLimits,
    ProbabilityDrift,
    VerdictDrift,
    drift_reasons,
    probability_drift,
    verdict_drift,
)
from judgelm.metrics.resampling import Resampling
from judgelm.runs.canary import Canary
from judgelm.runs.run_files import differences
from judgelm.studies.pair_labels import label_of

_EQUAL = 1e-6
"""Largest difference of P that is no difference: what float32 sums in another order differ by."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CanaryCheck:
    """A canary compared with the judge of now.

    Attributes:
        probabilities: None where a side has none.
        reasons: why the judge counts as another one; empty where it is the same.
        identity: entry of the judge's description -> recorded and now; the machine's are left out.
        pairs: number of pairs.
        without_probability: pairs without P(first better) on a side.
    """

    probabilities: ProbabilityDrift | None
    verdicts: VerdictDrift
    limits: DriftLimits
    reasons: tuple[str, ...]
    identity: Mapping[str, tuple[Any, Any]]
    pairs: int
    without_probability: int

    @property
    def drifted(self) -> bool:
        """True where the judge counts as another one."""
        return bool(self.reasons)

    @property
    def conclusion(self) -> str:
        """The result in one sentence."""
        if self.reasons:
            return f"drifted: {'; '.join(self.reasons)}."
        changed = f"{self.verdicts.count} of {self.pairs} verdicts changed"
        if self.probabilities is None:
            most = 100 * self.verdicts.changed.high
            return (
                f"same by its verdicts: {changed}; without probabilities, up to {most:.1f} % changed verdicts in other "
                "pairs are possible (95 % interval)."
            )
        if self.probabilities.largest <= _EQUAL and not self.verdicts.count:
            return f"same: all verdicts and probabilities of {self.pairs} pairs are as recorded."
        size = self.probabilities.size
        return (
            f"same within the tolerance: P(first better) moved by {size.value:.4f} in the mean (95 % interval "
            f"{size.low:.4f} to {size.high:.4f}, tolerance {self.limits.tolerance:g}), {changed}; differences this "
            "small come from kernels and numeric formats."
        )

    def to_json(self) -> dict[str, Any]:
        """All numbers, ready for `json.dumps` but for NaN."""
        return {
            "drifted": self.drifted,
            "conclusion": self.conclusion,
            **asdict(self),
            "identity": {name: {"recorded": old, "now": new} for name, (old, new) in self.identity.items()},
        }


def compare_canaries(
    recorded: Canary, now: Canary, *, limits: DriftLimits | None = None, resampling: Resampling | None = None
) -> CanaryCheck:
    """Compare two judgments of the same pairs.

    Args:
        recorded: the earlier one.
        now: the later one, of the same pairs in the same order.
        limits: of a benign difference; None takes those recorded.
        resampling: seed and number of resamples; the defaults when None.
    """
    limits = limits or recorded.limits
    before, after = _probabilities(recorded), _probabilities(now)
    questions = [pair.question for pair in recorded.pairs]
    probabilities = probability_drift(before, after, questions, resampling or Resampling())
    labels = [None if pair.label is None else label_of(pair.label) for pair in recorded.pairs]
    turned = [old.shown != new.shown for old, new in zip(recorded.pairs, now.pairs, strict=True)]
    orders = turned if probabilities is None else None
    verdicts = verdict_drift(_verdicts(recorded), _verdicts(now), labels, orders)
    sides = {"machine": None}
    identity = {
        name: (old, new) for name, old, new in differences("", {**recorded.judge, **sides}, {**now.judge, **sides})
    }
    return CanaryCheck(
        probabilities=probabilities,
        verdicts=verdicts,
        limits=limits,
        reasons=tuple(drift_reasons(probabilities, verdicts, limits)),
        identity=identity,
        pairs=len(recorded.pairs),
        without_probability=int(np.isnan(after - before).any(axis=1).sum()),
    )


def _probabilities(canary: Canary) -> NDArray[np.float64]:
    """Shape (n, 2); NaN where there is none."""
    return np.array(
        [[math.nan if value is None else value for value in pair.probabilities] for pair in canary.pairs]
    ).reshape(-1, 2)


def _verdicts(canary: Canary) -> list[int | None]:
    return [None if pair.verdict is None else label_of(pair.verdict) for pair in canary.pairs]
