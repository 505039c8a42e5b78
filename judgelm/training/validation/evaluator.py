"""Evaluation by judging: at every evaluation the model in training judges labelled pairs like a batch run.

The eval loss measures how well the judge writes its teacher's words; these metrics, how often it names the same winner.
"""

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from accelerate.utils import gather_object
from transformers import EarlyStoppingCallback, Trainer, TrainingArguments
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from transformers.trainer_utils import EvalLoopOutput, IntervalStrategy, SaveStrategy

from judgelm.engines.base import EngineOptions
from judgelm.engines.model_files import eos_ids, window_of
from judgelm.engines.transformers.engine import TransformersEngine
from judgelm.engines.transformers.loaded_model import LoadedModel, runs_packed
from judgelm.errors import ConfigError, EngineError
from judgelm.modes import BatchMode, Pairwise, Reasoned
from judgelm.prompts.catalog import get_template
from judgelm.records import Judgment
from judgelm.runs.runner import judge
from judgelm.training.config import JudgeArguments
from judgelm.training.rows.dataset import EpochRows, file_sha
from judgelm.training.validation.live_model import preserve_random_state, unwrapped
from judgelm.training.validation.pairs import (
    PromptKind,
    ValidationMetrics,
    ValidationPairs,
    draw_pairs,
    trained_prompt_kinds,
    validation_metrics,
)

NEVER = 10**9
"""Steps between evaluations where the only one is at the end of the training."""

