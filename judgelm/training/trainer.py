"""Trainers on a judge's rows: one pass in sequence, NaN guard, dtype of saved weights, and TRL's supervised trainer.

A trainer prepares its data once, while swaps and dropped references are drawn again in every epoch. So the rows of all
epochs are written one behind another, and the trainer passes through them once, in sequence.
"""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from transformers import EarlyStoppingCallback, PreTrainedModel, Trainer, TrainingArguments
from transformers.trainer_utils import EvalLoopOutput, IntervalStrategy, SaveStrategy
from trl.kernels.chunked_logprob import _use_triton
from trl.trainer import utils as trl_utils

from judgelm.errors import TrainingError
from judgelm.training.arguments import rows_per_step
from judgelm.training.live_model import preserve_random_state
from judgelm.training.rows.dataset import EpochRows, Schedule
from judgelm.training.validation import ValidationJudge


def use_single_pass(args: TrainingArguments, schedule: Schedule, *, epochs: int, rows_per_epoch: int) -> None:
    """Make the trainer pass once, in sequence, through rows of several epochs, and save and evaluate at epochs' ends.

    Args:
        args: the trainer's; changed in place.
        schedule: the configured one.
        epochs: whole epochs in the data.
        rows_per_epoch: of the first.
    """
    args.train_sampling_strategy = "sequential"
    args.num_train_epochs = schedule.epochs / epochs
    steps = -(-rows_per_epoch // schedule.batch)
    if args.save_strategy == SaveStrategy.EPOCH:
        args.save_strategy, args.save_steps = SaveStrategy.STEPS, steps
    if args.eval_strategy == IntervalStrategy.EPOCH:
        args.eval_strategy, args.eval_steps = IntervalStrategy.STEPS, steps
        args.eval_delay *= steps
    if args.logging_strategy == IntervalStrategy.EPOCH:
        args.logging_strategy, args.logging_steps = IntervalStrategy.STEPS, steps


class JudgeMixin(Trainer):
    """Placed before a trainer's class: trains on a judge's rows, judges at evaluations, stops on NaN, saves a judge.

    It trains once, in sequence, on rows of several epochs, one behind another. Its evaluations judge pairs and leave
    every random state unchanged.

    Every optimiser step's loss is checked before the last of its backward passes, so before the weights change, and
    by all processes together: one number goes to the host. The weights are checked before they are saved, since
    gradients can break where the loss does not. transformers 5.x would continue: it leaves such losses out of its logs,
    and replaces good checkpoints by broken ones.

    Checkpoints keep the float32 master weights of the training; within `saving_in` whole models are written in another
    dtype. An adapter is small and is written as trained.

    Args:
        args: the trainer's.
        rows: `EpochRows`, the training rows.
        validation: judges pairs at every evaluation; None evaluates the loss only.
        patience: evaluations without improvement after which training stops; None for no limit.
        options: as the trainer takes them.
    """

    model: Any
    train_dataset: Any
    current_gradient_accumulation_steps: int
    _loss_so_far: torch.Tensor | float = 0.0
    _last_step: dict[str, Any] | None = None
    _save_dtype: torch.dtype | None = None

    def __init__(
        self,
        *,
        args: Any,
        rows: EpochRows,
        validation: ValidationJudge | None = None,
        patience: int | None = None,
        **options: Any,
    ) -> None:
        use_single_pass(args, rows.schedule, epochs=rows.epochs, rows_per_epoch=rows.per_epoch)
        args.max_length = None  # the rows are within the window; TRL 1.16 would cut them again
        args.model_init_kwargs = None  # `load_base_model` has used them; TRL 1.16 warns if it is given both
        super().__init__(args=args, train_dataset=rows.dataset, **options)
        self.rows = rows
        self.validation = validation
        self._patience = patience
        if patience is not None:
            self.add_callback(EarlyStoppingCallback(patience))
            self.args.restore_callback_states_from_checkpoint = True  # a resumed run continues to count

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log, with `epoch` in passes through the user's files rather than through the data."""
        passed = self.state.epoch
        if passed is not None:
            self.state.epoch = passed * self.rows.epochs
        super().log(logs, start_time)
        self.state.epoch = passed

    def evaluation_loop(self, *args: Any, **options: Any) -> EvalLoopOutput:
        """Return the eval loss and the metrics of the judging, for callbacks and the choice of checkpoints."""
        with preserve_random_state():
            output = super().evaluation_loop(*args, **options)
            if self.validation is None:
                return output
            judged = self.validation.metrics(self, options.get("metric_key_prefix", "eval"))
        return output._replace(metrics=(output.metrics or {}) | judged)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Compute the loss of a micro-batch.

        Raises:
            TrainingError: the loss of the step that it ends is not finite; `nan_step_N.json` lists its rows.
        """
        loss: Any = super().compute_loss(model, inputs, return_outputs, num_items_in_batch=num_items_in_batch)
        if not self.model.training:
            return loss
        passes = self.current_gradient_accumulation_steps if num_items_in_batch is None else 1
        self._loss_so_far = self._loss_so_far + loss.detach() / passes  # a sum over the step's items is divided already
        if self.accelerator.sync_gradients:
            mean = self.accelerator.reduce(self._loss_so_far, reduction="mean").item()
            self._loss_so_far = 0.0
            rate = float(self._get_learning_rate())
            self._last_step = {"step": self.state.global_step, "loss": mean, "learning_rate": rate}
            if not math.isfinite(mean):
                self._stop("loss", **self._last_step)
        return loss

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model, as a checkpoint or at the end.

        Raises:
            TrainingError: trained weights are not finite; nothing is written.
        """
        if self._last_step is not None and not self._weights_are_finite():
            self._stop("weights", **self._last_step)
        super().save_model(output_dir, _internal_call)

    @contextmanager
    def saving_in(self, dtype: torch.dtype | None) -> Iterator[None]:
        """Write models that are saved within the context in this dtype; None leaves them as they are."""
        self._save_dtype = dtype
        try:
            yield
        finally:
            self._save_dtype = None

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        """Write model, configuration and tokenizer; `state_dict` holds gathered weights."""
        dtype, model = self._save_dtype, self.model
        if dtype is None or not isinstance(model, PreTrainedModel) or getattr(model, "hf_quantizer", None) is not None:
            super()._save(output_dir, state_dict)
            return
        weights = model.state_dict() if state_dict is None else state_dict
        exempt = {*(model._keep_in_fp32_modules_strict or ()), *(model._keep_in_fp32_modules or ())}
        super()._save(output_dir, cast_weights(weights, dtype, exempt))
        _write_dtype(Path(output_dir or str(self.args.output_dir)) / "config.json", dtype)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Save a checkpoint, with the number of tokens so far, which TRL 1.16 logs and would count anew."""
        stored: Any = self.state.stateful_callbacks
        stored[_NUM_TOKENS] = getattr(self, "_total_train_tokens", 0)
        super()._save_checkpoint(model, trial)

    def _load_callback_state(self) -> None:
        """Restore a checkpoint's counts of tokens and evaluations, with the patience of this run."""
        stored: Any = self.state.stateful_callbacks
        self._total_train_tokens = stored.pop(_NUM_TOKENS, 0)
        super()._load_callback_state()
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, EarlyStoppingCallback) and self._patience is not None:
                callback.early_stopping_patience = self._patience

    def _weights_are_finite(self) -> bool:
        finite = torch.ones((), dtype=torch.int, device=self.accelerator.device)
        for weight in self.model.parameters():
            if weight.requires_grad:
                part = getattr(weight, "ds_tensor", weight)  # ZeRO-3 stores a process's share there
                part = part.to_local() if isinstance(part, DTensor) else part
                finite = finite & torch.isfinite(part).all().to(finite.device)
        return bool(self.accelerator.gather(finite).all().item())

    def _stop(self, broken: Literal["loss", "weights"], *, step: int, loss: float, learning_rate: float) -> None:
        """Write the step's rows, then raise on all processes; `step` is the number of steps before it."""
        file = Path(str(self.args.output_dir)) / f"nan_step_{step}.json"
        if self.is_world_process_zero():
            batch = rows_per_step(self.args)
            rows = range(step * batch, min((step + 1) * batch, len(self.train_dataset)))
            report = {
                "step": step,
                "loss": loss if math.isfinite(loss) else str(loss),  # JSON has no NaN
                "learning_rate": learning_rate,
                "what": broken,
                "sample_ids": self.train_dataset.with_format(None).select(rows)["sample_id"][:],
            }
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        self.accelerator.wait_for_everyone()
        precision = ", use bf16 instead of fp16, whose largest number is 65504" if self.args.fp16 else ""
        finding = f"the loss is {loss}" if broken == "loss" else "weights are not finite"
        raise TrainingError(
            f"{file}: in step {step} (the first is 0) {finding}, so training stops; lower learning_rate "
            f"({learning_rate:g}), check the rows that the file lists{precision}, and start again or "
            "resume from the last checkpoint (resume_from_checkpoint)"
        )


