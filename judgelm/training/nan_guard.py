"""Stops a training whose loss or weights are not finite, and writes down the rows of that step.

transformers 5.x would continue: it leaves such losses out of its logs, and replaces good checkpoints by broken ones.
"""

import json
import math
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

import torch
import transformers
from torch.distributed.tensor import DTensor

from judgelm.errors import TrainingError
from judgelm.training.config import rows_per_step


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """An optimiser step.

    Attributes:
        step: number of steps before it.
        loss: over all its rows.
        learning_rate: of this step.
    """

    step: int
    loss: float
    learning_rate: float


class NanGuardMixin(transformers.Trainer):
    """Placed before a trainer's class; its `train_dataset` has a column `sample_id` and is trained on in sequence.

    Every optimiser step's loss is checked before the last of its backward passes, so before the weights change, and
    by all processes together: one number goes to the host. The weights are checked before they are saved, since
    gradients can break where the loss does not.
    """

    model: Any
    train_dataset: Any
    current_gradient_accumulation_steps: int
    _loss_so_far: torch.Tensor | float = 0.0
    _last_step: Step | None = None

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
            self._last_step = Step(
                step=self.state.global_step, loss=mean, learning_rate=float(self._get_learning_rate())
            )
            if not math.isfinite(mean):
                self._stop(self._last_step, "loss")
        return loss

    def save_model(self, output_dir: str | None = None, _internal_call: bool = False) -> None:
        """Save the model, as a checkpoint or at the end.

        Raises:
            TrainingError: trained weights are not finite; nothing is written.
        """
        if self._last_step is not None and not self._weights_are_finite():
            self._stop(self._last_step, "weights")
        super().save_model(output_dir, _internal_call)

    def _weights_are_finite(self) -> bool:
        finite = torch.ones((), dtype=torch.int, device=self.accelerator.device)
        for weight in self.model.parameters():
            if weight.requires_grad:
                part = getattr(weight, "ds_tensor", weight)  # ZeRO-3 stores a process's share there
                part = part.to_local() if isinstance(part, DTensor) else part
                finite = finite & torch.isfinite(part).all().to(finite.device)
        return bool(self.accelerator.gather(finite).all().item())

    def _stop(self, at: Step, broken: Literal["loss", "weights"]) -> None:
        """Write the step's rows, then raise on all processes."""
        file = Path(str(self.args.output_dir)) / f"nan_step_{at.step}.json"
        if self.is_world_process_zero():
            batch = rows_per_step(self.args)
            begin, end = at.step * batch, min((at.step + 1) * batch, len(self.train_dataset))
            report = asdict(at) | {
                "what": broken,
                "loss": at.loss if math.isfinite(at.loss) else str(at.loss),  # JSON has no NaN
                "sample_ids": self.train_dataset.with_format(None).select(range(begin, end))["sample_id"][:],
            }
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(json.dumps(report, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
        self.accelerator.wait_for_everyone()
        precision = ", use bf16 instead of fp16, whose largest number is 65504" if self.args.fp16 else ""
        finding = f"the loss is {at.loss}" if broken == "loss" else "weights are not finite"
        raise TrainingError(
            f"{file}: in step {at.step} (the first is 0) {finding}, so training stops; lower learning_rate "
            f"({at.learning_rate:g}), check the rows that the file lists{precision}, and start again or "
            "resume from the last checkpoint (resume_from_checkpoint)"
        )
