"""Evaluate a model during training by judging labelled pairs, as in a batch run."""

import heapq
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from accelerate.utils import gather_object
from transformers import TrainingArguments
from transformers.integrations.deepspeed import is_deepspeed_zero3_enabled
from transformers.trainer_utils import IntervalStrategy, SaveStrategy

from judgelm.data.labelled_pair import LabelledPair, uniform_hash
from judgelm.data.labelled_set import read_labelled
from judgelm.engines.base import EngineOptions
from judgelm.engines.model_files import eos_ids, window_of
from judgelm.engines.transformers.engine import RewardEngine, TransformersEngine
from judgelm.engines.transformers.loaded_model import LoadedModel, runs_packed
from judgelm.errors import ConfigError, EngineError, InputError
from judgelm.modes import BatchMode, Pairwise, Reasoned
from judgelm.modes.readings import prompt_of, reading_of
from judgelm.parsing.scores import LabelRule
from judgelm.prompts.judge_prompt import JudgePrompt
from judgelm.records import Judgment, Label, Sample
from judgelm.runs.runner import judge
from judgelm.training.arguments import JudgeArguments
from judgelm.training.live_model import unwrapped
from judgelm.training.rows.builder import RowCounts
from judgelm.training.rows.dataset import EpochRows, file_sha

if TYPE_CHECKING:
    from judgelm.metrics.resampling import Estimate

METRIC_NAMES = ("agreement", "agreement_by_mean", "consistency", "delta_bias")


