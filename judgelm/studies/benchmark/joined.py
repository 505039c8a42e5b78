"""Judgments of a benchmark beside their labels, and what each order of a pair says."""

from collections.abc import Hashable, Mapping
from dataclasses import dataclass

from judgelm.data.labelled_set import LabelledSet
from judgelm.errors import InputError
from judgelm.metrics.resampling import Resampling
from judgelm.records import Judgment, Label, Sample
from judgelm.studies.pair_labels import label_of, orders_of, pair_winner


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedJudgment:
    """A judgment with its label and subset; `sample` is None for labels without samples."""

    judgment: Judgment
    label: Label
    subset: str
    sample: Sample | None

    @property
    def cluster(self) -> Hashable:
        """The question, since judgments of one question are not independent."""
        return self.label.sample_id if self.sample is None else self.sample.question


def join_judgments(judgments: Mapping[str, Judgment], labelled: LabelledSet) -> list[JoinedJudgment]:
    """The judgments that have a label.

    Raises:
        InputError: none has.
    """
    subsets = labelled.groups.get("category", {})
    joined = [
        JoinedJudgment(
            judgment=judgment,
            label=labelled.labels[key],
            subset=subsets.get(key, "not given"),
            sample=labelled.samples.get(key),
        )
        for key, judgment in judgments.items()
        if key in labelled.labels
    ]
    if not joined:
        raise InputError("benchmark: no judgment has a label; give the rows that were judged, as imported")
    return joined


def order_labels(joined: JoinedJudgment) -> list[int | None]:
    """Labels of each order in sample order; a judgment that failed before its second order has one.

    Raises:
        InputError: the judgment has two orders without a label of each.
    """
    orders = orders_of(joined.judgment)
    if orders is None:
        raise InputError(f"judgment {joined.judgment.sample_id}: two orders without a label of each")
    return [orders.given.label] + ([] if orders.swapped is None else [orders.swapped.label])


def truth_of(joined: JoinedJudgment) -> int:
    """The label of a pair: +1, 0, -1.

    Raises:
        InputError: it is no pair's label.
    """
    return label_of(pair_winner(joined.label))


def protocol_of_intervals(resampling: Resampling) -> str:
    """A sentence on the intervals."""
    return f"Intervals: 95 %, {resampling.resamples} resamples of questions (seed {resampling.seed})."
