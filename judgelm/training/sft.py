"""Supervised fine-tuning of judges, for `train/sft.py`."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from trl import SFTConfig, SFTTrainer  # type: ignore[attr-defined]  # trl loads its names lazily, which mypy cannot see

from judgelm.training.arguments import argument
from judgelm.training.padding import settle_padding
from judgelm.training.precision import PrecisionMixin
from judgelm.training.rows.builder import IGNORED
from judgelm.training.trainer import JudgeMixin, skip_unlabelled_logits


@dataclass(kw_only=True)
class JudgeSFTConfig(PrecisionMixin, SFTConfig):  # type: ignore[misc]  # untyped in trl
    """TRL's `SFTConfig`, with `bf16` off by default on a CPU that emulates bfloat16."""

    padding_free: bool | None = argument(  # type: ignore[assignment]  # TRL does not allow None
        "Concatenate rows instead of padding them. Default: true if the attention implementation supports it.",
        default=None,
    )


_SCORE_LINE = "score_line"


class JudgeTrainer(JudgeMixin, SFTTrainer):
    """An `SFTTrainer` for judge rows.

    With `loss_average: token`, the loss is sum(weight * nll) / sum(weight) over a step; `row` averages over each row
    first. The weight is `score_weight` for tokens of the score line, and 1 for all others.
    """

    def __init__(
        self, *, model: Any, args: Any, score_weight: float = 1.0, loss_average: str = "token", **options: Any
    ) -> None:
        args.completion_only_loss = False
        self.padding = settle_padding(model, args)
        skip_unlabelled_logits()
        super().__init__(model=model, args=args, **options)
        # only the ratio matters; TRL 1.16 divides by at least 1, so neither weight may be below 1
        self._weights = (score_weight, 1.0) if score_weight > 1 else (1.0, 1 / score_weight)
        self._by_row = loss_average == "row"
        if score_weight != 1:
            self.data_collator = ScoreLineCollator(self.data_collator, self.processing_class)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """Return TRL's loss, computed from weighted log-probabilities if tokens have weights."""
        forward = model
        if self._is_weighted(inputs):
            weights = self._token_weights(inputs)
            if num_items_in_batch is None:  # in this case, TRL divides by the number of tokens
                weights = weights / weights[weights > 0].mean()
            inputs.pop(_SCORE_LINE, None)
            forward = _weighted(model, weights)
        return super().compute_loss(forward, inputs, return_outputs, num_items_in_batch=num_items_in_batch)

    def _get_num_items_in_batch(self, batch_samples: list[dict[str, Tensor]], device: torch.device) -> Any:
        if not batch_samples or not self._is_weighted(batch_samples[0]):
            return super()._get_num_items_in_batch(batch_samples, device)
        total = torch.stack([self._token_weights(batch).sum() for batch in batch_samples]).sum().to(device)
        return self.accelerator.gather(total).sum() if self.args.average_tokens_across_devices else total

    def _token_weights(self, batch: dict[str, Tensor]) -> Tensor:
        """Return the weights of the shifted labels, shape (rows, tokens - 1)."""
        weights = (batch["labels"][:, 1:] != IGNORED).float()
        if _SCORE_LINE in batch:
            weights = weights * torch.where(batch[_SCORE_LINE][:, 1:], *self._weights)
        if not self._by_row:
            return weights
        if (row := batch.get("seq_idx")) is None:
            return weights / weights.sum(1, keepdim=True).clamp(min=1)
        row = row[:, 1:].long()  # concatenated rows
        sums = torch.zeros_like(weights).scatter_add(1, row, weights)
        return weights / sums.gather(1, row).clamp(min=1)

    def _is_weighted(self, batch: Mapping[str, Any]) -> bool:
        return self._by_row or _SCORE_LINE in batch


class ScoreLineCollator:
    """Adds `score_line`, a mask of the score lines, to TRL's batches."""

    def __init__(self, collator: Callable[[list[dict[str, Any]]], dict[str, Any]], tokenizer: Any) -> None:
        self._collator = collator
        self._tokenizer = tokenizer

    def __call__(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """Collate rows."""
        batch = self._collator(examples)
        marks = torch.zeros_like(batch["labels"], dtype=torch.bool)
        padded = "attention_mask" in batch
        begin = 0
        for example in examples:
            labels = example["labels"]
            first = next((index for index, label in enumerate(labels) if label != IGNORED), len(labels))
            length = score_line_tokens(labels[first:], self._tokenizer)
            marks.view(-1)[begin + first : begin + first + length] = True
            begin += marks.shape[1] if padded else len(labels)
        return batch | {_SCORE_LINE: marks}


def score_line_tokens(target: Sequence[int], tokenizer: Any) -> int:
    """Return the number of tokens in the score line, including the newline."""
    ends = range(1, len(target) + 1)
    return next((end for end in ends if "\n" in tokenizer.decode(target[:end], skip_special_tokens=False)), len(target))


def _weighted(model: Any, weights: Tensor) -> Callable[..., Any]:
    def forward(**inputs: Any) -> Any:
        outputs = model(**inputs)
        outputs.log_probs = outputs.log_probs * weights
        return outputs

    return forward
