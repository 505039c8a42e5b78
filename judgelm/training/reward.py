"""The trainer of `train/reward.py`: a reward model, which gives each answer one number.

The loss of a pair is that of Bradley and Terry, TRL's: -log sigmoid(r(better) - r(worse) - margin). Without margin the
logistic function of the difference is P(better), which `--mode reward` reads. With `margin_weight` w a pair of
preference p has the margin w (2p - 1), as Llama 2's reward models have larger margins for clearer preferences; then
differences grow and P(better) is too sure until it is calibrated.

A base without a head gets a new one. A LoRA adapter holds its head whole, and its base stays as it was.

Sources: Bradley and Terry 1952; Touvron et al. 2023, Llama 2 (arXiv 2307.09288), section 3.2.2.
"""

from dataclasses import dataclass
from typing import Any, ClassVar

from trl import (  # type: ignore[attr-defined]  # trl loads its names lazily, which mypy cannot see
    RewardConfig,
    RewardTrainer,
)
from trl.trainer.reward_trainer import suppress_seqcls_warning

from judgelm.errors import ConfigError
from judgelm.training.arguments import JudgeArguments, argument
from judgelm.training.lora_on_cpu import speed_up_lora
from judgelm.training.precision import PrecisionMixin
from judgelm.training.run import TrainingRun
from judgelm.training.trainer import JudgeMixin


@dataclass(kw_only=True)
class RewardArguments(JudgeArguments):
    """Arguments of `train/reward.py` beside TRL's: the data, and the margin.

    `train_data` and `eval_data` hold pairs with a `preference`, P(first answer is better), or with scores or a winner;
    ties are left out. References are not shown.
    """

    template: str = argument("reward: question and answer in the base's own chat template.", default="reward")
    reason_prob: float = argument("0: a reward model writes no reasons.", default=0.0)
    reference_drop_prob: float = argument("1: a reward model reads no references.", default=1.0)
    margin_weight: float = argument(
        "Margin of the reward of a better answer for a preference of 1, less for softer ones: weight x (2p - 1). 0 is "
        "the plain Bradley-Terry loss, whose differences are calibrated.",
        default=0.0,
    )

    trains_words: ClassVar[bool] = True


_FIXED = {
    "template": "reward",
    "reason_prob": 0.0,
    "reference_drop_prob": 1.0,
    "loss_on": "completion",
    "score_weight": 1.0,
    "loss_average": "token",
}
"""Arguments of other recipes that a reward model cannot have otherwise."""


def check_reward_arguments(judge: RewardArguments) -> None:
    """Refuse options of judges that write text, and a negative margin.

    Raises:
        ConfigError: one of them is set.
    """
    for name, only in _FIXED.items():
        if (value := getattr(judge, name)) != only:
            raise ConfigError(f"{name} is {value!r}, but a reward model has {only!r} alone; leave {name} out")
    if not 0 <= judge.margin_weight < float("inf"):
        raise ConfigError(f"margin_weight is {judge.margin_weight}; it is a margin, 0 or more")


class JudgeRewardConfig(PrecisionMixin, RewardConfig):  # type: ignore[misc]  # untyped in trl
    """TRL's `RewardConfig`; on a CPU that emulates bfloat16, `bf16` is false where it is left open."""


class BradleyTerryTrainer(JudgeMixin, RewardTrainer):
    """A `RewardTrainer` for rows of tokens.

    Args:
        options: `rows` (`EpochRows`), `validation`, `patience`, and what `RewardTrainer` takes.
    """

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        speed_up_lora(self)

    def _prepare_dataset(self, dataset: Any, *_: Any) -> Any:
        """Return the rows as they are: they are tokens within the window."""
        return dataset


def load_reward_model(run: TrainingRun) -> tuple[Any, Any]:
    """The base with a head of one number, and the LoRA configuration, whose adapter will hold the head.

    Raises:
        ConfigError: the base is quantised, which no engine reads with a head.
        ModelError: it cannot be loaded, or is no causal language model.
    """
    if run.base.load_in_4bit or run.base.load_in_8bit:
        raise ConfigError("load_in_4bit and load_in_8bit: a reward model is trained on an unquantised base; leave out")
    run.base.lora_task_type = "SEQ_CLS"
    with suppress_seqcls_warning():
        return run.load_model(rewards=True)


def reward_facts(run: TrainingRun) -> dict[str, Any]:
    """Facts of the training, for the judge's card."""
    return {"method": "reward", "margin_weight": run.judge.margin_weight}
