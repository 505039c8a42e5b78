"""Labelled pairs -> the prompts of both orders and P(first answer is better), the rows of `train/preference.py`.

Prompts, length policy, swap and reference drop are those of `judgelm.training.rows.builder`; reasons are left out. The
target is the label's `preference`, else 1, 0 or 0.5 by its winner or scores.
"""

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np
from numpy.typing import NDArray

from judgelm.data.augmentation import swap_answers
from judgelm.data.labelled_pair import LabelledPair, preference_of, score_line, scores_by_preference
from judgelm.records import Label, Unparsed, failure_name
from judgelm.training.rows.builder import SFTRowBuilder
from judgelm.training.rows.records import RowOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRowOptions(RowOptions):
    """Options that turn a labelled pair into a row.

    Attributes:
        both_orders: whether a row has the prompt with the answers swapped as well.
    """

    both_orders: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRow:
    """One training row.

    Attributes:
        sample_id: of its sample.
        prompt_ids: shape (tokens,), int32.
        swapped_ids: shape (tokens,), int32, the prompt with the answers swapped; empty without both orders.
        preference: P(the first answer of `prompt_ids` is better), in [0, 1].
    """

    sample_id: str
    prompt_ids: NDArray[np.int32]
    swapped_ids: NDArray[np.int32]
    preference: float


class PairRowBuilder(SFTRowBuilder):
    """Builds the rows of `train/preference.py` from labelled pairs."""

    row: ClassVar[type] = PairRow
    options: PairRowOptions

    def build(self, item: LabelledPair, epoch: int = 0) -> PairRow | None:  # type: ignore[override]  # another row
        """Build the row of a labelled pair in one epoch; None where it is left out, which `counts` records."""
        if len(item.sample.answers) != 2:
            self.counts.left_out["not a pair"] += 1
            return None
        pair = self._swap(item, epoch)
        label, reference = self._choose(pair.sample, pair.plain, pair.referenced, epoch)
        if label is None or label.scores is None or label.preference is None:
            self.counts.left_out["no preference, scores or winner"] += 1
            return None
        line = score_line(label.scores) + "\n"
        swapped = swap_answers(pair).pair
        orders = [pair.sample, swapped.sample] if self.options.both_orders else [pair.sample]
        tokens = [self._tokens(self._prompt(sample, reference), ((line, ""),)) for sample in orders]
        if unfit := next((each for each in tokens if isinstance(each, Unparsed)), None):
            self.counts.left_out[failure_name(unfit.code)] += 1
            return None
        prompts = [each[0] for each in tokens if not isinstance(each, Unparsed)]
        self._count(pair.sample, item.source, reference, prompts[0], with_reason=False)
        self.counts.scores.update(label.scores)
        ids = [np.array(prompt.ids, dtype=np.int32) for prompt in prompts]
        return PairRow(
            sample_id=pair.sample.id,
            prompt_ids=ids[0],
            swapped_ids=ids[1] if len(ids) > 1 else np.array([], dtype=np.int32),
            preference=label.preference,
        )

    def _scored(self, label: Label | None) -> Label | None:
        """The label with its preference and the scores of that, whatever its own.

        It has no reason, which is not learned here and could keep its pair from being swapped.
        """
        preference = None if label is None else preference_of(label)
        if label is None or preference is None:
            return None
        scores = scores_by_preference(preference, self.options.scale)
        return replace(label, preference=preference, scores=scores, reason=None)
