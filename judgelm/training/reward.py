"""Train reward models, for `train/reward.py`.

The loss for a pair is -log sigmoid(r(better) - r(worse) - margin). `--mode reward` reports P(better), the sigmoid of
the reward difference. With a margin, as in Llama 2, P(better) is overconfident until it is calibrated.

Sources: Bradley and Terry 1952; Touvron et al. 2023, Llama 2 (arXiv 2307.09288), section 3.2.2.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from trl import RewardConfig, RewardTrainer  # type: ignore[attr-defined]  # trl loads its names lazily, which mypy cannot see
from trl.trainer.reward_trainer import suppress_seqcls_warning

from judgelm.errors import ConfigError
from judgelm.training.arguments import PLAIN_LOSS, JudgeArguments, argument, check_fixed, check_not_negative
from judgelm.training.precision import PrecisionMixin
from judgelm.training.run import TrainingRun
from judgelm.training.trainer import JudgeMixin


@dataclass(kw_only=True)
class RewardArguments(JudgeArguments):
    """Arguments for `train/reward.py`. The rows are as for `train/preference.py`, but without ties and references."""

    template: str = argument(
        "reward, which shows the question and the answer in the chat template of the base model.", default="reward"
    )
    reason_prob: float = argument("Always 0, because a reward model does not write reasons.", default=0.0)
    reference_drop_prob: float = argument("Always 1, because a reward model does not use references.", default=1.0)
    margin_weight: float = argument(
        "For a pair with preference p, the margin is this weight times (2p - 1).", default=0.0
    )

    trains_words: ClassVar[bool] = True


def check_reward_arguments(judge: RewardArguments) -> None:
    """Raise ConfigError for a negative margin and for options of judges that write text."""
    fixed = {"template": "reward", "reason_prob": 0.0, "reference_drop_prob": 1.0} | PLAIN_LOSS
    check_fixed(judge, fixed, "reward models do not support this")
    check_not_negative(judge, "margin_weight")


class JudgeRewardConfig(PrecisionMixin, RewardConfig):  # type: ignore[misc]  # untyped in trl
    """TRL's `RewardConfig`, with `bf16` off by default on a CPU that emulates bfloat16."""


class BradleyTerryTrainer(JudgeMixin, RewardTrainer):
    """A `RewardTrainer` for token rows."""


def load_reward_model(run: TrainingRun) -> tuple[Any, Any]:
    """Return the base model with a single-output head, and the LoRA configuration."""
    if run.base.load_in_4bit or run.base.load_in_8bit:
        raise ConfigError(
            "load_in_4bit and load_in_8bit are not supported, because reward models require an unquantised base; "
            "remove both"
        )
    run.base.lora_task_type = "SEQ_CLS"
    with suppress_seqcls_warning():
        return run.load_model(rewards=True)


def reward_facts(run: TrainingRun) -> dict[str, Any]:
    """Return the training details for the judge's card."""
    return {"method": "reward", "margin_weight": run.judge.margin_weight}
