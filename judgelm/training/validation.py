"""Evaluation by judging: at every evaluation the model in training judges labelled pairs like a batch run."""

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
from judgelm.parsing.scores import LabelRule
from judgelm.prompts.catalog import get_template
from judgelm.records import Judgment, Label, Sample
from judgelm.runs.runner import judge
from judgelm.training.arguments import JudgeArguments
from judgelm.training.rows.builder import RowCounts
from judgelm.training.rows.dataset import EpochRows, file_sha

if TYPE_CHECKING:
    from judgelm.metrics.resampling import Estimate
from judgelm.training.live_model import unwrapped

METRIC_NAMES = ("agreement", "agreement_by_mean", "consistency", "delta_bias")
"""Metrics with an interval, as logs and cards name them."""


PromptKind = Literal["without_reference", "with_reference"]
"""Kind of prompt that a pair is judged with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationPairs:
    """Pairs to be judged, each with the kinds of prompt that it has labels for.

    Attributes:
        samples: one for each pair and kind; ids are unique, and only samples with reference have one.
        labels: by sample id.
        kind_of: by sample id.
        pairs: number drawn.
        available: number in the files.
    """

    samples: tuple[Sample, ...]
    labels: Mapping[str, Label]
    kind_of: Mapping[str, PromptKind]
    pairs: int
    available: int

    def __str__(self) -> str:
        drawn = f"{self.pairs} of {self.available}" if self.pairs < self.available else f"all {self.pairs}"
        kinds = " and ".join(kind.replace("_", " ") for kind in self.kinds)
        return f"{drawn} pairs are judged, {kinds}"

    @property
    def kinds(self) -> tuple[PromptKind, ...]:
        """Kinds of prompt that occur."""
        return tuple(sorted(set(self.kind_of.values()), reverse=True))


@dataclass(frozen=True, slots=True, kw_only=True)
class ValidationMetrics:
    """Metrics of judgments against labels.

    Attributes:
        agreement: share of all pairs on which the given order names the label's winner; an unreadable reply names none.
            Of a judge that is read off a word, on which P(first better) does.
        agreement_by_mean: share of all pairs on which the mean scores of both orders do; with an unreadable reply they
            name none. Of a judge that reasons first both orders' verdicts must. None where a word is read.
        consistency: share of the readable ones that name the same winner in both orders; None where none is readable.
        delta_bias: among them, the share that leans toward the answer shown first less that toward the second, without
            its sign; None where none is readable.
        failed: share of unreadable replies; there are two to a judgment.
    """

    agreement: "Estimate"
    agreement_by_mean: "Estimate | None"
    consistency: "Estimate | None"
    delta_bias: "Estimate | None"
    failed: float

    def numbers(self) -> dict[str, float]:
        """Values by name, without the undefined ones."""
        estimates = {name: getattr(self, name) for name in METRIC_NAMES}
        return {name: each.value for name, each in estimates.items() if each is not None} | {"failed": self.failed}


def trained_prompt_kinds(counts: RowCounts) -> tuple[PromptKind, ...]:
    """Kinds of prompt in the rows of several answers."""
    without = counts.made - counts.kinds["single"] - counts.with_reference
    rows_of: dict[PromptKind, int] = {"without_reference": without, "with_reference": counts.with_reference}
    return tuple(kind for kind, rows in rows_of.items() if rows > 0)


def draw_pairs(paths: Sequence[str], *, kinds: Sequence[PromptKind], count: int, seed: int) -> ValidationPairs:
    """Draw pairs from labelled files, by seed and id alone; in the files' order.

    Rows that are unreadable, without label or with another number of answers are skipped.

    Args:
        paths: labelled files.
        kinds: of prompt; a pair is judged with those that it has a label for.
        count: number of pairs; all where there are fewer.
        seed: of the draw.

    Raises:
        InputError: a file cannot be read, or no pair can be judged.
    """
    available = 0

    def candidates() -> Iterator[tuple[float, int, str, LabelledPair]]:
        nonlocal available
        for file, path in enumerate(paths):
            for pair in read_labelled(path, source=path, on_reject=lambda reject: None):
                if any(_label(pair, kind) is not None for kind in kinds):
                    available += 1
                    name = f"{file}:{pair.sample.id}"
                    yield uniform_hash(seed, name, "validation"), available, name, pair

    drawn = heapq.nsmallest(count, candidates(), key=lambda candidate: candidate[:2])
    if not drawn:
        shown = " or ".join(kind.replace("_", " a ") for kind in kinds)
        raise InputError(
            f"{', '.join(paths)}: no pair has a label made {shown}, like the training's rows, so none can be "
            "judged; give labelled pairs as eval_data, or eval_pairs: 0 for the eval loss alone"
        )
    samples, labels, kind_of = [], {}, {}
    for _, _, name, pair in sorted(drawn, key=lambda candidate: candidate[1]):
        for kind in kinds:
            if (label := _label(pair, kind)) is not None:
                key = f"{name} {kind}"
                reference = pair.sample.reference if kind == "with_reference" else None
                samples.append(replace(pair.sample, id=key, reference=reference))
                labels[key], kind_of[key] = label, kind
    return ValidationPairs(
        samples=tuple(samples), labels=labels, kind_of=kind_of, pairs=len(drawn), available=available
    )


def validation_metrics(
    judgments: Sequence[Judgment], pairs: ValidationPairs, *, reads_words: bool = False
) -> dict[PromptKind | None, ValidationMetrics]:
    """Metrics over all judgments, under None, and of each kind of prompt where there are two.

    Args:
        judgments: of all pairs.
        pairs: with their labels.
        reads_words: whether the judge is read off a word, so that both orders or answers make one verdict.
    """
    by_kind: dict[PromptKind | None, ValidationMetrics] = {None: _metrics(judgments, pairs, reads_words)}
    for kind in pairs.kinds if len(pairs.kinds) > 1 else ():
        of_kind = [each for each in judgments if pairs.kind_of[each.sample_id] == kind]
        by_kind[kind] = _metrics(of_kind, pairs, reads_words)
    return by_kind


def _metrics(judgments: Sequence[Judgment], pairs: ValidationPairs, reads_words: bool) -> ValidationMetrics:
    # scipy and statsmodels take seconds to import, in every process of a training that may never judge
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

    # verdicts without scores have no mean: their two orders must name the same winner
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
"""Steps between evaluations where the only one is at the end of the training."""


_SFT_METRICS = ("loss", "mean_token_accuracy", "entropy")


_REWARD_METRICS = ("loss", "accuracy", "margin")


_DPO_METRICS = ("rewards/accuracies", "rewards/margins")


_PROTOCOL = (
    "Each pair was judged in both orders. Agreement is that of the given order, as in the JudgeLM paper; "
    "agreement_by_mean that of the mean of both orders' scores, or, of a judge that reasons first, of both verdicts "
    "together. Both are over all pairs, and an unreadable reply agrees with nothing. Consistency and delta_bias "
    "(toward the answer shown first less toward the second, without sign) are over the pairs readable in both orders; "
    "failed is the share of unreadable replies. Intervals: 95 %, resampled by question."
)


_WORD_PROTOCOL = (
    "Each pair was judged by P(first better), read off the probabilities of one word, as in judging. Agreement is "
    "over all pairs, and an unreadable reply agrees with nothing. Consistency and delta_bias (toward the answer shown "
    "first less toward the second, without sign) are of judges that are shown both orders; failed is the share of "
    "unreadable replies. Intervals: 95 %, resampled by question."
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

    Attributes:
        reads_words: whether the judge is read off a word.
    """

    def __init__(self, files: Sequence[str], pairs: ValidationPairs, mode: BatchMode, window: int) -> None:
        self.pairs = pairs
        self._files = files
        self._mode = mode
        self._window = window
        self._last: _Evaluation | None = None
        self.reads_words = isinstance(mode, Pairwise) and get_template(mode.template).reads_words

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
            "protocol": _WORD_PROTOCOL if self.reads_words else _PROTOCOL,
            "order_rule": "as_judged" if self.reads_words else "given",
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
        by_kind = validation_metrics(judged, self.pairs, reads_words=self.reads_words)
        self._last = _Evaluation(step=trainer.state.global_step, by_kind=by_kind)
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
            rewards = getattr(self._mode, "template", "") == "reward"
            engine = (RewardEngine if rewards else TransformersEngine)(
                LoadedModel(
                    model=live,
                    tokenizer=tokenizer,
                    window=window_of(model.config, tokenizer, options),
                    eos_ids=eos_ids(getattr(model, "generation_config", None), tokenizer),
                    quantization=None,
                    identity={},
                )
            )
            return list(judge(samples, self._mode, engine))


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
    scale = (arguments.scale[0], arguments.scale[1])
    if get_template(arguments.template).reads_words:
        return Pairwise(template=arguments.template, scale=scale, tie_threshold=0)  # as a judge without a card's own
    return Pairwise(template=arguments.template, scale=scale, both_orders=True)


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
    by_mean = ("agreement_by_mean",) if validation and not validation.reads_words else ()
    judged = ("agreement", *by_mean, "failed") if validation else ()
    of_dpo = hasattr(args, "beta") and not hasattr(args, "num_generations")
    of_loss = () if hasattr(args, "num_generations") else _SFT_METRICS
    of_loss = _REWARD_METRICS if hasattr(args, "center_rewards_coefficient") else of_loss
    available = [*of_loss, *(_DPO_METRICS if of_dpo else ())]
    available += [f"{each}{suffix}" for each in judged for suffix in suffixes]
    if name not in available:
        listed = ", ".join(f"eval_{each}" for each in available)
        raise ConfigError(f"metric_for_best_model {metric} is not measured by these evaluations; available: {listed}")
    if name.startswith("failed") and args.greater_is_better:
        raise ConfigError(f"metric_for_best_model {metric} is better where it is lower; add greater_is_better: false")
