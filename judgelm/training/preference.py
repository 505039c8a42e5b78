"""The trainer of `train/preference.py`: P(first better) is trained itself, as the judge's reading computes it.

The loss of judges that are read off the first word of their reply is in `judgelm.training.word_loss`, that of judges of
score lines here. Such a judge's distribution over score lines says P(first better), as `judgelm.parsing.scores` reads
it at test time: the probability of all lines whose first score is higher, and half of that of equal scores. That number
is differentiable. The loss of a pair with the preference p is

    CE(p, P) + consistency_weight * (P1 - (1 - P2))^2 + score_line_weight * NLL(line(p))

CE is the cross entropy and NLL that of the score line which `scores_by_preference` gives for p, with its line's end;
both are means over the two orders, which stand in the same pass. P1 and P2 are P(first better) in either order.

One forward pass evaluates prompt and the tree of score lines (`judgelm.engines.candidates`) together: the tree's nodes
follow the prompt, a mask lets each see the prompt and its own ancestors, and nodes of the same depth share a position.
That equals a separate pass for each score line.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from trl import SFTTrainer  # type: ignore[attr-defined]  # trl loads its names lazily, unseen by mypy

from judgelm.errors import ConfigError
from judgelm.prompts.catalog import get_template
from judgelm.training.arguments import JudgeArguments, argument
from judgelm.training.attention import Attention, requested_attention
from judgelm.training.lora_on_cpu import speed_up_lora
from judgelm.training.padding import settle_padding
from judgelm.training.run import TrainingRun
from judgelm.training.score_line_loss import ScoreLineObjective, ScoreLineTrees
from judgelm.training.trainer import JudgeMixin
from judgelm.training.word_loss import WordObjective, WordWeights, word_tokens

_COLUMNS = ("prompt_ids", "second_ids", "preference", "first_right", "second_right")


@dataclass(kw_only=True)
class PreferenceArguments(JudgeArguments):
    """Arguments of `train/preference.py` beside TRL's: those of `train/sft.py`, the reading, the weights of the loss.

    `train_data` and `eval_data` hold pairs with a `preference`, P(first answer is better), or with scores or a winner.
    """

    template: str = argument(
        "Prompt template; written into the judge's card. Without it that of the reading, else judgelm-v1.", default=""
    )
    reading: str | None = argument(
        "How the judge is read: score-line, or letters, yes-no or grade off the probabilities of its reply's first "
        "word; without it the template's.",
        default=None,
    )
    reason_prob: float = argument("0: reasons are not learned from preferences.", default=0.0)
    both_orders: bool = argument(
        "Show each pair in both orders within a step; false shows it once, as it stands or swapped by swap_prob, "
        "without the consistency term. Readings yes-no and grade show each answer by itself.",
        default=True,
    )
    consistency_weight: float = argument(
        "Weight of the squared difference between P(first better) in the two orders.", default=0.5
    )
    score_line_weight: float = argument(
        "Weight of the negative log-likelihood of the preference's score line, which keeps replies readable: watch "
        "score_line_mass, the probability of all score lines.",
        default=0.1,
    )
    word_weight: float = argument(
        "Where the judge is read off a word, weight of the negative log of the probability of all words of the "
        "reading, which keeps replies readable: watch word_mass, that probability.",
        default=0.1,
    )
    pointwise_weight: float = argument(
        "Reading yes-no: weight of the cross entropy of P(yes) with an answer's score, from 0 for the lowest of the "
        "scale to 1 for the highest, where rows have scores: of right and wrong answers the highest and the lowest.",
        default=0.0,
    )

    trains_words: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """Settle template and reading."""
        if not self.template:
            self.template = self.reading if self.reading not in (None, "score-line") else JudgeArguments.template
        template = get_template(self.template)
        if self.reading not in (None, template.reading):
            raise ConfigError(
                f"template {template.id} is of reading {template.reading}, not {self.reading}; leave one of them out"
            )
        self.reading = template.reading


class _PairTrainer(SFTTrainer):
    """An `SFTTrainer` with the loss of the judge's reading."""

    model: Any
    _signature_columns: Any

    def __init__(
        self, *, judge: PreferenceArguments, model: Any, args: Any, processing_class: Any, **options: Any
    ) -> None:
        args.completion_only_loss = False
        self.padding = settle_padding(model, args, trees=not get_template(judge.template).reads_words)
        objective = self._objective = objective_of(judge, processing_class, args.padding_free)
        args.padding_free = False  # its own collator lays the rows out, which TRL 1.16 would refuse
        super().__init__(model=model, args=args, processing_class=processing_class, data_collator=objective, **options)
        speed_up_lora(self)
        self.model_accepts_loss_kwargs = True  # the loss is divided by the step's pairs here
        self._signature_columns = list(_COLUMNS)

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        """Return the rows as they are: TRL would look for texts."""
        return dataset

    def compute_loss(
        self,
        model: Any,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: Tensor | int | None = None,
    ) -> Any:
        """The loss of a batch of pairs: their mean, or the sum over all pairs of the step divided by their number."""
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
        """The divisor of the step's summed loss: its pairs."""
        if not batch_samples:
            return None
        total = torch.tensor(sum(len(batch["preference"]) for batch in batch_samples), device=device)
        return self.accelerator.gather(total).sum() if self.args.average_tokens_across_devices else total


