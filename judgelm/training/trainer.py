"""Code shared by all trainers: a single pass over the rows, a NaN guard, and the dtype of saved weights."""

import json
import math
from collections.abc import Mapping
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
    """Make the trainer pass once over all epochs, because each epoch has different rows."""
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
    """Mixin for training on judge rows. It runs the judge at each evaluation, stops on NaN, and saves a judge.

    All processes check the loss of a step before its last backward pass, and the trained weights before saving, because
    transformers 5.x would overwrite good checkpoints.
    """

    model: Any
    train_dataset: Any
    current_gradient_accumulation_steps: int
    _loss_so_far: torch.Tensor | float = 0.0
    _last_step: dict[str, Any] | None = None
    save_dtype: torch.dtype | None = None

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
        args.max_length = None  # rows already fit the context window; TRL 1.16 would truncate them again
        args.model_init_kwargs = (
            None  # used by `load_base_model`; TRL 1.16 warns if they are passed along with a loaded model
        )
        super().__init__(args=args, train_dataset=rows.dataset, **options)
        self.rows = rows
        self.validation = validation
        self._patience = patience
        if patience is not None:
            self.add_callback(EarlyStoppingCallback(patience))
            self.args.restore_callback_states_from_checkpoint = True  # a resumed run keeps its count

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        return dataset  # token rows

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """Log with `epoch` as the number of passes over the user's files."""
        passed = self.state.epoch
        if passed is not None:
            self.state.epoch = passed * self.rows.epochs
        super().log(logs, start_time)
        self.state.epoch = passed

    def evaluation_loop(self, *args: Any, **options: Any) -> EvalLoopOutput:
        """Return the eval loss and the judging metrics."""
        with preserve_random_state():
            output = super().evaluation_loop(*args, **options)
            if self.validation is None:
                return output
            judged = self.validation.metrics(self, options.get("metric_key_prefix", "eval"))
        return output._replace(metrics=(output.metrics or {}) | judged)

    def compute_loss(
        self, model: Any, inputs: dict[str, Any], return_outputs: bool = False, num_items_in_batch: Any = None
    ) -> Any:
        """Compute the loss of a micro-batch, and stop if the loss of the step is not finite."""
        loss: Any = super().compute_loss(model, inputs, return_outputs, num_items_in_batch=num_items_in_batch)
        if not self.model.training:
            return loss
        passes = self.current_gradient_accumulation_steps if num_items_in_batch is None else 1
        self._loss_so_far = self._loss_so_far + loss.detach() / passes  # already divided if num_items_in_batch is set
        if self.accelerator.sync_gradients:
            mean = self.accelerator.reduce(self._loss_so_far, reduction="mean").item()
            self._loss_so_far = 0.0
            rate = float(self._get_learning_rate())
            self._last_step = {"step": self.state.global_step, "loss": mean, "learning_rate": rate}
            if not math.isfinite(mean):
                self._stop("loss", **self._last_step)
        return loss

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model, or stop if its trained weights are not finite."""
        if self._last_step is not None and not self._weights_are_finite():
            self._stop("weights", **self._last_step)
        super().save_model(output_dir, _internal_call)

    def _save(self, output_dir: str | None = None, state_dict: dict[str, Any] | None = None) -> None:
        dtype, model = self.save_dtype, self.model
        if dtype is None or not isinstance(model, PreTrainedModel) or getattr(model, "hf_quantizer", None) is not None:
            super()._save(output_dir, state_dict)
            return
        weights = model.state_dict() if state_dict is None else state_dict
        exempt = {*(model._keep_in_fp32_modules_strict or ()), *(model._keep_in_fp32_modules or ())}
        super()._save(output_dir, cast_weights(weights, dtype, exempt))
        _write_dtype(Path(output_dir or str(self.args.output_dir)) / "config.json", dtype)

    def _save_checkpoint(self, model: Any, trial: Any) -> None:
        """Save the number of tokens so far, because TRL 1.16 would restart counting at 0."""
        stored: Any = self.state.stateful_callbacks
        stored[_NUM_TOKENS] = getattr(self, "_total_train_tokens", 0)
        super()._save_checkpoint(model, trial)

    def _load_callback_state(self) -> None:
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
                part = getattr(weight, "ds_tensor", weight)  # ZeRO-3 stores this process's shard there
                part = part.to_local() if isinstance(part, DTensor) else part
                finite = finite & torch.isfinite(part).all().to(finite.device)
        return bool(self.accelerator.gather(finite).all().item())

    def _stop(self, broken: Literal["loss", "weights"], *, step: int, loss: float, learning_rate: float) -> None:
        file = Path(str(self.args.output_dir)) / f"nan_step_{step}.json"
        if self.is_world_process_zero():
            batch = rows_per_step(self.args)
            rows = range(step * batch, min((step + 1) * batch, len(self.train_dataset)))
            report = {
                "step": step,
                "loss": loss if math.isfinite(loss) else str(loss),  # JSON does not support NaN
                "learning_rate": learning_rate,
                "what": broken,
                "sample_ids": self.train_dataset.with_format(None).select(rows)["sample_id"][:],
            }
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        self.accelerator.wait_for_everyone()
        precision = ", use bf16 instead of fp16 (maximum 65504)" if self.args.fp16 else ""
        finding = f"the loss is {loss}" if broken == "loss" else "some weights are not finite"
        raise TrainingError(
            f"{file}: {finding} in step {step} (counting from 0); training stopped; lower learning_rate "
            f"({learning_rate:g}), check the rows listed in this file{precision}, then start over or resume"
        )


_NUM_TOKENS = "num_tokens"


def skip_unlabelled_logits() -> None:
    """Make TRL 1.16 compute logits only for labelled positions, which it does only with Triton by default."""
    trl_utils._use_triton = _skips_unlabelled  # type: ignore[attr-defined]  # TRL imports the name there


def _skips_unlabelled(device: torch.device) -> bool:
    return device.type in ("cpu", "cuda") or bool(_use_triton(device))


def cast_weights(weights: Mapping[str, Tensor], dtype: torch.dtype, exempt: set[str]) -> dict[str, Tensor]:
    """Cast floating-point weights on the CPU, except modules in `exempt`. Shared weights stay shared."""
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
    """Correct the dtype in a model's config, because transformers 5.x writes the in-memory dtype."""
    config = json.loads(path.read_text(encoding="utf-8"))
    for part in (config, *(value for value in config.values() if isinstance(value, dict))):
        if "dtype" in part:
            part["dtype"] = str(dtype).removeprefix("torch.")
    partial = path.with_suffix(".partial")
    partial.write_text(json.dumps(config, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    partial.replace(path)