_NUM_TOKENS = "num_tokens"


def skip_unlabelled_logits() -> None:
    """Make TRL compute logits of labelled positions only, on a CPU and on CUDA without Triton too.

    TRL 1.16 does so only with Triton, since a device that compiles would compile again for each number of labels. Loss,
    gradients and metrics are the same; a batch without a label still passes every layer, so that processes which share
    weights stay in step.
    """
    trl_utils._use_triton = _skips_unlabelled  # type: ignore[attr-defined]  # TRL imports it there


def _skips_unlabelled(device: torch.device) -> bool:
    return device.type in ("cpu", "cuda") or bool(_use_triton(device))


def cast_weights(weights: Mapping[str, Tensor], dtype: torch.dtype, exempt: set[str]) -> dict[str, Tensor]:
    """Cast floating-point weights to a dtype, on the CPU; shared ones stay shared.

    Args:
        weights: by name.
        dtype: the new one.
        exempt: names of modules that keep their dtype: the model's authors keep them in float32.
    """
    by_storage: dict[tuple[Any, ...], Tensor] = {}
    cast = {}
    for name, tensor in weights.items():
        if not tensor.is_floating_point() or not exempt.isdisjoint(name.split(".")):
            cast[name] = tensor
            continue
        key = (tensor.device, tensor.data_ptr(), tensor.shape, tensor.stride())
        if key not in by_storage:
            by_storage[key] = tensor.to("cpu", dtype)
        cast[name] = by_storage[key]
    return cast


def _write_dtype(path: Path, dtype: torch.dtype) -> None:
    """Write the dtype into the model's configuration: transformers 5.x writes that of the weights in memory."""
    config = json.loads(path.read_text(encoding="utf-8"))
    for part in (config, *(value for value in config.values() if isinstance(value, dict))):
        if "dtype" in part:
            part["dtype"] = str(dtype).removeprefix("torch.")
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    partial.replace(path)
