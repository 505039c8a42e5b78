"""Train a reward model on preferences with the Bradley-Terry loss.

    accelerate launch --config_file configs/accelerate/gpu.yaml train/reward.py --config configs/train/reward_8b.yaml
    judgelm-batch pairs.jsonl -o judgments.jsonl --mode reward --model runs/reward_8b

Rows are labelled pairs, as for `train/preference.py`. Accepts the fields of `judgelm.training.reward.RewardArguments`
and TRL's `RewardConfig` and `ModelConfig`. Everything else works as in `train/sft.py`.
"""

from judgelm.cli.training import run_training
from judgelm.training.reward import (
    BradleyTerryTrainer,
    JudgeRewardConfig,
    RewardArguments,
    check_reward_arguments,
    load_reward_model,
    reward_facts,
)
from judgelm.training.rows.pairs import RewardRowBuilder
from judgelm.training.run import TrainingRun


def build_trainer(run: TrainingRun) -> BradleyTerryTrainer:
    """Build the rows, model, and trainer."""
    check_reward_arguments(run.judge)
    run.check()

    # chats with the better and the worse answer, and pairs to judge at each evaluation
    run.build_rows(RewardRowBuilder, margin_weight=run.judge.margin_weight)
    run.find_start()

    # the base model with a single-output head, and the trainer
    model, peft_config = load_reward_model(run)
    return BradleyTerryTrainer(model=model, peft_config=peft_config, **run.trainer_options())


if __name__ == "__main__":
    run_training(build_trainer, RewardArguments, JudgeRewardConfig, facts=reward_facts)
