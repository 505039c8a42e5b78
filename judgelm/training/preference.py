"""Train judges on P(first better) directly, for `train/preference.py`."""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from trl import SFTTrainer  # type: ignore[attr-defined]  # trl loads its names lazily, which mypy cannot see

from judgelm.errors import ConfigError
from judgelm.prompts.catalog import Template
from judgelm.prompts.prompt_template import PromptTemplate
from judgelm.training.arguments import PLAIN_LOSS, JudgeArguments, argument, check_fixed, check_not_negative
from judgelm.training.attention import Attention, requested_attention
from judgelm.training.padding import settle_padding
from judgelm.training.run import TrainingRun
from judgelm.training.score_line_loss import ScoreLineObjective, ScoreLineTrees
from judgelm.training.trainer import JudgeMixin
from judgelm.training.word_loss import WordObjective, WordWeights, word_tokens

_COLUMNS = ("prompt_ids", "second_ids", "preference", "first_right", "second_right")


@dataclass(kw_only=True)
class PreferenceArguments(JudgeArguments):
    """Arguments for `train/preference.py`. Each pair needs a `preference`, scores, or a winner."""

    template: str = argument("Prompt template. By default, the template for the reading, or judgelm-v1.", default="")
    reading: str | None = argument(
        "score-line, or the verdict-word readings letters, yes-no, and grade. Default: the template's reading.",
        default=None,
    )
    reason_prob: float = argument("Always 0, because training on preferences does not use reasons.", default=0.0)
    both_orders: bool = argument(
        "Show each pair in both orders. If false, each pair is shown once, swapped with probability swap_prob, and "
        "the loss has no consistency term.",
        default=True,
    )
    consistency_weight: float = argument(
        "Weight of the squared difference between P(first better) in the two orders.", default=0.5
    )
    score_line_weight: float = argument(
        "Weight of the score line's negative log-likelihood, which keeps replies parseable. Check score_line_mass in "
        "the logs.",
        default=0.1,
    )
    word_weight: float = argument(
        "Weight of the verdict words' negative log-likelihood, which keeps replies parseable. Check word_mass in the "
        "logs.",
        default=0.1,
    )
    pointwise_weight: float = argument(
        "For yes-no only: weight of the cross entropy between P(yes) and each answer's score, rescaled to the range 0 "
        "to 1.",
        default=0.0,
    )

    trains_words: ClassVar[bool] = True
    trains_prompts: ClassVar[bool] = True

    def __post_init__(self) -> None:
        if self.prompt_source is not None:
            # the prompt also determines the reading and whether a reference is shown
            self.template, self.reading = f"prompt:{self.prompt_source.name}", None
            self.reference_drop_prob = 0.0
        elif not self.template:
            self.template = self.reading if self.reading not in (None, "score-line") else JudgeArguments.template
        template = self.chosen
        if self.reading not in (None, template.reading):
            conflict = f"but template {template.id} uses reading {template.reading}"
            raise ConfigError(f"reading is {self.reading}, {conflict}; remove one of the two")
        self.reading = template.reading


class _PairTrainer(SFTTrainer):
    model: Any
    _signature_columns: Any

    def __init__(
        self, *, judge: PreferenceArguments, model: Any, args: Any, processing_class: Any, **options: Any
    ) -> None:
        args.completion_only_loss = False
        self.padding = settle_padding(model, args, trees=not judge.chosen.reads_words)
        objective = self._objective = objective_of(judge, processing_class, args.padding_free)
        args.padding_free = False  # TRL 1.16 rejects custom collators such as this one if padding_free is set
        super().__init__(model=model, args=args, processing_class=processing_class, data_collator=objective, **options)
        self.model_accepts_loss_kwargs = True  # compute_loss divides by the number of pairs in the step
        self._signature_columns = list(_COLUMNS)

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        outputs = model(**self._objective.model_inputs(inputs, self.model.dtype), use_cache=False)
        losses, metrics = self._objective.losses(outputs.logits, inputs)
        if num_items_in_batch is None:
            loss = losses.mean()
        else:
            loss = losses.sum() / num_items_in_batch
            if self.args.average_tokens_across_devices:
                loss = loss * self.accelerator.num_processes
        logged = self._metrics["train" if self.model.training else "eval"]
        names, values = list(metrics), torch.stack([values.mean() for values in metrics.values()])
        for name, value in zip(names, self.accelerator.reduce(values, reduction="mean").tolist(), strict=True):
            logged[name].append(value)
        return (loss, outputs) if return_outputs else loss

    def _get_num_items_in_batch(self, batch_samples: list[dict[str, Any]], device: torch.device) -> Any:
        if not batch_samples:
            return None
        total = torch.tensor(sum(len(batch["preference"]) for batch in batch_samples), device=device)
        return self.accelerator.gather(total).sum() if self.args.average_tokens_across_devices else total


