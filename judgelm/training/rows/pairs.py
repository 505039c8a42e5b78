"""Rows of labelled pairs for `train/preference.py`, `train/reward.py`, and `train/grpo.py`."""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from judgelm.data.labelled_pair import LabelledPair, preference_of, score_line, scores_by_preference
from judgelm.errors import InputError
from judgelm.prompts.conversation import reward_prompt
from judgelm.prompts.truncation import TokenizedPrompt
from judgelm.records import Label, Prompt, Sample, Unparsed, failure_name
from judgelm.training.rows.builder import RowOptions
from judgelm.training.rows.sft import SFTRowBuilder


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRowOptions(RowOptions):
    """Options for building pair rows. Templates that show a single answer ignore `both_orders`."""

    both_orders: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class PairRow:
    """One training row.

    Attributes:
        prompt_ids: tokens of the given order, or of the first answer.
        second_ids: tokens of the swapped order, if any, or of the second answer.
        preference: P(first answer of `prompt_ids` is better).
        first_right: the first answer's score, rescaled to the range 0 to 1, or NaN; likewise `second_right`.
    """

    sample_id: str
    prompt_ids: NDArray[np.int32]
    second_ids: NDArray[np.int32]
    preference: float
    first_right: float
    second_right: float


class PairRowBuilder(SFTRowBuilder):
    """Builds the rows for `train/preference.py`."""

    row: ClassVar[type] = PairRow
    options_type = PairRowOptions
    options: PairRowOptions

    def _row(self, item: LabelledPair, epoch: int) -> Any | str:
        if len(item.sample.answers) != 2:
            return "not a pair"
        pair = self._swap(item, epoch)
        label, reference = self._choose(pair.sample, pair.plain, self._scored(pair.referenced), epoch)
        if label is None or label.preference is None:
            return "no preference, scores or winner"
        # judges that are scored by a verdict word do not write a score line
        scores = () if self._template.reads_words else scores_by_preference(label.preference, self.options.scale)
        line = score_line(scores) + "\n" if scores else ""
        tokens = [self._tokens(prompt, line, "") for prompt in self._prompts(pair.sample, reference)]
        if unfit := next((each for each in tokens if isinstance(each, Unparsed)), None):
            return failure_name(unfit.code)
        prompts = [each[0] for each in tokens if not isinstance(each, Unparsed)]
        longest = next((prompt for prompt in prompts if prompt.truncations), prompts[0])
        self._count(pair.sample, item.source, reference, longest, with_reason=False)
        self.counts.scores.update(scores)
        ids = [np.array(prompt.ids, dtype=np.int32) for prompt in prompts]
        right = self._right(label)
        return PairRow(
            sample_id=pair.sample.id,
            prompt_ids=ids[0],
            second_ids=ids[1] if len(ids) > 1 else np.array([], dtype=np.int32),
            preference=label.preference,
            first_right=right[0],
            second_right=right[1],
        )

    def _prompts(self, sample: Sample, reference: str | None) -> list[Prompt]:
        orders: list[tuple[int, ...]] = [(0, 1), (1, 0)] if self.options.both_orders else [(0, 1)]
        orders = [(0,), (1,)] if self._template.reads_alone else orders
        prompts = [self._template.render(sample, order, reference, scale=self.options.scale) for order in orders]
        prefill = self._template.prefill
        return [replace(prompt, prefill=prefill) if prefill else prompt for prompt in prompts]

    def _right(self, label: Label) -> tuple[float, float]:
        low, high = self.options.scale
        scores = label.scores or (math.nan, math.nan)
        first, second = ((score - low) / (high - low) if low <= score <= high else math.nan for score in scores)
        return first, second

    def _scored(self, label: Label | None) -> Label | None:
        """Return the label with its preference, but without its reason, which could prevent swapping."""
        preference = None if label is None else preference_of(label)
        return None if label is None or preference is None else replace(label, preference=preference, reason=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardRowOptions(PairRowOptions):
    """Options for building two chats from a labelled pair."""

    margin_weight: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class RewardRow:
    """Chats with the better and worse answers, and the margin, which is margin_weight * (2 P(better) - 1)."""

    sample_id: str
    chosen_ids: NDArray[np.int32]
    rejected_ids: NDArray[np.int32]
    margin: float


class RewardRowBuilder(PairRowBuilder):
    """Builds the rows for `train/reward.py`, with all turns of a dialogue."""

    row: ClassVar[type] = RewardRow
    options_type = RewardRowOptions
    options: RewardRowOptions

    def _row(self, item: LabelledPair, epoch: int) -> Any | str:
        label = item.plain or item.referenced
        if len(item.sample.answers) != 2:
            return "not a pair"
        if label is None or label.preference is None:
            return "no preference, scores or winner"
        if label.preference == 0.5:
            return "a tie"
        try:
            chats = [self._truncator.truncate(reward_prompt(item.sample, index), 1) for index in (0, 1)]
        except InputError:
            return "turns that are no dialogue"
        if unfit := next((chat for chat in chats if isinstance(chat, Unparsed)), None):
            return failure_name(unfit.code)
        first, second = (chat for chat in chats if not isinstance(chat, Unparsed))
        if first.ids == second.ids:
            return failure_name("equal_after_cut")
        self._count(item.sample, item.source, None, first if first.truncations else second, with_reason=False)
        chosen, rejected = (first, second) if label.preference > 0.5 else (second, first)
        return RewardRow(
            sample_id=item.sample.id,
            chosen_ids=np.array(chosen.ids, dtype=np.int32),
            rejected_ids=np.array(rejected.ids, dtype=np.int32),
            margin=self.options.margin_weight * abs(2 * label.preference - 1),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingPromptOptions(RowOptions):
    """Options for building prompts. `reply_tokens` is the number of tokens reserved for the reply."""

    reply_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgingPrompts:
    """Prompts in both orders as strings, and the position of the better answer in the given order."""

    sample_id: str
    prompt: str
    swapped: str
    winner: int


class JudgingPromptBuilder(SFTRowBuilder):
    """Builds the rows for `train/grpo.py`."""

    row: ClassVar[type] = JudgingPrompts
    options_type = JudgingPromptOptions
    options: JudgingPromptOptions

    def _row(self, item: LabelledPair, epoch: int) -> Any | str:
        if len(item.sample.answers) != 2:
            return "not a pair"
        label, reference = self._choose(item.sample, item.plain, item.referenced, epoch)
        if label is None or label.winner not in (1, 2):
            return "no winner" if label is None or label.winner is None else "a tie"
        swapped = replace(item.sample, answers=item.sample.answers[::-1])
        prompts = [self._prompt_text(sample, reference) for sample in (item.sample, swapped)]
        if unfit := next((prompt for prompt in prompts if isinstance(prompt, Unparsed)), None):
            return failure_name(unfit.code)
        first, second = (prompt for prompt in prompts if not isinstance(prompt, Unparsed))
        self._count(item.sample, item.source, reference, first, with_reason=True)  # the judge writes a reason itself
        winner = int(label.winner)
        return JudgingPrompts(sample_id=item.sample.id, prompt=first.text, swapped=second.text, winner=winner)

    def _prompt_text(self, sample: Sample, reference: str | None) -> TokenizedPrompt | Unparsed:
        return self._truncator.truncate(self._prompt(sample, reference), self.options.reply_tokens)

    def _scored(self, label: Label | None) -> Label | None:
        return None if label is None else replace(label, reason=None)