_SFT_METRICS = ("loss", "mean_token_accuracy", "entropy")
_DPO_METRICS = ("rewards/accuracies", "rewards/margins")
_PROTOCOL = (
    "Each pair was judged in both orders. Agreement is that of the given order, as in the JudgeLM paper; "
    "agreement_by_mean that of the mean of both orders' scores, or, of a judge that reasons first, of both verdicts "
    "together. Both are over all pairs, and an unreadable reply agrees with nothing. Consistency and delta_bias "
    "(toward the answer shown first less toward the second, without sign) are over the pairs readable in both orders; "
    "failed is the share of unreadable replies. Intervals: 95 %, resampled by question."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Evaluation:
    """Metrics of the weights after a step, by kind of prompt; those over all kinds under None."""

    step: int
    by_kind: dict[PromptKind | None, ValidationMetrics]


class ValidationJudge:
    """Judges pairs with the model of a trainer.

    Args:
        files: files of the pairs, which the card names.
        pairs: pairs to judge.
        mode: judging mode.
        window: of the judge, in tokens.
    """

    def __init__(self, files: Sequence[str], pairs: ValidationPairs, mode: BatchMode, window: int) -> None:
        self.pairs = pairs
        self._files = files
        self._mode = mode
        self._window = window
        self._last: _Evaluation | None = None

    def metrics(self, trainer: Any, prefix: str) -> dict[str, float]:
        """Metrics that the trainer logs and chooses checkpoints by; call it on every process, with the same result.

        Raises:
            EngineError: the model cannot be run, or memory ran out.
        """
        began = time.monotonic()
        evaluation = self._evaluate(trainer)
        return {
            f"{prefix}_{name}" if kind is None else f"{prefix}_{name}_{kind}": value
            for kind, metrics in evaluation.by_kind.items()
            for name, value in metrics.numbers().items()
        } | {f"{prefix}_judging_runtime": time.monotonic() - began}

    def card_facts(self, trainer: Any) -> dict[str, Any]:
        """Metrics of the trainer's final weights; judges once more where these are an earlier step's.

        Call it on every process.
        """
        state, step = trainer.state, step_of_weights(trainer)
        chosen_by = trainer.args.metric_for_best_model if _has_best(trainer) else None
        if self._last is None or self._last.step != step or step != state.global_step:
            self._evaluate(trainer)
        assert self._last is not None
        facts: dict[str, Any] = {
            "protocol": _PROTOCOL,
            "order_rule": "given",
            "files": [{"file": path.rsplit("/", 1)[-1], "sha": file_sha(path)} for path in self._files],
            "pairs": self.pairs.pairs,
            "pairs_available": self.pairs.available,
            "judged": list(self.pairs.kinds),
            "checkpoint": {"step": step, "steps": state.global_step, "chosen_by": chosen_by},
        }
        for kind, metrics in self._last.by_kind.items():
            facts |= asdict(metrics) if kind is None else {kind: asdict(metrics)}
        return facts

    def _evaluate(self, trainer: Any) -> _Evaluation:
        accelerator = trainer.accelerator
        own = self.pairs.samples[accelerator.process_index :: accelerator.num_processes]
        judged: list[Judgment] = gather_object(self._judge(trainer, own))
        positions = {sample.id: position for position, sample in enumerate(self.pairs.samples)}
        judged.sort(key=lambda judgment: positions[judgment.sample_id])
        self._last = _Evaluation(step=trainer.state.global_step, by_kind=validation_metrics(judged, self.pairs))
        return self._last

    def _judge(self, trainer: Any, samples: Sequence[Any]) -> list[Judgment]:
        model = trainer.accelerator.unwrap_model(trainer.model)
        if not runs_packed(model):
            raise EngineError(
                f"{model.config.model_type} models cannot judge while they are trained, as they do not run packed; "
                "eval_pairs: 0 evaluates the loss only"
            )
        deepspeed = trainer.is_deepspeed_enabled
        spread = trainer.is_fsdp_enabled or (deepspeed and is_deepspeed_zero3_enabled())  # type: ignore[no-untyped-call]
        forward = trainer.model_wrapped if deepspeed else trainer.model
        tokenizer = trainer.processing_class
        options = EngineOptions(model=model.config.model_type, max_model_len=self._window)
        with unwrapped(model, forward, device=trainer.accelerator.device, in_step=spread) as live:
            engine = TransformersEngine(
                LoadedModel(
                    model=live,
                    tokenizer=tokenizer,
                    window=window_of(model.config, tokenizer, options),
                    eos_ids=eos_ids(model.generation_config, tokenizer),
                    quantization=None,
                    identity={},
                )
            )
            return list(judge(samples, self._mode, engine))


class ValidationMixin(Trainer):
    """Placed before a trainer's class: its evaluations judge pairs, and leave every random state unchanged.

    Args:
        validation: judges pairs at every evaluation; None evaluates the loss only.
        patience: evaluations without improvement after which training stops; None for no limit.
        options: as the trainer takes them.
    """

    def __init__(
        self, *, validation: ValidationJudge | None = None, patience: int | None = None, **options: Any
    ) -> None:
        super().__init__(**options)
        self.validation = validation
        self._patience = patience
        if patience is not None:
            self.add_callback(EarlyStoppingCallback(patience))
            self.args.restore_callback_states_from_checkpoint = True  # a resumed run continues to count

    def _load_callback_state(self) -> None:
        """Restore a checkpoint's count of evaluations, with the patience of this run, not the checkpoint's."""
        super()._load_callback_state()
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, EarlyStoppingCallback) and self._patience is not None:
                callback.early_stopping_patience = self._patience

    def evaluation_loop(self, *args: Any, **options: Any) -> EvalLoopOutput:
        """Return the eval loss and the metrics of the judging, for callbacks and the choice of checkpoints."""
        with preserve_random_state():
            output = super().evaluation_loop(*args, **options)
            if self.validation is None:
                return output
            judged = self.validation.metrics(self, options.get("metric_key_prefix", "eval"))
        return output._replace(metrics=(output.metrics or {}) | judged)


def step_of_weights(trainer: Any) -> int:
    """Optimiser steps of a trainer's final weights: all, or those up to the best checkpoint."""
    return int(trainer.state.best_global_step if _has_best(trainer) else trainer.state.global_step)


def _has_best(trainer: Any) -> bool:
    return trainer.args.load_best_model_at_end and trainer.state.best_model_checkpoint is not None


