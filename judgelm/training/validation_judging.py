"""Evaluation by judging: at every evaluation the model in training judges labelled pairs, as a batch run would.

The eval loss says how well the judge writes its teacher's words; these figures say whether it names the same winner.
"""

import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from accelerate.utils import gather_object
from transformers import EarlyStoppingCallback, Trainer, TrainingArguments
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from transformers.trainer_utils import EvalLoopOutput, IntervalStrategy, SaveStrategy

from judgelm.engines.base import EngineOptions
from judgelm.engines.model_files import eos_ids, window_of
from judgelm.engines.transformers.engine import TransformersEngine
from judgelm.engines.transformers.loading import LoadedModel, runs_packed
from judgelm.errors import ConfigError, EngineError
from judgelm.modes import Pairwise
from judgelm.records import Judgment
from judgelm.runs.runner import judge
from judgelm.training.config import JudgeArguments
from judgelm.training.live_model import lent, same_random_state
from judgelm.training.rows.records import RowCounts
from judgelm.training.schedule import file_sha
from judgelm.training.validation_pairs import Figures, ValidationPairs, Way, draw_pairs, figures, trained_ways

NEVER = 10**9
"""Steps between evaluations when there is to be only the one that closes a training."""

_TRAINERS_OWN = ("loss", "mean_token_accuracy", "entropy")
_DPO_TRAINERS_OWN = ("rewards/accuracies", "rewards/margins")
_PROTOCOL = (
    "Each pair was judged in both orders. Agreement is that of the given order, as in the JudgeLM paper; "
    "agreement_by_mean that of the mean of both orders' scores. Both are over all pairs, and an unreadable reply "
    "agrees with nothing. Consistency and delta_bias (toward the answer shown first less toward the second, without "
    "sign) are over the pairs readable in both orders; failed is the share of unreadable replies. Intervals: 95 %, "
    "resampled by question."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Tried:
    """Figures of the weights after a step, by way; those over all ways under None."""

    step: int
    by_way: dict[Way | None, Figures]


class ValidationJudging:
    """Has the model of a trainer judge pairs.

    Args:
        files: where the pairs come from, as the card names them.
        pairs: what is judged.
        mode: how.
        window: of the judge, in tokens.
    """

    def __init__(self, files: Sequence[str], pairs: ValidationPairs, mode: Pairwise, window: int) -> None:
        self.pairs = pairs
        self._files = files
        self._mode = mode
        self._window = window
        self._last: _Tried | None = None

    def metrics(self, trainer: Any, prefix: str) -> dict[str, float]:
        """What the trainer logs and chooses checkpoints by; to be called on every process, which all get the same.

        Raises:
            EngineError: the model cannot be run, or memory ran out.
        """
        began = time.monotonic()
        found = self._try(trainer)
        return {
            f"{prefix}_{name}" if way is None else f"{prefix}_{name}_{way}": value
            for way, one in found.by_way.items()
            for name, value in one.numbers().items()
        } | {f"{prefix}_judging_runtime": time.monotonic() - began}

    def card_facts(self, trainer: Any) -> dict[str, Any]:
        """Figures of the weights that the trainer holds at its end, judging once more where they are an earlier step's.

        To be called on every process.
        """
        state, step = trainer.state, step_of_weights(trainer)
        chosen_by = trainer.args.metric_for_best_model if _holds_the_best(trainer) else None
        if self._last is None or self._last.step != step or step != state.global_step:
            self._try(trainer)
        assert self._last is not None
        facts: dict[str, Any] = {
            "protocol": _PROTOCOL,
            "order_rule": "given",
            "files": [{"file": path.rsplit("/", 1)[-1], "sha": file_sha(path)} for path in self._files],
            "pairs": self.pairs.pairs,
            "pairs_available": self.pairs.available,
            "judged": list(self.pairs.ways),
            "checkpoint": {"step": step, "steps": state.global_step, "chosen_by": chosen_by},
        }
        for way, one in self._last.by_way.items():
            facts |= one.facts() if way is None else {way: one.facts()}
        return facts

    def _try(self, trainer: Any) -> _Tried:
        accelerator = trainer.accelerator
        own = self.pairs.samples[accelerator.process_index :: accelerator.num_processes]
        judged: list[Judgment] = gather_object(self._judge(trainer, own))
        places = {sample.id: place for place, sample in enumerate(self.pairs.samples)}
        judged.sort(key=lambda one: places[one.sample_id])
        self._last = _Tried(step=trainer.state.global_step, by_way=figures(judged, self.pairs))
        return self._last

    def _judge(self, trainer: Any, samples: Sequence[Any]) -> list[Judgment]:
        model = trainer.accelerator.unwrap_model(trainer.model)
        if not runs_packed(model):
            raise EngineError(
                f"{model.config.model_type} models cannot judge while they are trained, as they do not run packed; "
                "eval_pairs: 0 leaves the eval loss alone"
            )
        deepspeed = trainer.is_deepspeed_enabled
        spread = trainer.is_fsdp_enabled or (deepspeed and is_deepspeed_zero3_enabled())  # type: ignore[no-untyped-call]
        forward = trainer.model_wrapped if deepspeed else trainer.model
        tokenizer = trainer.processing_class
        options = EngineOptions(model=model.config.model_type, max_model_len=self._window)
        with lent(model, forward, device=trainer.accelerator.device, in_step=spread) as live:
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


class JudgesWhenEvaluating(Trainer):
    """To be put before a trainer's class; its evaluations leave every random state as it was.

    Attributes:
        judging: what an evaluation judges beside the eval loss; None for the loss alone.
    """

    judging: ValidationJudging | None = None
    _patience: int | None = None

    def judge_when_evaluating(self, judging: ValidationJudging | None, *, patience: int | None) -> None:
        """Add a judging to the evaluations, and end training after so many that bring nothing better."""
        self.judging = judging
        self._patience = patience
        if patience is not None:
            self.add_callback(EarlyStoppingCallback(patience))
            self.args.restore_callback_states_from_checkpoint = True  # a resumed run goes on counting

    def _load_callback_state(self) -> None:
        """What a checkpoint counted so far, under the patience that this run was told, not the checkpoint's."""
        super()._load_callback_state()
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, EarlyStoppingCallback) and self._patience is not None:
                callback.early_stopping_patience = self._patience

    def evaluation_loop(self, *args: Any, **options: Any) -> EvalLoopOutput:
        """The eval loss and the figures of the judging, which callbacks and the choice of checkpoints see alike."""
        with same_random_state():
            output = super().evaluation_loop(*args, **options)
            if self.judging is None:
                return output
            judged = self.judging.metrics(self, options.get("metric_key_prefix", "eval"))
        return output._replace(metrics=(output.metrics or {}) | judged)


