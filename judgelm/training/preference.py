"""The trainer of `train/preference.py`: the score distribution is the model.

A judge's distribution over score lines says P(first better), as `judgelm.parsing.scores` reads it at test time:
the probability of all lines whose first score is higher, and half of that of equal scores. That number is
differentiable, so it is trained itself. The loss of a pair with the preference p is

    CE(p, P) + consistency_weight * (P1 - (1 - P2))^2 + score_line_weight * NLL(line(p))

CE is the cross entropy and NLL that of the score line which `scores_by_preference` gives for p, with its line's end;
both are means over the two orders, which stand in the same pass. P1 and P2 are P(first better) in either order.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import Tensor
from trl import SFTTrainer  # type: ignore[attr-defined]  # trl loads its names lazily, unseen by mypy

from judgelm.data.labelled_pair import scores_by_preference, swapped_preference
from judgelm.errors import ConfigError
from judgelm.training.arguments import row_options
from judgelm.training.attention import Attention, requested_attention
from judgelm.training.config import JudgeArguments
from judgelm.training.lora_on_cpu import speed_up_lora
from judgelm.training.nan_guard import NanGuardMixin
from judgelm.training.rows.pair_prompts import PairRowOptions
from judgelm.training.save import SaveDtypeMixin
from judgelm.training.schedule import SinglePassMixin
from judgelm.training.score_distribution import (
    ScoreLineTrees,
    additive_mask,
    line_logprobs,
    path_logprobs,
    preference_logprobs,
    tree_batch,
)
from judgelm.training.validation.evaluator import ValidationMixin

_COLUMNS = ("prompt_ids", "swapped_ids", "preference")


@dataclass(kw_only=True)
class PreferenceArguments(JudgeArguments):
    """Arguments of `train/preference.py` beside TRL's: those of `train/sft.py`, and the weights of the loss.

    `train_data` and `eval_data` hold pairs with a `preference`, P(first answer is better), or with scores or a winner.
    """

    reason_prob: float = field(default=0.0, metadata={"help": "0: reasons are not learned from preferences."})
    both_orders: bool = field(
        default=True,
        metadata={
            "help": "Show each pair in both orders within a step; false shows it once, as it stands or swapped by "
            "swap_prob, without the consistency term."
        },
    )
    consistency_weight: float = field(
        default=0.5,
        metadata={"help": "Weight of the squared difference between P(first better) in the two orders."},
    )
    score_line_weight: float = field(
        default=0.1,
        metadata={
            "help": "Weight of the negative log-likelihood of the preference's score line, which keeps replies "
            "readable: watch score_line_mass, the probability of all score lines."
        },
    )


class _ScoreDistributionTrainer(SFTTrainer):
    """An `SFTTrainer` with the loss of this module."""

    model: Any
    _signature_columns: Any

    def __init__(
        self, *, judge: PreferenceArguments, model: Any, args: Any, processing_class: Any, **options: Any
    ) -> None:
        args.completion_only_loss = False
        collator = PairCollator(ScoreLineTrees(processing_class, judge.template, (judge.scale[0], judge.scale[1])))
        super().__init__(model=model, args=args, processing_class=processing_class, data_collator=collator, **options)
        speed_up_lora(self)
        self.model_accepts_loss_kwargs = True  # the loss is divided by the step's pairs here
        self._signature_columns = list(_COLUMNS)
        self._weights = (judge.consistency_weight, judge.score_line_weight)

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
        preference, tree = inputs["preference"], inputs["tree"]
        # indices and not a number: of a slice, torch copies the vocabulary's weights for each row
        columns = inputs["input_ids"].shape[1]
        scored = torch.arange(columns - 1 - len(tree["tokens"]), columns, device=inputs["input_ids"].device)
        outputs = model(
            input_ids=inputs["input_ids"],
            position_ids=inputs["position_ids"],
            attention_mask=additive_mask(inputs["attention_mask"], self.model.dtype),
            logits_to_keep=scored,
            use_cache=False,
        )
        losses, metrics = pair_losses(outputs.logits, tree, preference, *self._weights)
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


class DistributionTrainer(ValidationMixin, NanGuardMixin, SaveDtypeMixin, SinglePassMixin, _ScoreDistributionTrainer):
    """The trainer of preferences on P(first better).

    Args:
        options: `judge` (`PreferenceArguments`), `rows` (`EpochRows`), `validation`, `patience`, and what `SFTTrainer`
            takes.
    """


class PairCollator:
    """A collator that shows pairs in their orders, each prompt followed by the tree of score lines.

    Args:
        trees: of the template's score lines.
    """

    def __init__(self, trees: ScoreLineTrees) -> None:
        self._trees = trees

    def __call__(self, examples: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """Collate rows of `PairRow`'s lists into a batch.

        Returns:
            `preference`, shape (pairs,); `tree`, see `ScoreLineTrees.tree`; and the inputs of `tree_batch`, all pairs
            in the given order, then all swapped if the rows have both orders.
        """
        prompts = [example["prompt_ids"] for example in examples]
        preferences = [example["preference"] for example in examples]
        shown = list(preferences)
        if len(examples[0]["swapped_ids"]):
            prompts += [example["swapped_ids"] for example in examples]
            shown += [swapped_preference(preference) for preference in preferences]
        low, high = self._trees.lines.values[0], self._trees.lines.values[-1]
        tree = self._trees.tree([scores_by_preference(preference, (low, high)) for preference in shown])
        return {
            "preference": torch.tensor(preferences, dtype=torch.float32),  # first: its length is the batch's
            "tree": tree,
            **tree_batch(prompts, tree),
        }


def pair_losses(
    logits: Tensor, tree: dict[str, Tensor], preference: Tensor, consistency_weight: float, score_line_weight: float
) -> tuple[Tensor, dict[str, Tensor]]:
    """The loss of each pair, and its parts.

    Args:
        logits: shape (orders x pairs, 1 + nodes, vocabulary): all pairs in the given order, then all swapped.
        tree: `ScoreLineTrees.tree` of each order's target.
        preference: shape (pairs,), P(first answer is better), in [0, 1].
        consistency_weight: of the squared difference between the orders.
        score_line_weight: of the negative log-likelihood of the target's score line.

    Returns:
        Shape (pairs,); and metrics by name, without gradients: `preference_loss`, `consistency_loss`,
        `score_line_loss`, and `score_line_mass`, the probability of all score lines.
    """
    paths = path_logprobs(logits, tree)
    first, second, assigned = preference_logprobs(line_logprobs(paths, tree), tree)
    shown = torch.cat([preference, 1 - preference])[: len(first)]
    entropy = -(shown * first + (1 - shown) * second)
    line = -paths.gather(1, tree["targets"][:, None])[:, 0]
    orders = (-1, len(preference))  # one row for each order
    chances = first.exp().reshape(orders)
    gap = (chances[0] - (1 - chances[1])) ** 2 if len(chances) == 2 else torch.zeros_like(preference)
    entropy, line = entropy.reshape(orders).mean(0), line.reshape(orders).mean(0)
    parts = {"preference_loss": entropy, "consistency_loss": gap, "score_line_loss": line}
    metrics = {name: part.detach() for name, part in (parts | {"score_line_mass": assigned.exp()}).items()}
    return entropy + consistency_weight * gap + score_line_weight * line, metrics


def pair_row_options(judge: PreferenceArguments, args: Any) -> PairRowOptions:
    """Options of the rows; `max_length` of the trainer's arguments is their window."""
    return PairRowOptions(**asdict(row_options(judge, args)), both_orders=judge.both_orders)