class DistributionTrainer(JudgeMixin, _PairTrainer):
    """The trainer of preferences on P(first better).

    Args:
        options: `judge` (`PreferenceArguments`), `rows` (`EpochRows`), `validation`, `patience`, and what `SFTTrainer`
            takes.
    """


def objective_of(
    judge: PreferenceArguments, tokenizer: Any, padding_free: bool
) -> "ScoreLineObjective | WordObjective":
    """The loss of the judge's reading, with its collator.

    Raises:
        ConfigError: a word of the reading is more than one token.
    """
    scale = (judge.scale[0], judge.scale[1])
    template = get_template(judge.template)
    if not template.reads_words:
        trees = ScoreLineTrees(tokenizer, judge.template, scale)
        return ScoreLineObjective(trees, judge.consistency_weight, judge.score_line_weight, padding_free)
    weights = WordWeights(
        consistency=judge.consistency_weight, word=judge.word_weight, pointwise=judge.pointwise_weight
    )
    return WordObjective(word_tokens(tokenizer, template, scale), weights, padding_free)


_WEIGHTS = {
    "score-line": ("consistency_weight", "score_line_weight"),
    "letters": ("consistency_weight", "word_weight"),
    "yes-no": ("word_weight", "pointwise_weight"),
    "grade": ("word_weight",),
}
"""The weights that the loss of each reading has."""


def check_preference_arguments(judge: PreferenceArguments) -> None:
    """Refuse options that the loss of the judge's reading lacks, and negative weights.

    Raises:
        ConfigError: one of them is set, or the template has no P(first better) that could be trained.
    """
    template = get_template(judge.template)
    if template.reads_alone and not judge.both_orders:
        raise ConfigError(
            f"both_orders is false, but reading {template.reading} shows each answer by itself; leave it out"
        )
    if template.takes_criterion:
        raise ConfigError(
            f"template {template.id} asks about a criterion, which rows do not state; use {template.reading}"
        )
    if template.reading not in _WEIGHTS:
        raise ConfigError(
            f"template {template.id} reasons first, which train/grpo.py trains; use it, or another template"
        )
    unused = {"loss_on": "completion", "score_weight": 1.0, "loss_average": "token", "reason_prob": 0.0}
    for name, only in unused.items():
        if getattr(judge, name) != only:
            raise ConfigError(f"{name} is {getattr(judge, name)!r}, but preferences train no replies; leave it out")
    for name in sorted({name for names in _WEIGHTS.values() for name in names}):
        if not 0 <= getattr(judge, name) < float("inf"):
            raise ConfigError(f"{name} is {getattr(judge, name)}; it is a weight, 0 or more")
        if name not in _WEIGHTS[template.reading] and getattr(judge, name) != getattr(PreferenceArguments, name):
            raise ConfigError(
                f"{name} is {getattr(judge, name)}, but the loss of reading {template.reading} has no such term; "
                "leave it out"
            )


def preference_attention(judge: PreferenceArguments, base: Any, args: Any) -> Attention | None:
    """Attention that takes the score lines' mask: sdpa, or eager, which is faster on a CPU for short rows.

    None where the judge is read off a word, whose prompts any attention reads.

    Raises:
        ConfigError: the config names another.
    """
    if get_template(judge.template).reads_words:
        return None
    requested = requested_attention(base, args)
    if requested not in (None, "sdpa", "eager"):
        raise ConfigError(
            f"attn_implementation is {requested!r}, but score lines need a mask of their own; use sdpa or eager"
        )
    implementation = requested or "sdpa"
    return Attention(implementation, f"{implementation} (score lines stand under a mask of their own)")


def preference_facts(run: TrainingRun) -> dict[str, Any]:
    """Facts of the training, for the judge's card."""
    template = get_template(run.judge.template)
    names = (*(() if template.reads_alone else ("both_orders",)), *_WEIGHTS[template.reading])
    return {"method": "preference"} | {name: getattr(run.judge, name) for name in names}