def step_of_weights(trainer: Any) -> int:
    """Optimiser steps behind the weights that a trainer holds at its end: all, or those up to the best checkpoint."""
    return int(trainer.state.best_global_step if _holds_the_best(trainer) else trainer.state.global_step)


def _holds_the_best(trainer: Any) -> bool:
    return trainer.args.load_best_model_at_end and trainer.state.best_model_checkpoint is not None


def validation_judging(
    arguments: JudgeArguments, args: TrainingArguments, counts: RowCounts, *, window: int
) -> ValidationJudging | None:
    """The judging of a fine-tuning's evaluations, in the ways that its rows are asked about; None where none is asked.

    Where files are given for the evaluation but no strategy, the trainer is told to evaluate once, at the end.

    Args:
        arguments: data and template.
        args: the trainer's.
        counts: of the training's rows.
        window: of the judge, in tokens.

    Raises:
        ConfigError: arguments of the evaluation that do not fit each other.
        InputError: a file cannot be read, or has no pair to be judged.
    """
    if arguments.eval_pairs < 0:
        raise ConfigError(
            f"eval_pairs is {arguments.eval_pairs}; it is a number of pairs, or 0 for the eval loss alone"
        )
    judging = None
    if arguments.eval_data and arguments.eval_pairs:
        ways = trained_ways(counts)
        if not ways:
            raise ConfigError("no row of several answers is trained on, so pairs are not judged; add eval_pairs: 0")
        pairs = draw_pairs(arguments.eval_data, ways=ways, count=arguments.eval_pairs, seed=args.seed)
        mode = Pairwise(template=arguments.template, scale=(arguments.scale[0], arguments.scale[1]), both_orders=True)
        judging = ValidationJudging(arguments.eval_data, pairs, mode, window)
    _check_choice(arguments, args, judging)
    if arguments.eval_data and args.eval_strategy == IntervalStrategy.NO:
        args.eval_strategy, args.eval_steps = IntervalStrategy.STEPS, NEVER
    return judging


def _check_choice(arguments: JudgeArguments, args: TrainingArguments, judging: ValidationJudging | None) -> None:
    """Refuse a choice of checkpoints, or an early end, that the evaluations cannot make."""
    patience, metric = arguments.early_stopping_patience, args.metric_for_best_model
    if patience is not None and patience < 1:
        raise ConfigError(f"early_stopping_patience is {patience}; it is a number of evaluations, 1 or more")
    if patience is not None and metric is None:
        raise ConfigError(
            "early_stopping_patience is given, but not what should get better; add metric_for_best_model: "
            "eval_agreement"
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
    suffixes = ["", *(f"_{way}" for way in judging.pairs.ways)] if judging and len(judging.pairs.ways) > 1 else [""]
    judged = (
        [f"{one}{suffix}" for one in ("agreement", "agreement_by_mean", "failed") for suffix in suffixes]
        if judging
        else []
    )
    own = (*_TRAINERS_OWN, *_DPO_TRAINERS_OWN) if hasattr(args, "beta") else _TRAINERS_OWN
    if name not in (*own, *judged):
        known = ", ".join(f"eval_{one}" for one in (*own, *judged))
        raise ConfigError(f"metric_for_best_model {metric} cannot be had from these evaluations; there are: {known}")
    if name.startswith("failed") and args.greater_is_better:
        raise ConfigError(f"metric_for_best_model {metric} is better where it is lower; add greater_is_better: false")
