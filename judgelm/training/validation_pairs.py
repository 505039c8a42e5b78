"""Labelled pairs that a judge in training is tried on, and what its judgments of them come to."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from judgelm.data.labelled_pair import LabelledPair, read_labelled, uniform_hash
from judgelm.errors import InputError
from judgelm.parsing.distribution import LabelRule
from judgelm.records import Judgment, Label, Sample
from judgelm.training.rows.records import RowCounts

if TYPE_CHECKING:
    from judgelm.metrics.resampling import Estimate

FIGURE_NAMES = ("agreement", "agreement_by_mean", "consistency", "delta_bias")
"""The figures with an interval, as logs and cards name them."""

Way = Literal["without_reference", "with_reference"]
"""How a pair is asked about."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationPairs:
    """Pairs to be judged, each in the ways that it has labels for.

    Attributes:
        samples: one for each pair and way; ids are unique, and the reference is there only where it is to be shown.
        labels: by sample id.
        way_of: by sample id.
        pairs: how many were drawn.
        available: how many the files have.
    """

    samples: tuple[Sample, ...]
    labels: Mapping[str, Label]
    way_of: Mapping[str, Way]
    pairs: int
    available: int

    def __str__(self) -> str:
        drawn = f"{self.pairs} of {self.available}" if self.pairs < self.available else f"all {self.pairs}"
        ways = " and ".join(way.replace("_", " ") for way in self.ways)
        return f"{drawn} pairs are judged in both orders, {ways}"

    @property
    def ways(self) -> tuple[Way, ...]:
        """In which ways there is something to judge."""
        return tuple(sorted(set(self.way_of.values()), reverse=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """What judgments are worth against labels.

    Attributes:
        agreement: share of all pairs on which the given order names the label's winner; an unreadable reply names none.
        agreement_by_mean: share of all pairs on which the mean scores of both orders do; with an unreadable reply they
            name none.
        consistency: share of the readable ones that name the same winner in both orders; None where none is readable.
        delta_bias: among them, the share that leans toward the answer shown first less that toward the second, without
            its sign; None where none is readable.
        failed: share of unreadable replies; there are two to a judgment.
    """

    agreement: "Estimate"
    agreement_by_mean: "Estimate"
    consistency: "Estimate | None"
    delta_bias: "Estimate | None"
    failed: float

    def numbers(self) -> dict[str, float]:
        """By name; what is undefined is left out."""
        found = {name: getattr(self, name) for name in FIGURE_NAMES}
        return {name: one.value for name, one in found.items() if one is not None} | {"failed": self.failed}

    def facts(self) -> dict[str, Any]:
        """As the card keeps them, with 95 % intervals."""
        return asdict(self)


def trained_ways(counts: RowCounts) -> tuple[Way, ...]:
    """How the rows of several answers are asked about: without a reference, with one, or both."""
    without = counts.made - counts.kinds["single"] - counts.with_reference
    found: list[tuple[Way, int]] = [("without_reference", without), ("with_reference", counts.with_reference)]
    return tuple(way for way, rows in found if rows > 0)


def draw_pairs(paths: Sequence[str], *, ways: Sequence[Way], count: int, seed: int) -> ValidationPairs:
    """Draw pairs from labelled files, by seed and id alone; in the files' order.

    Rows without label, of another number of answers, or not to be read are passed over.

    Args:
        paths: labelled files.
        ways: in which a pair is to be judged, where it has the label.
        count: how many pairs; all where there are fewer.
        seed: of the draw.

    Raises:
        InputError: a file cannot be read, or no pair can be judged.
    """
    available = 0

    def numbered() -> Iterator[tuple[float, int, str, LabelledPair]]:
        nonlocal available
        for place, path in enumerate(paths):
            for pair in read_labelled(path, source=path, on_reject=lambda reject: None):
                if any(_label(pair, way) is not None for way in ways):
                    available += 1
                    name = f"{place}:{pair.sample.id}"
                    yield uniform_hash(seed, name, "validation"), available, name, pair

    drawn = heapq.nsmallest(count, numbered(), key=lambda one: one[:2])
    if not drawn:
        shown = " or ".join(way.replace("_", " a ") for way in ways)
        raise InputError(
            f"{', '.join(paths)}: no pair has a label made {shown}, as the training's rows were, so none can be "
            "judged; give labelled pairs as eval_data, or eval_pairs: 0 for the eval loss alone"
        )
    samples, labels, way_of = [], {}, {}
    for _, _, name, pair in sorted(drawn, key=lambda one: one[1]):
        for way in ways:
            if (label := _label(pair, way)) is not None:
                key = f"{name} {way}"
                reference = pair.sample.reference if way == "with_reference" else None
                samples.append(replace(pair.sample, id=key, reference=reference))
                labels[key], way_of[key] = label, way
    return ValidationPairs(samples=tuple(samples), labels=labels, way_of=way_of, pairs=len(drawn), available=available)


def figures(judgments: Sequence[Judgment], pairs: ValidationPairs) -> dict[Way | None, Figures]:
    """Figures over all judgments, under None, and of each way by itself where there are two."""
    found: dict[Way | None, Figures] = {None: _figures(judgments, pairs)}
    for way in pairs.ways if len(pairs.ways) > 1 else ():
        found[way] = _figures([one for one in judgments if pairs.way_of[one.sample_id] == way], pairs)
    return found


def _figures(judgments: Sequence[Judgment], pairs: ValidationPairs) -> Figures:
    # scipy and statsmodels take seconds to import, in every process of a training that may never judge
    from judgelm.metrics.resampling import Resampling, share
    from judgelm.studies.evaluation import EvaluationOptions, evaluate
    from judgelm.studies.pair_labels import label_of, pair_label, pair_winner

    questions = {sample.id: sample.question for sample in pairs.samples}
    found = evaluate(judgments, pairs.labels, clusters=questions, options=EvaluationOptions(order_rule="given"))
    position = found.excluded.position if found.excluded else None

    def agreement(rule: LabelRule) -> "Estimate":
        hits = [pair_label(one, rule) == label_of(pair_winner(pairs.labels[one.sample_id])) for one in judgments]
        return share(np.array(hits), [questions[one.sample_id] for one in judgments], Resampling())

    return Figures(
        agreement=agreement("given"),
        agreement_by_mean=agreement("mean"),
        consistency=position.consistency if position else None,
        delta_bias=position.delta if position else None,
        failed=found.counts.failed_orders / (2 * found.counts.joined),
    )


def _label(pair: LabelledPair, way: Way) -> Label | None:
    label = pair.plain if way == "without_reference" else pair.referenced
    return label if label is not None and label.winner is not None else None
