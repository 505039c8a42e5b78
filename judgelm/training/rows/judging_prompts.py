"""Labelled pairs -> the prompts of both orders and the better answer, the rows of `train/grpo.py`.

Template, length policy and reference drop are those of `judgelm.training.rows.builder`; the judge writes the reasons
itself. Ties are left out: no verdict on them is right in both orders.
"""

from dataclasses import dataclass, replace
from typing import Any, ClassVar

import datasets
import numpy as np

from judgelm.data.labelled_pair import LabelledPair
from judgelm.prompts.truncation import TokenizedPrompt
from judgelm.records import Label, Sample, Unparsed, failure_name
from judgelm.training.rows.builder import SFTRowBuilder
from judgelm.training.rows.dataset import EpochRows
from judgelm.training.rows.records import RowOptions


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingPromptOptions(RowOptions):
    """Options that turn a labelled pair into prompts.

    Attributes:
        reply_tokens: room for the reply, its reasoning included; the prompt gets the rest of the window.
    """

    reply_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingPrompts:
    """One training row.

    Attributes:
        sample_id: of its sample.
        prompt: the text that the judge continues, with the answers in the given order.
        swapped: the same with the answers exchanged.
        winner: the better answer in the given order, 1 or 2.
    """

    sample_id: str
    prompt: str
    swapped: str
    winner: int


class JudgingPromptBuilder(SFTRowBuilder):
    """Builds the rows of `train/grpo.py` from labelled pairs."""

    row: ClassVar[type] = JudgingPrompts
    options: JudgingPromptOptions

    def build(self, item: LabelledPair, epoch: int = 0) -> JudgingPrompts | None:  # type: ignore[override]  # another row
        """Build the row of a labelled pair in one epoch; None where it is left out, which `counts` records."""
        if len(item.sample.answers) != 2:
            self.counts.left_out["not a pair"] += 1
            return None
        label, reference = self._choose(item.sample, item.plain, item.referenced, epoch)
        if label is None or label.winner not in (1, 2):
            self.counts.left_out["no winner" if label is None or label.winner is None else "a tie"] += 1
            return None
        swapped = replace(item.sample, answers=item.sample.answers[::-1])
        prompts = [self._prompt_text(sample, reference) for sample in (item.sample, swapped)]
        if unfit := next((prompt for prompt in prompts if isinstance(prompt, Unparsed)), None):
            self.counts.left_out[failure_name(unfit.code)] += 1
            return None
        first, second = (prompt for prompt in prompts if not isinstance(prompt, Unparsed))
        self._count(item.sample, item.source, reference, first, with_reason=True)  # its own
        return JudgingPrompts(
            sample_id=item.sample.id, prompt=first.text, swapped=second.text, winner=int(label.winner)
        )

    def _prompt_text(self, sample: Sample, reference: str | None) -> TokenizedPrompt | Unparsed:
        return self._truncator.truncate(self._prompt(sample, reference), self.options.reply_tokens)

    def _scored(self, label: Label | None) -> Label | None:
        """The label without its reason, which the judge does not learn from."""
        return None if label is None else replace(label, reason=None)


def in_both_orders(rows: EpochRows, *, step: int) -> EpochRows:
    """The rows as single prompts, both orders of a pair one behind the other.

    Args:
        rows: of `JudgingPromptBuilder`; their dataset stays on the disk.
        step: prompts of one optimiser step; a last step that would lack some is left out.

    Returns:
        Rows whose dataset has the columns `sample_id`, `prompt`, `pair` (its number), `order` (0 as given, 1 swapped)
        and `best`, the place in which the better answer is shown, 1 or 2.
    """
    pairs = rows.dataset
    count = len(pairs) * 2 // step * step
    index = np.arange(count)
    table = {"sample_id": np.repeat(pairs["sample_id"][:], 2)[:count].tolist(), "pair": index // 2, "order": index % 2}

    def show(batch: dict[str, Any]) -> dict[str, Any]:
        shown = [pairs[int(pair)] for pair in batch["pair"]]
        orders = batch["order"]
        return batch | {
            "prompt": [row["swapped" if order else "prompt"] for row, order in zip(shown, orders, strict=True)],
            "best": [3 - row["winner"] if order else row["winner"] for row, order in zip(shown, orders, strict=True)],
        }

    return replace(rows, dataset=datasets.Dataset.from_dict(table).with_transform(show), per_epoch=2 * rows.per_epoch)