def check_preference_arguments(judge: PreferenceArguments) -> None:
    """Refuse options of a supervised fine-tuning that the score distribution lacks, and negative weights.

    Raises:
        ConfigError: one of them is set.
    """
    for name, only in (("loss_on", "completion"), ("score_weight", 1.0), ("reason_prob", 0.0)):
        if getattr(judge, name) != only:
            raise ConfigError(f"{name} is {getattr(judge, name)!r}, but preferences train score lines; leave it out")
    for name in ("consistency_weight", "score_line_weight"):
        if not 0 <= getattr(judge, name) < float("inf"):
            raise ConfigError(f"{name} is {getattr(judge, name)}; it is a weight, 0 or more")


def masked_attention(base: Any, args: Any) -> Attention:
    """Attention that takes the score lines' mask: sdpa, or eager, which is faster on a CPU for short rows.

    Raises:
        ConfigError: the config names another.
    """
    requested = requested_attention(base, args)
    if requested not in (None, "sdpa", "eager"):
        raise ConfigError(
            f"attn_implementation is {requested!r}, but score lines need a mask of their own; use sdpa or eager"
        )
    implementation = requested or "sdpa"
    return Attention(
        implementation=implementation, note=f"{implementation} (score lines stand under a mask of their own)"
    )


def preference_facts(judge: PreferenceArguments) -> dict[str, Any]:
    """Facts of the training, for the judge's card."""
    return {
        "method": "preference",
        "both_orders": judge.both_orders,
        "consistency_weight": judge.consistency_weight,
        "score_line_weight": judge.score_line_weight,
    }
