"""Token rows of labelled answers for `train/sft.py`.

The prompt for a single answer ends in the prefilled score of its reference, `10`. The target is a space, the answer's
score, and a newline.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from judgelm.data.augmentation import swap_answers
from judgelm.data.labelled_pair import LabelledPair, score_line, training_scores, uniform_hash
from judgelm.data.samples import SampleStream
from judgelm.errors import InputError
from judgelm.prompts.catalog import verdict_text
from judgelm.prompts.judge_prompt import FIELDS
from judgelm.prompts.prompt_template import PromptTemplate, field_check
from judgelm.records import Label, Sample, Unparsed, failure_name
from judgelm.training.rows.builder import IGNORED, RowBuilder


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRow:
    """One training row. Tokens that do not contribute to the loss have the label `IGNORED`."""

    sample_id: str
    input_ids: NDArray[np.int32]
    labels: NDArray[np.int32]


_KEPT = {"turns"}
"""The metadata that rows need; any other would be copied between processes."""


class SFTRowBuilder(RowBuilder):
    """Builds the rows for `train/sft.py` from labelled answers."""

    row: ClassVar[type] = TokenRow

    def items(self, paths: Sequence[str]) -> Iterator[LabelledPair]:
        """Yield the samples with their labels."""
        prompt = self._template.judge_prompt if isinstance(self._template, PromptTemplate) else None
        kept = _KEPT if prompt is None else _KEPT | {FIELDS}
        check = field_check(prompt)
        for path in paths:
            stream = SampleStream([path], on_reject=self._reject, prompt=prompt, check=check)
            for row, sample in stream.pairs():
                try:
                    plain, referenced = stream.labels(row, False, True)
                except InputError:
                    self.counts.left_out["unreadable label"] += 1
                    continue
                bare = replace(sample, metadata={key: sample.metadata[key] for key in kept & sample.metadata.keys()})
                yield LabelledPair(sample=bare, plain=self._scored(plain), referenced=referenced, source=path)

    def _scored(self, label: Label | None) -> Label | None:
        return None if label is None else replace(label, scores=training_scores(label, self.options.scale))

    def check(self, paths: Sequence[str]) -> None:
        """Raise InputError if a file has no usable rows."""
        for path in paths:
            if not self.counts.files[path]:
                reasons = ", ".join(f"{count} {reason}" for reason, count in self.counts.left_out.items())
                raise InputError(f"{path}: no usable rows ({reasons or 'the file has no rows'})")

    def _row(self, item: LabelledPair, epoch: int) -> Any | str:
        pair = self._swap(item, epoch)
        sample = pair.sample
        label, reference = self._choose(sample, pair.plain, pair.referenced, epoch)
        if label is None or label.scores is None:
            return "no teacher scores"
        if problem := self._problem(sample, label.scores):
            return problem
        line, reason = self._target(sample, label, epoch)
        if self._template.reasons_first and (problem := _no_verdict(sample, label, reason)):
            return problem
        tokens = self._tokens(self._prompt(sample, reference), line, reason)
        if isinstance(tokens, Unparsed):
            return failure_name(tokens.code)
        tokenized, target = tokens
        if self._template.reasons_first and target[-1] != self._tokenizer.eos_token_id:
            return "reason too long for a verdict behind it"
        self._count(sample, item.source, reference, tokenized, with_reason=bool(reason))
        self.counts.scores.update(label.scores)
        ids = np.array(tokenized.ids + target, dtype=np.int32)
        labels = ids.copy()
        if not self.options.loss_on_prompt:
            labels[: len(tokenized.ids)] = IGNORED
        return TokenRow(sample_id=sample.id, input_ids=ids, labels=labels)

    def _target(self, sample: Sample, label: Label, epoch: int) -> tuple[str, str]:
        drawn = uniform_hash(self.options.seed, sample.id, "reason", epoch) < self.options.reason_prob
        reason, _ = self._truncator.sanitize((label.reason or "").strip() if drawn else "")
        if self._template.reasons_first:
            return "", f"{reason}\n{verdict_text(str(label.winner))}" if reason else ""
        line = score_line(label.scores or ()) + "\n"
        return f" {line}" if len(sample.answers) == 1 else line, reason

    def _swap(self, item: LabelledPair, epoch: int) -> LabelledPair:
        """Swap the pair randomly. With the data builder's draw name, swaps would be undone."""
        labels = [label for label in (item.plain, item.referenced) if label is not None]
        labelled = any(label.scores is not None or label.preference is not None for label in labels)
        drawn = uniform_hash(self.options.seed, item.sample.id, "swap while training", epoch) < self.options.swap_prob
        if not drawn or not labelled or len(item.sample.answers) != 2:
            return item
        pair = swap_answers(item).pair
        self.counts.swapped += pair.swapped
        self.counts.not_swapped += not pair.swapped
        return pair


def _no_verdict(sample: Sample, label: Label, reason: str) -> str:
    if len(sample.answers) != 2:
        return "not a pair"
    return "" if label.winner in (1, 2) and reason else "a tie" if label.winner == "tie" else "no reason"
