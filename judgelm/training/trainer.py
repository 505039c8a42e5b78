"""The trainer of `train/sft.py`: TRL's supervised one, with weights on score lines."""

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers.utils.generic import is_flash_attention_requested
from trl import SFTTrainer  # type: ignore[attr-defined]  # trl loads its names lazily, unseen by mypy
from trl.kernels.chunked_logprob import _use_triton
from trl.trainer import utils as trl_utils

from judgelm.engines.gguf import gguf_note
from judgelm.training.attention import Attention
from judgelm.training.config import processes, rows_per_step
from judgelm.training.lora_on_cpu import speed_up_lora
from judgelm.training.nan_guard import NanGuardMixin
from judgelm.training.resume import last_step
from judgelm.training.rows.dataset import EpochRows
from judgelm.training.rows.records import IGNORED
from judgelm.training.save import SaveDtypeMixin
from judgelm.training.schedule import SinglePassMixin
from judgelm.training.validation.evaluator import ValidationMixin

_SCORE_LINE = "score_line"


class JudgeTrainer(ValidationMixin, NanGuardMixin, SaveDtypeMixin, SinglePassMixin, SFTTrainer):
    """An `SFTTrainer` for a judge's rows.

    The rows bring their own labels and lie within the window, so TRL cuts nothing, and to rows of tokens it adds no
    end-of-sequence token. Without padding they are laid one behind another: where `padding_free` asks for it, and
    where the attention kernel takes any lengths.

    Args:
        model: the base, loaded.
        args: TRL's `SFTConfig`.
        score_weight: weight of a score line's token in the loss, where a reason's has 1. The loss of a step is
            sum(weight * nll) / sum(weight) over the tokens of all its rows, whichever process and pass they are in.
        options: `rows` (`EpochRows`), `validation`, `patience`, and what `SFTTrainer` takes.
    """

    def __init__(self, *, model: Any, args: Any, score_weight: float = 1.0, **options: Any) -> None:
        args.completion_only_loss = False
        args.padding_free = is_padding_free(args.padding_free, model.config._attn_implementation)
        skip_unlabelled_logits()
        super().__init__(model=model, args=args, **options)
        speed_up_lora(self)
        # Only their ratio matters; TRL 1.16 divides by 1 at least, so neither may be less.
        self._weights = (score_weight, 1.0) if score_weight > 1 else (1.0, 1 / score_weight)
        if score_weight != 1:
            self.data_collator = ScoreLineCollator(self.data_collator, self.processing_class)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """TRL's loss, from weighted log-probabilities where tokens have weights."""
        forward = model
        if _SCORE_LINE in inputs:
            weights = self._token_weights(inputs)
            if num_items_in_batch is None:  # TRL then divides by the number of tokens
                weights = weights / weights[weights > 0].mean()
            del inputs[_SCORE_LINE]
            forward = _weighted(model, weights)
        return super().compute_loss(forward, inputs, return_outputs, num_items_in_batch=num_items_in_batch)

    def _get_num_items_in_batch(self, batch_samples: list[dict[str, Tensor]], device: torch.device) -> Any:
        """The divisor of the step's summed loss: its tokens, or their weights."""
        if not batch_samples or _SCORE_LINE not in batch_samples[0]:
            return super()._get_num_items_in_batch(batch_samples, device)
        total = torch.stack([self._token_weights(batch).sum() for batch in batch_samples]).sum().to(device)
        return self.accelerator.gather(total).sum() if self.args.average_tokens_across_devices else total

    def _token_weights(self, batch: dict[str, Tensor]) -> Tensor:
        """Shape (rows, tokens - 1), shifted by one like the labels; 0 where there is no loss."""
        score, reason = self._weights
        counted = batch["labels"][:, 1:] != IGNORED
        return counted * torch.where(batch[_SCORE_LINE][:, 1:], score, reason)


def is_padding_free(requested: bool, attention: str) -> bool:
    """True if rows are concatenated without padding: on request, and if the attention kernel takes any lengths."""
    return bool(requested or is_flash_attention_requested(requested_attention_implementation=attention))


def skip_unlabelled_logits() -> None:
    """Make TRL compute logits of labelled positions only, on a CPU and on CUDA without Triton too.

    TRL 1.16 does so only with Triton, since a device that compiles would compile again for each number of labels. Loss,
    gradients and metrics are the same; a batch without a label still passes every layer, so that processes which share
    weights stay in step.
    """
    trl_utils._use_triton = _skips_unlabelled  # type: ignore[attr-defined]  # TRL imports it there


def _skips_unlabelled(device: torch.device) -> bool:
    return device.type in ("cpu", "cuda") or bool(_use_triton(device))


class ScoreLineCollator:
    """A collator that adds `score_line` to TRL's batches: a mask of the score lines, of the labels' shape.

    Args:
        collator: TRL's, which pads rows at their ends or lays them one behind another.
        tokenizer: of the rows.
    """

    def __init__(self, collator: Callable[[list[dict[str, Any]]], dict[str, Any]], tokenizer: Any) -> None:
        self._collator = collator
        self._tokenizer = tokenizer

    def __call__(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """Collate rows into a batch."""
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
    """Number of tokens of a target's score line, its line end included."""
    ends = range(1, len(target) + 1)
    return next((end for end in ends if "\n" in tokenizer.decode(target[:end], skip_special_tokens=False)), len(target))


def _weighted(model: Any, weights: Tensor) -> Callable[..., Any]:
    """The model's forward pass, with the log-probability of each token multiplied by its weight."""

    def forward(**inputs: Any) -> Any:
        outputs = model(**inputs)
        outputs.log_probs = outputs.log_probs * weights
        return outputs

    return forward


def run_summary(trainer: Any, evaluation: EpochRows | None, attention: Attention, notes: Iterable[str]) -> list[str]:
    """Lines for the user before training: rows, steps, attention, evaluation and notes."""
    args = trainer.args
    replies = getattr(args, "num_generations", 1)
    rows, passes, devices = args.per_device_train_batch_size, args.gradient_accumulation_steps, processes(args)
    padding = "no padding" if getattr(args, "padding_free", False) else "padded rows"
    return [
        f"train: {trainer.rows.counts}",
        f"steps: {last_step(trainer)} of {rows_per_step(args)} rows (per device {rows} x accumulation {passes} x "
        f"processes {devices}{f', {replies} replies to each row' if replies > 1 else ''})",
        f"attention: {attention.note}; {padding}",
        *([f"eval: {evaluation.counts}"] if evaluation else []),
        *([f"eval: {trainer.validation.pairs}"] if trainer.validation else []),
        *filter(None, [gguf_note(trainer.model.config._name_or_path), *notes]),
    ]