class DistributionTrainer(JudgeMixin, _PairTrainer):
    """Trainer that optimises P(first better) directly."""


def objective_of(judge: PreferenceArguments, tokenizer: Any, padding_free: bool) -> ScoreLineObjective | WordObjective:
    """Return the objective for the judge's reading. It collates rows and computes their loss."""
    scale = (judge.scale[0], judge.scale[1])
    template = judge.chosen
    if not template.reads_words:
        trees = ScoreLineTrees(tokenizer, judge.template, scale)
        return ScoreLineObjective(trees, judge.consistency_weight, judge.score_line_weight, padding_free)
    word, pointwise = judge.word_weight, judge.pointwise_weight
    weights = WordWeights(consistency=judge.consistency_weight, word=word, pointwise=pointwise)
    return WordObjective(word_tokens(tokenizer, template, scale), weights, padding_free)


_WEIGHTS = {
    "score-line": ("consistency_weight", "score_line_weight"),
    "letters": ("consistency_weight", "word_weight"),
    "yes-no": ("word_weight", "pointwise_weight"),
    "grade": ("word_weight",),
}


def check_preference_arguments(judge: PreferenceArguments) -> None:
    """Raise ConfigError for negative weights and for options that the judge's reading does not support."""
    template = judge.chosen
    _check_prompt(template)
    if template.reads_alone and not judge.both_orders:
        raise ConfigError(
            f"both_orders is false, but reading {template.reading} shows one answer per prompt; remove both_orders"
        )
    if template.takes_criterion and judge.prompt is None:
        raise ConfigError(
            f"template {template.id} requires a criterion, but training rows have none; use {template.reading}"
        )
    if template.reading not in _WEIGHTS:
        raise ConfigError(f"template {template.id} asks for reasons first; use train/grpo.py or a different template")
    check_fixed(judge, PLAIN_LOSS | {"reason_prob": 0.0}, "preference training does not train on replies")
    for name in sorted({name for names in _WEIGHTS.values() for name in names}):
        check_not_negative(judge, name)
        if name not in _WEIGHTS[template.reading] and getattr(judge, name) != getattr(PreferenceArguments, name):
            raise ConfigError(f"{name} is set, but has no effect for reading {template.reading}; remove {name}")


def _check_prompt(template: Template) -> None:
    if not isinstance(template, PromptTemplate):
        return
    prompt = template.judge_prompt
    if "pair" not in prompt.modes:
        raise ConfigError(f"prompt {prompt.name} shows more than two answers, but training rows are pairs")
    if prompt.reply.reason is not None:
        way_out = "remove reason from its reply, or use judgelm tune, which does not train the model"
        raise ConfigError(f"prompt {prompt.name} asks for a reason before the verdict, which is not trained; {way_out}")


def preference_attention(judge: PreferenceArguments, base: Any, args: Any) -> Attention | None:
    """Return None for verdict words, otherwise sdpa or eager, as required by the score-line mask."""
    if judge.chosen.reads_words:
        return None
    requested = requested_attention(base, args)
    if requested not in (None, "sdpa", "eager"):
        raise ConfigError(f"attn_implementation is {requested!r}, but score lines need a custom mask: sdpa or eager")
    implementation = requested or "sdpa"
    return Attention(implementation, f"{implementation} (score lines require a custom mask)")


def preference_facts(run: TrainingRun) -> dict[str, Any]:
    """Return the training details for the judge's card."""
    template = run.judge.chosen
    names = (*(() if template.reads_alone else ("both_orders",)), *_WEIGHTS[template.reading])
    return {"method": "preference"} | {name: getattr(run.judge, name) for name in names}
