"""Direct preference optimization (DPO) on pairs of judgments, for `train/dpo.py`.

Source: Rafailov et al. 2023, Direct Preference Optimization (arXiv 2305.18290).
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from accelerate.utils import DistributedType
from trl import DPOConfig, DPOTrainer, ModelConfig  # type: ignore[attr-defined]  # trl loads its names lazily, which mypy cannot see

from judgelm.errors import CardError, ConfigError
from judgelm.prompts.catalog import get_template
from judgelm.prompts.judge_card import Card, find_card
from judgelm.training.arguments import PLAIN_LOSS, JudgeArguments, argument, base_name, check_fixed
from judgelm.training.attention import Attention
from judgelm.training.base_model import load_base_model
from judgelm.training.precision import PrecisionMixin
from judgelm.training.rows.dataset import file_sha
from judgelm.training.run import TrainingRun
from judgelm.training.trainer import JudgeMixin, skip_unlabelled_logits


@dataclass(kw_only=True)
class DPOArguments(JudgeArguments):
    """Arguments for `train/dpo.py`. The files are described in `judgelm.training.rows.dpo`."""

    judgments: list[str] = argument(
        "judgelm-batch runs on these pairs. If the judge was wrong, the label is chosen and the judge's reply is "
        "rejected.",
        default_factory=list,
    )
    min_distance: float | None = argument(
        "Minimum difference between a reply's score and the label's for the reply to be rejected. By default, a reply "
        "is rejected if its winner differs.",
        default=None,
    )


class PreferenceTrainer(JudgeMixin, DPOTrainer):
    """A `DPOTrainer` for token rows."""

    def __init__(self, **options: Any) -> None:
        skip_unlabelled_logits()
        super().__init__(**options)


def check_dpo_arguments(judge: DPOArguments, dpo: DPOConfig) -> None:
    """Raise ConfigError for options that DPO does not support."""
    check_fixed(judge, PLAIN_LOSS, "DPO compares whole judgments")
    if judge.adapter is not None:
        raise ConfigError("adapter is set, but DPO requires a full judge; merge the adapter first: train/merge_lora.py")
    if dpo.padding_free:
        raise ConfigError("padding_free is true, but TRL 1.16 supports only padded rows for DPO; remove padding_free")
    if not dpo.beta > 0:
        raise ConfigError(f"beta is {dpo.beta}; expected a number above 0")


def load_reference_model(base: ModelConfig, args: DPOConfig, attention: Attention) -> Any:
    """Load a frozen copy of the judge as the reference model.

    Return None if TRL 1.16 does not need it: for an adapter, or for precomputed log-probabilities without FSDP.
    """
    sharded = args.distributed_state.distributed_type == DistributedType.FSDP
    if base.use_peft or (args.precompute_ref_log_probs and not sharded):
        return None
    return load_base_model(base, args, attention)


def dpo_facts(run: TrainingRun) -> dict[str, Any]:
    """Return the training details for the judge's card."""
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
    """Return the card of the judge to fine-tune, or None if it is missing."""
    name = base_name(base)
    if (Path(name) / "adapter_config.json").exists():
        raise ConfigError(f"{name} is an adapter; merge it into its base first: train/merge_lora.py {name} -o ...")
    card = find_card(name, base.model_revision)
    if card is None:
        return None
    low, high = card.scale
    if (card.template, [low, high]) != (judge.template, judge.scale):
        raise CardError(
            f"{name}: the judge was trained with template {card.template!r} and scale [{low:g}, {high:g}], but "
            f"template is {judge.template!r} and scale is {judge.scale}; use the values from the card"
        )
    if card.template_sha != get_template(judge.template).sha:
        raise CardError(f"{name}: template {card.template!r} has changed since this judge was trained; retrain it")
    return card


class JudgeDPOConfig(PrecisionMixin, DPOConfig):  # type: ignore[misc]  # untyped in trl
    """TRL's `DPOConfig`, with `bf16` off by default on a CPU that emulates bfloat16."""
