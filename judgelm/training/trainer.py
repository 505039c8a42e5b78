"""TRL's supervised trainer, as a judge's rows need it."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from transformers import Trainer
from transformers.utils import is_liger_kernel_available  # type: ignore[attr-defined]  # re-exported implicitly
from transformers.utils.generic import is_flash_attention_requested
from trl import SFTTrainer  # type: ignore[attr-defined]  # trl loads its names lazily, unseen by mypy
from trl.kernels.chunked_logprob import _use_triton
from trl.trainer import utils as trl_utils

from judgelm.errors import ConfigError, MissingExtraError
from judgelm.training.config import JudgeArguments
from judgelm.training.nan_guard import NanGuard
from judgelm.training.rows.records import IGNORED
from judgelm.training.save_dtype import SavesInDtype
from judgelm.training.validation_judging import JudgesWhenEvaluating

_SCORE_LINE = "score_line"


class PassesOnce(Trainer):
    """To be put before a trainer's class whose rows are those of several epochs, one behind another.

    Attributes:
        epochs_in_data: how many; the logs' `epoch` counts them rather than passages through the data.
    """

    epochs_in_data: int = 1

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log, with `epoch` in passages through the user's files."""
        passed = self.state.epoch
        if passed is not None:
            self.state.epoch = passed * self.epochs_in_data
        super().log(logs, start_time)
        self.state.epoch = passed


class JudgeTrainer(JudgesWhenEvaluating, NanGuard, SavesInDtype, PassesOnce, SFTTrainer):
    """An `SFTTrainer` for a judge's rows.

    Args:
        args: as `SFTTrainer` takes them.
        score_weight: weight of a score line's token in the loss, where a reason's has 1. The loss of a step is
            sum(weight * nll) / sum(weight) over the tokens of all its rows, whichever process and pass they are in.
        options: as `SFTTrainer` takes them.
    """

    def __init__(self, *args: Any, score_weight: float = 1.0, **options: Any) -> None:
        super().__init__(*args, **options)
        # Only their ratio matters; TRL divides by 1 at least, so neither may be less.
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
        """TRL's loss, of weighted log-probabilities where tokens have weights."""
        forward = model
        if _SCORE_LINE in inputs:
            weights = self._token_weights(inputs)
            if num_items_in_batch is None:  # TRL then divides by the number of tokens
                weights = weights / weights[weights > 0].mean()
            del inputs[_SCORE_LINE]
            forward = _weighted(model, weights)
        return super().compute_loss(forward, inputs, return_outputs, num_items_in_batch=num_items_in_batch)

    def _get_num_items_in_batch(self, batch_samples: list[dict[str, Tensor]], device: torch.device) -> Any:
        """What the step's summed loss is divided by: its tokens, or their weights."""
        if not batch_samples or _SCORE_LINE not in batch_samples[0]:
            return super()._get_num_items_in_batch(batch_samples, device)
        total = torch.stack([self._token_weights(batch).sum() for batch in batch_samples]).sum().to(device)
        return self.accelerator.gather(total).sum() if self.args.average_tokens_across_devices else total

    def _token_weights(self, batch: dict[str, Tensor]) -> Tensor:
        """Shape (rows, tokens - 1), one place ahead as labels are; 0 where there is no loss."""
        score, reason = self._weights
        counted = batch["labels"][:, 1:] != IGNORED
        return counted * torch.where(batch[_SCORE_LINE][:, 1:], score, reason)


def score_labels_alone() -> None:
    """Have TRL's output layer compute the vocabulary of labelled positions alone on every device it trains judges on.

    TRL does so where it has Triton, and elsewhere for all positions: a device that compiles would compile anew for each
    number of labels. A CPU, or CUDA without Triton, does not. The loss, its gradients and the metrics are the same; a
    batch without a label still passes every layer, so that processes which share weights stay in step.
    """
    trl_utils._use_triton = _scores_labels_alone  # type: ignore[attr-defined]  # TRL imports it there


def _scores_labels_alone(device: torch.device) -> bool:
    return device.type in ("cpu", "cuda") or bool(_use_triton(device))


class ScoreLineCollator:
    """A collator of TRL, and where in its batches the score lines stand: `score_line`, of the labels' shape.

    Args:
        collator: TRL's, which pads rows at their ends or lays them one behind another.
        tokenizer: the rows'.
    """

    def __init__(self, collator: Callable[[list[dict[str, Any]]], dict[str, Any]], tokenizer: Any) -> None:
        self._collator = collator
        self._tokenizer = tokenizer

    def __call__(self, examples: list[dict[str, Any]]) -> dict[str, Any]:
        """The batch of some rows."""
        batch = self._collator(examples)
        marks = torch.zeros_like(batch["labels"], dtype=torch.bool)
        padded = "attention_mask" in batch
        begin = 0
        for example in examples:
            labels = example["labels"]
            first = next((place for place, label in enumerate(labels) if label != IGNORED), len(labels))
            length = score_line_tokens(labels[first:], self._tokenizer)
            marks.view(-1)[begin + first : begin + first + length] = True
            begin += marks.shape[1] if padded else len(labels)
        return batch | {_SCORE_LINE: marks}


def score_line_tokens(target: Sequence[int], tokenizer: Any) -> int:
    """How many tokens of a target are its score line: up to the first line's end and with it."""
    ends = range(1, len(target) + 1)
    return next((end for end in ends if "\n" in tokenizer.decode(target[:end], skip_special_tokens=False)), len(target))


def _weighted(model: Any, weights: Tensor) -> Callable[..., Any]:
    """The model's forward pass, with the log-probability of each token multiplied by its weight."""

    def forward(**inputs: Any) -> Any:
        outputs = model(**inputs)
        outputs.log_probs = outputs.log_probs * weights
        return outputs

    return forward


def check_trainable(judge: JudgeArguments, sft: Any) -> None:
    """Refuse options of the loss and its kernels that cannot be, before anything is loaded.

    Raises:
        ConfigError: a score weight that is no weight, or with a loss that has none; Liger kernels are not installed.
    """
    if not 0 < judge.score_weight < float("inf"):
        raise ConfigError(f"score_weight is {judge.score_weight}; it is a number above 0, and 1 weighs nothing")
    if judge.score_weight != 1:
        if judge.loss_on != "completion":
            raise ConfigError(f"score_weight needs loss_on: completion, as loss_on {judge.loss_on!r} has no score line")
        if sft.loss_type != "nll" or sft.label_smoothing_factor:
            raise ConfigError(
                f"score_weight weighs the plain loss; loss_type is {sft.loss_type!r} and label_smoothing_factor "
                f"{sft.label_smoothing_factor}: use nll and 0, or score_weight 1"
            )
    if sft.use_liger_kernel and not is_liger_kernel_available():
        raise MissingExtraError(
            "use_liger_kernel needs liger-kernel and a GPU; run: pip install liger-kernel, or set it to false"
        )


def without_padding(sft: Any) -> bool:
    """Whether rows are laid one behind another: where asked for, and where the attention kernel takes any lengths.

    Args:
        sft: TRL's `SFTConfig`, with the attention that the model is loaded with.
    """
    attention = sft.model_init_kwargs["attn_implementation"]
    return bool(sft.padding_free or is_flash_attention_requested(requested_attention_implementation=attention))