def load_validation(arguments: JudgeArguments, args: TrainingArguments, rows: EpochRows) -> ValidationJudge | None:
    """Load the pairs of the evaluations, with the kinds of prompt that the rows have; None where none is judged.

    With files for the evaluation but no strategy, the trainer evaluates once, at the end.

    Args:
        arguments: data and template.
        args: the trainer's.
        rows: those of the training.

    Raises:
        ConfigError: arguments of the evaluation do not fit each other.
        InputError: a file cannot be read, or has no pair to be judged.
    """
    if arguments.eval_pairs < 0:
        raise ConfigError(f"eval_pairs is {arguments.eval_pairs}; it is a number of pairs, or 0 for the eval loss only")
    validation = None
    if arguments.eval_data and arguments.eval_pairs:
        kinds = trained_prompt_kinds(rows.counts)
        if not kinds:
            raise ConfigError("no row of several answers is trained on, so pairs are not judged; add eval_pairs: 0")
        pairs = draw_pairs(arguments.eval_data, kinds=kinds, count=arguments.eval_pairs, seed=args.seed)
        mode = _mode(arguments, args, rows.window)
        validation = ValidationJudge(arguments.eval_data, pairs, mode, rows.window)
    _check_choice(arguments, args, validation)
    if arguments.eval_data and args.eval_strategy == IntervalStrategy.NO:
        args.eval_strategy, args.eval_steps = IntervalStrategy.STEPS, NEVER
    return validation


def _mode(arguments: JudgeArguments, args: TrainingArguments, window: int) -> BatchMode:
    """The mode that the judge is trained for, in both orders."""
    if get_template(arguments.template).reasons_first:
        room = getattr(args, "max_completion_length", None) or window // 2
        return Reasoned(template=arguments.template, both_orders=True, max_tokens=room)
    return Pairwise(template=arguments.template, scale=(arguments.scale[0], arguments.scale[1]), both_orders=True)


def _check_choice(arguments: JudgeArguments, args: TrainingArguments, validation: ValidationJudge | None) -> None:
    """Refuse a choice of checkpoints, or early stopping, that the evaluations cannot support."""
    patience, metric = arguments.early_stopping_patience, args.metric_for_best_model
    if patience is not None and patience < 1:
        raise ConfigError(f"early_stopping_patience is {patience}; it is a number of evaluations, 1 or more")
    if patience is not None and metric is None:
        raise ConfigError(
            "early_stopping_patience needs a metric that should improve; add metric_for_best_model: eval_agreement"
        )
    if metric is None:
        return
    if not arguments.eval_data or args.eval_strategy == IntervalStrategy.NO:
        raise ConfigError(
            f"metric_for_best_model {metric} is measured by evaluations, and there are none; give eval_data and an "
            "eval_strategy (epoch or steps)"
        )
    if args.load_best_model_at_end and args.save_strategy == SaveStrategy.NO:
        raise ConfigError("load_best_model_at_end needs checkpoints; set save_strategy as eval_strategy is")
    name = metric.removeprefix("eval_")
    suffixes = (
        ["", *(f"_{kind}" for kind in validation.pairs.kinds)]
        if validation and len(validation.pairs.kinds) > 1
        else [""]
    )
    judged = ("agreement", "agreement_by_mean", "failed") if validation else ()
    of_dpo = hasattr(args, "beta") and not hasattr(args, "num_generations")
    of_loss = () if hasattr(args, "num_generations") else _SFT_METRICS
    available = [*of_loss, *(_DPO_METRICS if of_dpo else ())]
    available += [f"{each}{suffix}" for each in judged for suffix in suffixes]
    if name not in available:
        listed = ", ".join(f"eval_{each}" for each in available)
        raise ConfigError(f"metric_for_best_model {metric} is not measured by these evaluations; available: {listed}")
    if name.startswith("failed") and args.greater_is_better:
        raise ConfigError(f"metric_for_best_model {metric} is better where it is lower; add greater_is_better: false")
