"""Labelled pairs of the evaluations during training, and the metrics of the judgments on them."""

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np

from judgelm.data.labelled_pair import LabelledPair, uniform_hash
from judgelm.data.labelled_set import read_labelled
from judgelm.errors import InputError
from judgelm.parsing.scores import LabelRule
from judgelm.records import Judgment, Label, Sample
from judgelm.training.rows.records import RowCounts

if TYPE_CHECKING:
    from judgelm.metrics.resampling import Estimate

METRIC_NAMES = ("agreement", "agreement_by_mean", "consistency", "delta_bias")
"""Metrics with an interval, as logs and cards name them."""

PromptKind = Literal["without_reference", "with_reference"]
"""Kind of prompt that a pair is judged with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationPairs:
    """Pairs to be judged, each with the kinds of prompt that it has labels for.

    Attributes:
        samples: one for each pair and kind; ids are unique, and only samples with reference have one.
        labels: by sample id.
        kind_of: by sample id.
        pairs: number drawn.
        available: number in the files.
    """

    samples: tuple[Sample, ...]
    labels: Mapping[str, Label]
    kind_of: Mapping[str, PromptKind]
    pairs: int
    available: int

    def __str__(self) -> str:
        drawn = f"{self.pairs} of {self.available}" if self.pairs < self.available else f"all {self.pairs}"
        kinds = " and ".join(kind.replace("_", " ") for kind in self.kinds)
        return f"{drawn} pairs are judged in both orders, {kinds}"

    @property
    def kinds(self) -> tuple[PromptKind, ...]:
        """Kinds of prompt that occur."""
        return tuple(sorted(set(self.kind_of.values()), reverse=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationMetrics:
    """Metrics of judgments against labels.

    Attributes:
        agreement: share of all pairs on which the given order names the label's winner; an unreadable reply names none.
        agreement_by_mean: share of all pairs on which the mean scores of both orders do; with an unreadable reply they
            name none. Of a judge that reasons first both orders' verdicts must.
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
        """Values by name, without the undefined ones."""
        estimates = {name: getattr(self, name) for name in METRIC_NAMES}
        return {name: each.value for name, each in estimates.items() if each is not None} | {"failed": self.failed}


def trained_prompt_kinds(counts: RowCounts) -> tuple[PromptKind, ...]:
    """Kinds of prompt in the rows of several answers."""
    without = counts.made - counts.kinds["single"] - counts.with_reference
    rows_of: dict[PromptKind, int] = {"without_reference": without, "with_reference": counts.with_reference}
    return tuple(kind for kind, rows in rows_of.items() if rows > 0)


def draw_pairs(paths: Sequence[str], *, kinds: Sequence[PromptKind], count: int, seed: int) -> ValidationPairs:
    """Draw pairs from labelled files, by seed and id alone; in the files' order.

    Rows that are unreadable, without label or with another number of answers are skipped.

    Args:
        paths: labelled files.
        kinds: of prompt; a pair is judged with those that it has a label for.
        count: number of pairs; all where there are fewer.
        seed: of the draw.

    Raises:
        InputError: a file cannot be read, or no pair can be judged.
    """
    available = 0

    def candidates() -> Iterator[tuple[float, int, str, LabelledPair]]:
        nonlocal available
        for file, path in enumerate(paths):
            for pair in read_labelled(path, source=path, on_reject=lambda reject: None):
                if any(_label(pair, kind) is not None for kind in kinds):
                    available += 1
                    name = f"{file}:{pair.sample.id}"
                    yield uniform_hash(seed, name, "validation"), available, name, pair

    drawn = heapq.nsmallest(count, candidates(), key=lambda candidate: candidate[:2])
    if not drawn:
        shown = " or ".join(kind.replace("_", " a ") for kind in kinds)
        raise InputError(
            f"{', '.join(paths)}: no pair has a label made {shown}, like the training's rows, so none can be "
            "judged; give labelled pairs as eval_data, or eval_pairs: 0 for the eval loss alone"
        )
    samples, labels, kind_of = [], {}, {}
    for _, _, name, pair in sorted(drawn, key=lambda candidate: candidate[1]):
        for kind in kinds:
            if (label := _label(pair, kind)) is not None:
                key = f"{name} {kind}"
                reference = pair.sample.reference if kind == "with_reference" else None
                samples.append(replace(pair.sample, id=key, reference=reference))
                labels[key], kind_of[key] = label, kind
    return ValidationPairs(
        samples=tuple(samples), labels=labels, kind_of=kind_of, pairs=len(drawn), available=available
    )


def validation_metrics(
    judgments: Sequence[Judgment], pairs: ValidationPairs
) -> dict[PromptKind | None, ValidationMetrics]:
    """Metrics over all judgments, under None, and of each kind of prompt where there are two."""
    by_kind: dict[PromptKind | None, ValidationMetrics] = {None: _metrics(judgments, pairs)}
    for kind in pairs.kinds if len(pairs.kinds) > 1 else ():
        by_kind[kind] = _metrics([each for each in judgments if pairs.kind_of[each.sample_id] == kind], pairs)
    return by_kind


def _metrics(judgments: Sequence[Judgment], pairs: ValidationPairs) -> ValidationMetrics:
    # scipy and statsmodels take seconds to import, in every process of a training that may never judge
    from judgelm.metrics.resampling import Resampling, share
    from judgelm.studies.evaluation import EvaluationOptions, evaluate
    from judgelm.studies.pair_labels import label_of, pair_label, pair_winner

    questions = {sample.id: sample.question for sample in pairs.samples}
    evaluation = evaluate(judgments, pairs.labels, clusters=questions, options=EvaluationOptions(order_rule="given"))
    position = evaluation.excluded.position if evaluation.excluded else None

    def agreement(rule: LabelRule) -> "Estimate":
        hits = [pair_label(each, rule) == label_of(pair_winner(pairs.labels[each.sample_id])) for each in judgments]
        return share(np.array(hits), [questions[each.sample_id] for each in judgments], Resampling())

    return ValidationMetrics(
        agreement=agreement("given"),
        # verdicts without scores have no mean: their two orders must name the same winner
        agreement_by_mean=agreement("as_judged" if any(each.mode == "reasoned" for each in judgments) else "mean"),
        consistency=position.consistency if position else None,
        delta_bias=position.delta if position else None,
        failed=evaluation.counts.failed_orders / (2 * evaluation.counts.joined),
    )


def _label(pair: LabelledPair, kind: PromptKind) -> Label | None:
    label = pair.plain if kind == "without_reference" else pair.referenced
    return label if label is not None and label.winner is not None else None
