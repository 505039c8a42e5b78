"""The trainer of `train/dpo.py`, which prefers one judgment to another: direct preference optimisation (DPO).

The fine-tuned judge stays the reference: DPO raises the log-probability of the chosen judgment against the rejected
one, each measured relative to that judge. The loss is TRL's.

Source: Rafailov et al. 2023, Direct Preference Optimization (arXiv 2305.18290).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate.utils import DistributedType
from trl import (  # type: ignore[attr-defined]  # trl loads its names lazily, which mypy cannot see
    DPOConfig,
    DPOTrainer,
    ModelConfig,
)

from judgelm.errors import CardError, ConfigError
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card, find_card
from judgelm.training.arguments import JudgeArguments, argument, base_name
from judgelm.training.attention import Attention
from judgelm.training.base_model import load_base_model
from judgelm.training.precision import PrecisionMixin
from judgelm.training.rows.dataset import file_sha
from judgelm.training.run import TrainingRun
from judgelm.training.trainer import JudgeMixin, skip_unlabelled_logits


@dataclass(kw_only=True)
class DPOArguments(JudgeArguments):
    """Arguments of `train/dpo.py` beside TRL's: those of `train/sft.py`, and the judge's mistakes.

    `train_data` and `eval_data` hold the labelled pairs of `judgments`, or rows with `chosen` and `rejected`
    judgments of their own, see `judgelm.training.rows.dpo`.
    """

    judgments: list[str] = argument(
        "Judgments of those pairs, as judgelm-batch wrote them (with their .run.json): where the judge was wrong, "
        "the label's judgment is chosen and the judge's own reply rejected.",
        default_factory=list,
    )
    min_distance: float | None = argument(
        "Reject a reply if one of its scores is at least this far from the label's, whoever wins; without it, if its "
        "winner differs.",
        default=None,
    )


class PreferenceTrainer(JudgeMixin, DPOTrainer):
    """A `DPOTrainer` for rows of tokens."""

    def __init__(self, **options: Any) -> None:
        skip_unlabelled_logits()
        super().__init__(**options)

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        """Return the rows as they are.

        TRL 1.16 would build them from texts: with an end-of-sequence token after a bare score line, and without the
        length policy of the prompt.
        """
        return dataset


def check_dpo_arguments(judge: DPOArguments, dpo: DPOConfig) -> None:
    """Refuse options of a supervised fine-tuning that DPO lacks.

    Raises:
        ConfigError: one of them is set, or beta is not above 0.
    """
    for name, only in (("loss_on", "completion"), ("score_weight", 1.0), ("loss_average", "token")):
        if getattr(judge, name) != only:
            raise ConfigError(f"{name} is {getattr(judge, name)!r}, but DPO compares whole judgments; leave {name} out")
    if judge.adapter is not None:
        raise ConfigError("adapter is set, but DPO tunes a whole judge; merge the adapter first: train/merge_lora.py")
    if dpo.padding_free:
        raise ConfigError("padding_free is true, but DPO of TRL 1.16 has padded rows only; leave padding_free out")
    if not dpo.beta > 0:
        raise ConfigError(f"beta is {dpo.beta}; it must be above 0 (the smaller, the further the judge may move)")


def load_reference_model(base: ModelConfig, args: DPOConfig, attention: Attention) -> Any:
    """Load the frozen copy of the judge; None where TRL 1.16 needs none.

    An adapter can be switched off, and log-probabilities that are computed in advance need the judge itself only,
    except under FSDP.
    """
    sharded = args.distributed_state.distributed_type == DistributedType.FSDP
    if base.use_peft or (args.precompute_ref_log_probs and not sharded):
        return None
    return load_base_model(base, args, attention)


def dpo_facts(run: TrainingRun) -> dict[str, Any]:
    """Facts of the tuning, for the judge's card."""
    judge, dpo = run.judge, run.args
    return {
        "method": "dpo",
        "beta": dpo.beta,
        "loss_type": dpo.loss_type,
        "judgments": [{"file": Path(path).name, "sha": file_sha(path)} for path in judge.judgments],
        "min_distance": judge.min_distance,
        "began_from": {"judge": base_name(run.base), **(run.tuned_from.training if run.tuned_from else {})},
    }


def find_tuned_card(base: ModelConfig, judge: DPOArguments) -> Card | None:
    """Find the card of the judge to be tuned and check that it fits; None where it has none.

    Raises:
        CardError: the card contradicts the template or the scale.
        ConfigError: the judge is an adapter.
    """
    name = base_name(base)
    if (Path(name) / "adapter_config.json").exists():
        raise ConfigError(
            f"{name}: is an adapter; merge it into its base first: python train/merge_lora.py {name} -o ..."
        )
    card = find_card(name, base.model_revision)
    if card is None:
        return None
    low, high = card.scale
    if (card.template, [low, high]) != (judge.template, judge.scale):
        raise CardError(
            f"{name}: the judge was trained with template {card.template!r} on the scale {low:g} to {high:g}, but "
            f"template is {judge.template!r} and scale {judge.scale}; set template: {card.template} and scale: "
            f"[{low:g}, {high:g}]"
        )
    if card.template_sha != get_template(judge.template).sha:
        raise CardError(
            f"{name}: the judge was trained with other bytes of template {card.template!r}; install the judgelm "
            "version it was trained with, or train it again"
        )
    return card


class JudgeDPOConfig(PrecisionMixin, DPOConfig):  # type: ignore[misc]  # untyped in trl
    """TRL's `DPOConfig`; on a CPU that emulates bfloat16, `bf16` is false where it is left open."""