PromptKind = Literal["without_reference", "with_reference"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationPairs:
    """Samples to judge, one per pair and prompt kind."""

    samples: tuple[Sample, ...]
    labels: Mapping[str, Label]
    kind_of: Mapping[str, PromptKind]
    pairs: int
    available: int

    def __str__(self) -> str:
        drawn = f"{self.pairs} of {self.available}" if self.pairs < self.available else f"all {self.pairs}"
        kinds = " and ".join(kind.replace("_", " ") for kind in self.kinds)
        return f"{drawn} pairs are judged ({kinds})"

    @property
    def kinds(self) -> tuple[PromptKind, ...]:
        """Return the prompt kinds that occur."""
        return tuple(sorted(set(self.kind_of.values()), reverse=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationMetrics:
    """Metrics of one evaluation, as defined in `_PROTOCOL`."""

    agreement: "Estimate"
    agreement_by_mean: "Estimate | None"
    consistency: "Estimate | None"
    delta_bias: "Estimate | None"
    failed: float

    def numbers(self) -> dict[str, float]:
        """Return the value of each metric by name."""
        estimates = {name: getattr(self, name) for name in METRIC_NAMES}
        return {name: each.value for name, each in estimates.items() if each is not None} | {"failed": self.failed}


def trained_prompt_kinds(counts: RowCounts) -> tuple[PromptKind, ...]:
    """Return the prompt kinds of the training rows."""
    without = counts.made - counts.kinds["single"] - counts.with_reference
    rows_of: dict[PromptKind, int] = {"without_reference": without, "with_reference": counts.with_reference}
    return tuple(kind for kind, rows in rows_of.items() if rows > 0)


def draw_pairs(
    paths: Sequence[str], *, kinds: Sequence[PromptKind], count: int, seed: int, prompt: JudgePrompt | None = None
) -> ValidationPairs:
    """Sample up to `count` pairs by hashing the seed and ID, and keep them in file order."""
    available = 0

    def candidates() -> Iterator[tuple[float, int, str, LabelledPair]]:
        nonlocal available
        for file, path in enumerate(paths):
            for pair in read_labelled(path, source=path, on_reject=lambda reject: None, prompt=prompt):
                if any(_label(pair, kind) is not None for kind in kinds):
                    available += 1
                    name = f"{file}:{pair.sample.id}"
                    yield uniform_hash(seed, name, "validation"), available, name, pair

    drawn = heapq.nsmallest(count, candidates(), key=lambda candidate: candidate[:2])
    if not drawn:
        shown = " or ".join(kind.replace("_", " a ") for kind in kinds)
        raise InputError(f"{', '.join(paths)}: no pair has a label {shown}, unlike in training; set eval_pairs: 0")
    samples, labels, kind_of = [], {}, {}
    for _, _, name, pair in sorted(drawn, key=lambda candidate: candidate[1]):
        for kind in kinds:
            if (label := _label(pair, kind)) is not None:
                key = f"{name} {kind}"
                reference = pair.sample.reference if kind == "with_reference" else None
                samples.append(replace(pair.sample, id=key, reference=reference))
                labels[key], kind_of[key] = label, kind
    drawn_from = {"pairs": len(drawn), "available": available}
    return ValidationPairs(samples=tuple(samples), labels=labels, kind_of=kind_of, **drawn_from)


def validation_metrics(
    judgments: Sequence[Judgment], pairs: ValidationPairs, *, reads_words: bool = False
) -> dict[PromptKind | None, ValidationMetrics]:
    """Return metrics over all judgments (key None) and, if there are two prompt kinds, for each kind."""
    by_kind: dict[PromptKind | None, ValidationMetrics] = {None: _metrics(judgments, pairs, reads_words)}
    for kind in pairs.kinds if len(pairs.kinds) > 1 else ():
        of_kind = [each for each in judgments if pairs.kind_of[each.sample_id] == kind]
        by_kind[kind] = _metrics(of_kind, pairs, reads_words)
    return by_kind


def _metrics(judgments: Sequence[Judgment], pairs: ValidationPairs, reads_words: bool) -> ValidationMetrics:
    # scipy and statsmodels are slow to import, and this process may never judge
    from judgelm.metrics.resampling import Resampling, share
    from judgelm.studies.evaluation import EvaluationOptions, evaluate
    from judgelm.studies.pair_labels import label_of, pair_label, pair_winner

    questions = {sample.id: sample.question for sample in pairs.samples}
    rule: LabelRule = "as_judged" if reads_words else "given"
    evaluation = evaluate(judgments, pairs.labels, clusters=questions, options=EvaluationOptions(order_rule=rule))
    position = evaluation.excluded.position if evaluation.excluded else None

    def agreement(rule: LabelRule) -> "Estimate":
        hits = [pair_label(each, rule) == label_of(pair_winner(pairs.labels[each.sample_id])) for each in judgments]
        return share(np.array(hits), [questions[each.sample_id] for each in judgments], Resampling())

    # verdicts without scores have no mean, so both orders must agree on the winner
    by_mean: LabelRule = "as_judged" if any(each.mode == "reasoned" for each in judgments) else "mean"
    return ValidationMetrics(
        agreement=agreement(rule),
        agreement_by_mean=None if reads_words else agreement(by_mean),
        consistency=position.consistency if position else None,
        delta_bias=position.delta if position else None,
        failed=evaluation.counts.failed_orders / (2 * evaluation.counts.joined),
    )


def _label(pair: LabelledPair, kind: PromptKind) -> Label | None:
    label = pair.plain if kind == "without_reference" else pair.referenced
    return label if label is not None and label.winner is not None else None


NEVER = 10**9
"""Evaluation interval that no run reaches, so only the final evaluation runs."""


_SFT_METRICS = ("loss", "mean_token_accuracy", "entropy")
_LOSS_METRICS = {"num_generations": (), "center_rewards_coefficient": ("loss", "accuracy", "margin")}
"""Eval loss metrics, keyed by an argument that only GRPO or reward models have."""


_METRICS_TEXT = (
    "Unparseable replies count as disagreement; failed is their share. consistency and delta_bias cover pairs with "
    "verdicts in both orders. delta_bias is the absolute difference between the shares favouring the answer shown "
    "first and the answer shown second. Intervals: 95 %, resampled by question."
)
_PROTOCOL = (
    "Each pair was judged in both orders. agreement uses the given order, as in the JudgeLM paper. agreement_by_mean "
    f"uses the mean of both orders' scores or, if the judge reasons first, both verdicts. {_METRICS_TEXT}"
)
_WORD_PROTOCOL = (
    f"Each pair was judged by P(first better), computed from the probability of a verdict word. {_METRICS_TEXT}"
)


class ValidationJudge:
    """Judges pairs with the model that is being trained."""

    def __init__(self, files: Sequence[str], pairs: ValidationPairs, mode: BatchMode, window: int) -> None:
        self.pairs = pairs
        self._files = files
        self._mode = mode
        self._window = window
        self._step: int | None = None
        self._by_kind: dict[PromptKind | None, ValidationMetrics] = {}
        self.reads_words = isinstance(mode, Pairwise) and reading_of(mode).reads_words

    def metrics(self, trainer: Any, prefix: str) -> dict[str, float]:
        """Return the metrics for the trainer. Call this on every process."""
        began = time.monotonic()
        self._evaluate(trainer)
        return {
            f"{prefix}_{name}" if kind is None else f"{prefix}_{name}_{kind}": value
            for kind, metrics in self._by_kind.items()
            for name, value in metrics.numbers().items()
        } | {f"{prefix}_judging_runtime": time.monotonic() - began}

    def card_facts(self, trainer: Any) -> dict[str, Any]:
        """Return the evaluation results for the card, re-evaluating the final weights if needed.

        Call this on every process.
        """
        state, step = trainer.state, step_of_weights(trainer)
        chosen_by = trainer.args.metric_for_best_model if _has_best(trainer) else None
        if self._step != step or step != state.global_step:
            self._evaluate(trainer)
        facts: dict[str, Any] = {
            "protocol": _WORD_PROTOCOL if self.reads_words else _PROTOCOL,
            "order_rule": "as_judged" if self.reads_words else "given",
            "files": [{"file": path.rsplit("/", 1)[-1], "sha": file_sha(path)} for path in self._files],
            "pairs": self.pairs.pairs,
            "pairs_available": self.pairs.available,
            "judged": list(self.pairs.kinds),
            "checkpoint": {"step": step, "steps": state.global_step, "chosen_by": chosen_by},
        }
        for kind, metrics in self._by_kind.items():
            facts |= asdict(metrics) if kind is None else {kind: asdict(metrics)}
        return facts

    def _evaluate(self, trainer: Any) -> None:
        accelerator = trainer.accelerator
        own = self.pairs.samples[accelerator.process_index :: accelerator.num_processes]
        judged: list[Judgment] = gather_object(self._judge(trainer, own))
        positions = {sample.id: position for position, sample in enumerate(self.pairs.samples)}
        judged.sort(key=lambda judgment: positions[judgment.sample_id])
        self._by_kind = validation_metrics(judged, self.pairs, reads_words=self.reads_words)
        self._step = trainer.state.global_step

    def _judge(self, trainer: Any, samples: Sequence[Any]) -> list[Judgment]:
        model = trainer.accelerator.unwrap_model(trainer.model)
        if not runs_packed(model):
            raise EngineError(
                f"{model.config.model_type} models are not supported for judging during training; set eval_pairs: 0"
            )
        deepspeed = trainer.is_deepspeed_enabled
        spread = trainer.is_fsdp_enabled or (deepspeed and is_deepspeed_zero3_enabled())  # type: ignore[no-untyped-call]
        forward = trainer.model_wrapped if deepspeed else trainer.model
        tokenizer = trainer.processing_class
        options = EngineOptions(model=model.config.model_type, max_model_len=self._window)
        with unwrapped(model, forward, device=trainer.accelerator.device, in_step=spread) as live:
            rewards = getattr(self._mode, "template", "") == "reward"
            loaded = LoadedModel(
                model=live,
                tokenizer=tokenizer,
                window=window_of(model.config, tokenizer, options),
                eos_ids=eos_ids(getattr(model, "generation_config", None), tokenizer),
                quantization=None,
                identity={},
            )
            engine = (RewardEngine if rewards else TransformersEngine)(loaded)
            return list(judge(samples, self._mode, engine))


def step_of_weights(trainer: Any) -> int:
    """Return the training step of the final weights, which may be from the best checkpoint."""
    return int(trainer.state.best_global_step if _has_best(trainer) else trainer.state.global_step)


def _has_best(trainer: Any) -> bool:
    return trainer.args.load_best_model_at_end and trainer.state.best_model_checkpoint is not None


def load_validation(arguments: JudgeArguments, args: TrainingArguments, rows: EpochRows) -> ValidationJudge | None:
    """Load the pairs to judge, with the same prompt kinds as the training rows."""
    if arguments.eval_pairs < 0:
        raise ConfigError(f"eval_pairs is {arguments.eval_pairs}; expected an integer of at least 0")
    validation = None
    if arguments.eval_data and arguments.eval_pairs:
        kinds = trained_prompt_kinds(rows.counts)
        if not kinds:
            raise ConfigError("the training rows contain no pairs, so pairs cannot be judged; set eval_pairs: 0")
        mode = _mode(arguments, args, rows.window)
        pairs = draw_pairs(
            arguments.eval_data, kinds=kinds, count=arguments.eval_pairs, seed=args.seed, prompt=prompt_of(mode)
        )
        validation = ValidationJudge(arguments.eval_data, pairs, mode, rows.window)
    _check_choice(arguments, args, validation)
    if arguments.eval_data and args.eval_strategy == IntervalStrategy.NO:
        args.eval_strategy, args.eval_steps = IntervalStrategy.STEPS, NEVER
    return validation


def _mode(arguments: JudgeArguments, args: TrainingArguments, window: int) -> BatchMode:
    if arguments.prompt_source is not None:
        prompt = arguments.prompt_source.load()
        return Pairwise(prompt=prompt, scale=prompt.reply.scale, tie_threshold=0)
    if arguments.chosen.reasons_first:
        room = getattr(args, "max_completion_length", None) or window // 2
        return Reasoned(template=arguments.template, both_orders=True, max_tokens=room)
    scale = (arguments.scale[0], arguments.scale[1])
    if arguments.chosen.reads_words:
        return Pairwise(template=arguments.template, scale=scale, tie_threshold=0)  # as for a judge without a card
    return Pairwise(template=arguments.template, scale=scale, both_orders=True)


def _check_choice(arguments: JudgeArguments, args: TrainingArguments, validation: ValidationJudge | None) -> None:
    patience, metric = arguments.early_stopping_patience, args.metric_for_best_model
    if patience is not None and patience < 1:
        raise ConfigError(f"early_stopping_patience is {patience}; expected an integer of at least 1")
    if patience is not None and metric is None:
        raise ConfigError("early_stopping_patience requires a metric; add metric_for_best_model: eval_agreement")
    if metric is None:
        return
    if not arguments.eval_data or args.eval_strategy == IntervalStrategy.NO:
        raise ConfigError(f"metric_for_best_model {metric} requires evaluations; set eval_data and eval_strategy")
    if args.load_best_model_at_end and args.save_strategy == SaveStrategy.NO:
        raise ConfigError("load_best_model_at_end requires checkpoints; set save_strategy to eval_strategy's value")
    name = metric.removeprefix("eval_")
    own = (names for argument, names in _LOSS_METRICS.items() if hasattr(args, argument))
    available = list(next(own, _SFT_METRICS))
    if validation:
        kinds = validation.pairs.kinds if len(validation.pairs.kinds) > 1 else ()
        by_mean = () if validation.reads_words else ("agreement_by_mean",)
        for each in ("agreement", *by_mean, "failed"):
            available += [each, *(f"{each}_{kind}" for kind in kinds)]
    if name not in available:
        listed = ", ".join(f"eval_{each}" for each in available)
        raise ConfigError(f"metric_for_best_model {metric} not found; available: {listed}")
    if name.startswith("failed") and args.greater_is_better:
        raise ConfigError(f"metric_for_best_model {metric} is better when lower; add greater_is_better: false")
